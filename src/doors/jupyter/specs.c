/* Kernelspecs, one for each template. The template "python" is shown as "python3", the name that notebooks, and
 * programs without a preference, use for a Python kernel. "carrel" is that template, too: `carrel kernelspec install`
 * writes a kernelspec of that name, and notebooks refer to it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "doors/jupyter/door.h"
#include "proto/kernel.h"

static const char ours[] = "python", theirs[] = "python3", installed[] = "carrel";

/* A desk with an open book. */
static const char logo_svg[] =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"64\" height=\"64\" viewBox=\"0 0 64 64\">"
    "<rect width=\"64\" height=\"64\" rx=\"10\" fill=\"#28435c\"/>"
    "<path d=\"M8 20q12-6 24 0v26q-12-6-24 0zM56 20q-12-6-24 0v26q12-6 24 0z\" fill=\"#f4f1e8\"/>"
    "<path d=\"M32 20v26M12 26q8-3 16 0M12 32q8-3 16 0M36 26q8-3 16 0M36 32q8-3 16 0\" fill=\"none\" "
    "stroke=\"#28435c\" stroke-width=\"2\"/><path d=\"M8 52h48\" stroke=\"#d9a441\" stroke-width=\"4\"/></svg>";

/* The same, 32 by 32, three colours. */
static const unsigned char logo_png[] = {
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52,
    0x00, 0x00, 0x00, 0x20, 0x00, 0x00, 0x00, 0x20, 0x02, 0x03, 0x00, 0x00, 0x00, 0x0e, 0x14, 0x92,
    0x67, 0x00, 0x00, 0x00, 0x09, 0x50, 0x4c, 0x54, 0x45, 0x28, 0x43, 0x5c, 0xf4, 0xf1, 0xe8, 0xd9,
    0xa4, 0x41, 0x58, 0x59, 0xc2, 0xd7, 0x00, 0x00, 0x00, 0x31, 0x49, 0x44, 0x41, 0x54, 0x78, 0xda,
    0x63, 0x60, 0xa0, 0x3a, 0x60, 0x0d, 0x0d, 0x00, 0x22, 0x64, 0x46, 0x68, 0x68, 0x88, 0x68, 0x68,
    0x28, 0x32, 0x23, 0x80, 0x41, 0x44, 0x84, 0x81, 0x95, 0x54, 0x29, 0x3c, 0x0c, 0x06, 0x06, 0x16,
    0x01, 0x1c, 0xee, 0x59, 0x05, 0x06, 0xc8, 0x0c, 0x12, 0x00, 0x00, 0xb3, 0x07, 0x1b, 0x54, 0xf8,
    0x19, 0x33, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
};

uint32_t kernelspec_find(const struct config *config, const char *name)
{
    if (!name)
        name = theirs;
    for (uint32_t i = 0; i < config->n_templates; i++)
        if (strcmp(config->template[i].name, name) == 0)
            return i + 1;
    return strcmp(name, theirs) == 0 || strcmp(name, installed) == 0 ? kernelspec_find(config, ours) : 0;
}

const char *spec_name(const struct config *config, uint32_t number)
{
    const char *name = config->template[number - 1].name;

    /* The administrator may have a template named python3. */
    return strcmp(name, ours) == 0 && kernelspec_find(config, theirs) == number ? theirs : name;
}

void spec_names(const struct config *config, char *text, size_t size)
{
    size_t n = 0;

    text[0] = 0;
    for (uint32_t i = 1; i <= config->n_templates && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i > 1 ? ", " : "", spec_name(config, i));
}

static json_t *spec_model(const struct config *config, uint32_t number)
{
    const char *name = spec_name(config, number);
    bool is_default = number == kernelspec_find(config, NULL);
    char display[96], svg[160], png[160];

    const struct config_template *t = &config->template[number - 1];
    bool is_python = strcmp(t->language, "python") == 0;
    snprintf(display, sizeof display, is_default ? "Python 3 (Carrel)" : is_python ? "Python 3 (%s)" : "%s", name);
    snprintf(svg, sizeof svg, "/kernelspecs/%s/logo-svg.svg", name);
    snprintf(png, sizeof png, "/kernelspecs/%s/logo-64x64.png", name);
    return json_pack("{s:s,s:{s:[s,s,s],s:{},s:s,s:s,s:s,s:s,s:{s:b}},s:{s:s,s:s}}", "name", name, "spec", "argv",
                     t->python, KERNEL_PROGRAM, KERNEL_AS_KERNEL, "env", "display_name", display, "language",
                     t->language, "interrupt_mode", t->interrupt_by_message ? "message" : "signal",
                     "kernel_protocol_version", "5.5", "metadata", "debugger", 0, "resources", "logo-svg", svg,
                     "logo-64x64", png);
}

/* With a KERNEL_USERNAME, jupyter_server as a gateway's client appends the name of the kernelspec to its own query:
 * /api/kernelspecs?user=bob/python3. */
static uint32_t named_by_user(struct gateway_request *c)
{
    struct http_text user;

    if (http_query_get(&c->r->arena, c->r->head.query, "user", &user) < 0)
        return 0;
    const char *slash = strrchr(user.data, '/');
    return slash ? kernelspec_find(&c->front->config, slash + 1) : 0;
}

void handle_specs(struct gateway_request *c)
{
    const struct config *config = &c->front->config;
    json_t *all = json_object();

    uint32_t single = named_by_user(c);
    if (single) {
        json_decref(all);
        answer_json(c, 200, spec_model(config, single));
        return;
    }
    for (uint32_t i = 1; i <= config->n_templates; i++)
        json_object_set_new(all, spec_name(config, i), spec_model(config, i));
    const char *name = spec_name(config, kernelspec_find(config, NULL));
    answer_json(c, 200, json_pack("{s:s,s:o}", "default", name, "kernelspecs", all));
}

static uint32_t named(struct gateway_request *c)
{
    const char *name = http_match_get(c->match, "name").data;
    uint32_t number = kernelspec_find(&c->front->config, name);

    if (!number)
        answer_fail(c, 404, "Kernel spec %s not found", name);
    return number;
}

void handle_spec(struct gateway_request *c)
{
    uint32_t number = named(c);

    if (number)
        answer_json(c, 200, spec_model(&c->front->config, number));
}

void handle_resource(struct gateway_request *c)
{
    const char *file = http_match_get(c->match, "file").data;
    bool is_svg = strcmp(file, "logo-svg.svg") == 0;

    if (!named(c))
        return;
    if (!is_svg && strcmp(file, "logo-64x64.png") != 0 && strcmp(file, "logo-32x32.png") != 0) {
        answer_fail(c, 404, "there is no such file");
        return;
    }
    (void)http_reply_header(c->r, "Cache-Control", "max-age=3600");
    int r = is_svg ? http_reply(c->r, 200, "image/svg+xml", logo_svg, sizeof logo_svg - 1)
                   : http_reply(c->r, 200, "image/png", logo_png, sizeof logo_png);
    if (r < 0)
        http_request_abort(c->r);
}
