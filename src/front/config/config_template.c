/* Templates: the keys templates.NAME.KEY. One named "python" always exists; the file may change it and add others. A
 * name gets its number when it first occurs, so the supervisor, which configures the keeper, and the front agree on the
 * numbers if they read the same file and the same flags. */
#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "front/config/config_private.h"
#include "proto/defaults.h"
#include "proto/keys.h"
#include "proto/packages.h"

enum { POOL_DEFAULT = 2 };

static const char prefix[] = "templates";
static const char language_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+#-_. ";
static const char imports_default[] = "IPython,numpy,pandas,matplotlib";

enum kind {
    TEMPLATE_PATH, TEMPLATE_MODULES, TEMPLATE_PATHS, TEMPLATE_POOL, TEMPLATE_COMMAND, TEMPLATE_WORD, TEMPLATE_LANGUAGE,
    TEMPLATE_NETWORK, TEMPLATE_SIZE, TEMPLATE_CPUS, TEMPLATE_VOLUMES, TEMPLATE_SECRETS, TEMPLATE_PYTHON,
    TEMPLATE_PACKAGES, TEMPLATE_KEYS
};

static const struct key {
    const char *name;
    enum kind   kind;
    size_t      offset, size;
} keys[] = {
#define AT(member) offsetof(struct config_template, member), sizeof((struct config_template *)0)->member
    { "python", TEMPLATE_PYTHON, AT(python) },    { "imports", TEMPLATE_MODULES, AT(imports) },
    { "startup", TEMPLATE_PATH, AT(startup) },    { "layers", TEMPLATE_PATHS, AT(layers) },
    { "pool", TEMPLATE_POOL, AT(pool) },          { "kernel", TEMPLATE_COMMAND, AT(kernel) },
    { "interrupt", TEMPLATE_WORD, AT(interrupt_by_message) }, { "zygote", TEMPLATE_WORD, AT(zygote_late) },
    { "language", TEMPLATE_LANGUAGE, AT(language) }, { "net", TEMPLATE_NETWORK, AT(net) },
    { "volumes", TEMPLATE_VOLUMES, AT(volumes) },   { "secrets", TEMPLATE_SECRETS, AT(secrets) },
    { "packages", TEMPLATE_PACKAGES, AT(packages) }, { "keys", TEMPLATE_KEYS, AT(keys) },
    { "request_memory", TEMPLATE_SIZE, AT(requests.memory_bytes) },
    { "request_cpus", TEMPLATE_CPUS, AT(requests.cpu_milli) },
};

bool config_template_owns(const char *key)
{
    size_t length = sizeof prefix - 1;
    return strncmp(key, prefix, length) == 0 && (key[length] == '.' || key[length] == '\0');
}

/* "templates.NAME.KEY" */
static int split(const char *key, char *name, size_t size, const char **ret_last)
{
    const char *rest = key + sizeof prefix - 1, *last = strrchr(key, '.');

    if (*rest != '.' || last == rest || (size_t)(last - rest) > size)
        return -EINVAL;
    snprintf(name, size, "%.*s", (int)(last - rest - 1), rest + 1);
    *ret_last = last + 1;
    return strchr(name, '.') ? -EINVAL : 0;
}

static const struct key *find_key(const char *name)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    return NULL;
}

/* A section of sections. */
enum config_shape config_template_shape(const char *key)
{
    const char *rest = key + sizeof prefix - 1;
    size_t dots = 0;

    for (const char *p = rest; *p; p++)
        dots += *p == '.';
    if (dots < 2)
        return CONFIG_SECTION;
    const struct key *found = dots == 2 ? find_key(strrchr(key, '.') + 1) : NULL;
    return !found ? CONFIG_UNKNOWN : found->kind == TEMPLATE_PACKAGES ? CONFIG_LINES : CONFIG_SCALAR;
}

static int check_modules(const char *key, const char *value, struct err *e)
{
    for (const char *p = value; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("._, ", *p))
            return err_set(e, EINVAL, STEP_USAGE, "%s '%s' is not a list of modules; write for example numpy,pandas",
                           key, parse_quote(value).text);
    return 0;
}

static int check_paths(const char *key, const char *value, struct err *e)
{
    char path[256];

    for (const char *at = value; *at; at += strcspn(at, ":"), at += *at == ':') {
        size_t length = strcspn(at, ":");
        if (length >= sizeof path)
            return err_set(e, EINVAL, STEP_USAGE, "%s has too long a path in it", key);
        snprintf(path, sizeof path, "%.*s", (int)length, at);
        int r = config_check_path(key, path, e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Words NAME:/PATH[:ro]. */
static int check_volumes(const char *key, const char *value, struct err *e)
{
    char word[512];

    for (const char *at = value; *at; at += strcspn(at, " "), at += *at == ' ') {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, " "), at);
        const char *colon = strstr(word, ":/");
        if (!colon || colon == word)
            return err_set(e, EINVAL, STEP_USAGE, "%s '%s' is not a list of volumes; write for example data:/data "
                           "uid:0/models:/models:ro", key, parse_quote(value).text);
    }
    return 0;
}

/* Lines of requirements; each line may have several. */
static int set_packages(const char *name, const char *value, char *to, size_t size, struct err *e)
{
    struct packages packages = { 0 };
    char *copy = strdup(value), *rest = copy, *text = NULL;
    int r = copy ? 0 : err_at(e, ENOMEM, STEP_MEMORY, 0, name);

    for (char *line; r == 0 && (line = strsep(&rest, "\n"));)
        if (line[strspn(line, " \t")])
            r = packages_add(&packages, name, line, e);
    if (r == 0) {
        packages_sort(&packages);
        text = packages_join(&packages);
        if (!text)
            r = err_at(e, ENOMEM, STEP_MEMORY, 0, name);
        else if (strlen(text) >= size)
            r = err_set(e, EINVAL, STEP_USAGE, "%s is too long; the most is %zu bytes", name, size - 1);
    }
    if (r == 0)
        snprintf(to, size, "%s", text);
    free(text);
    free(copy);
    packages_done(&packages);
    return r;
}

/* Like those of --key, with ; between them. */
static int check_keys(const char *key, const char *value, struct err *e)
{
    static struct broker_key checked;
    struct key_text parts;
    char word[CONFIG_KEYS_SIZE];
    int r = 0;

    while (r == 0 && strlen(value) < sizeof word && key_next(&value, word, sizeof word))
        r = key_read(key, word, &parts, &checked, e);
    return r;
}

/* One of two words; true: the second. */
static int set_word(const char *name, const char *value, const char *no, const char *yes, bool *ret, struct err *e)
{
    *ret = strcmp(value, yes) == 0;
    return *ret || strcmp(value, no) == 0 ? 0 : err_set(e, EINVAL, STEP_USAGE, "%s must be %s or %s", name, no, yes);
}

static int set_value(struct config_template *t, const struct key *key, const char *name, const char *value,
                     struct err *e)
{
    char *to = (char *)t + key->offset;
    int r = 0;

    if (key->kind == TEMPLATE_POOL) {
        t->pool = 0;
        t->no_zygote = strcmp(value, "off") == 0;
        return t->no_zygote || strcmp(value, "0") == 0 ? 0 : parse_count(name, value, 1, CONFIG_POOL, &t->pool, e);
    }
    if (key->kind == TEMPLATE_SIZE)
        return parse_size(name, value, UINT64_C(1) << 20, &t->requests.memory_bytes, e);
    if (key->kind == TEMPLATE_CPUS)
        return parse_cpus(name, value, &t->requests.cpu_milli, e);
    if (key->kind == TEMPLATE_PACKAGES)
        return set_packages(name, value, to, key->size, e);
    if (key->kind == TEMPLATE_WORD)
        return to == (char *)&t->zygote_late ? set_word(name, value, "early", "late", &t->zygote_late, e)
                                             : set_word(name, value, "signal", "message", &t->interrupt_by_message, e);
    if (key->kind == TEMPLATE_COMMAND)
        r = !value[0] || strstr(value, "{connection_file}")
                ? 0
                : err_set(e, EINVAL, STEP_USAGE, "%s needs the word {connection_file}, as a kernelspec's argv has it",
                          name);
    else if (key->kind == TEMPLATE_LANGUAGE)
        r = value[0] && strspn(value, language_letters) == strlen(value)
                ? 0
                : err_set(e, EINVAL, STEP_USAGE, "%s '%s' is not the name of a language; write for example bash", name,
                          parse_quote(value).text);
    else if (key->kind == TEMPLATE_PYTHON)
        r = strchr(value, '/') ? config_check_path(name, value, e) : config_check_name(name, value, e);
    else if (key->kind == TEMPLATE_VOLUMES)
        r = check_volumes(name, value, e);
    else if (key->kind == TEMPLATE_KEYS)
        r = check_keys(name, value, e);
    else if (key->kind == TEMPLATE_SECRETS)
        r = config_check_pairs(name, value, "hf=HF_TOKEN cert=" BOX_SECRETS "/cert", e);
    else if (key->kind == TEMPLATE_NETWORK)
        r = strcmp(value, "public") == 0 || !value[0] ? 0 : config_check_name(name, value, e);
    else if (key->kind == TEMPLATE_PATH)
        r = value[0] || to == t->startup ? config_check_path(name, value[0] ? value : "/", e)
                                         : err_set(e, EINVAL, STEP_USAGE, "%s is empty", name);
    else
        r = key->kind == TEMPLATE_PATHS ? check_paths(name, value, e) : check_modules(name, value, e);
    if (r == 0 && strlen(value) >= key->size)
        r = err_set(e, EINVAL, STEP_USAGE, "%s is too long; the most is %zu bytes", name, key->size - 1);
    if (r == 0)
        snprintf(to, key->size, "%s", value);
    return r;
}

static void add(struct config *c, const char *name)
{
    struct config_template *t = &c->template[c->n_templates++];

    *t = (struct config_template){ .pool = POOL_DEFAULT };
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(t->language, sizeof t->language, "python");
    snprintf(t->imports, sizeof t->imports, "%s", imports_default);
}

int config_template_set(struct config *c, const char *key, const char *value, struct err *e)
{
    char name[sizeof c->template[0].name];
    const char *last;

    if (split(key, name, sizeof name, &last) < 0)
        return err_set(e, EINVAL, STEP_USAGE, "templates needs a name and a key, as in templates.NAME.python=/path");
    const struct key *found = find_key(last);
    if (!found)
        return err_set(e, EINVAL, STEP_USAGE, "unknown setting '%s'; a template has python, packages, imports, "
                       "startup, layers, pool, zygote, kernel, interrupt, language, net, volumes, secrets, keys, "
                       "request_memory and request_cpus", parse_quote(key).text);
    int r = config_check_name(prefix, name, e);
    uint32_t number = r < 0 ? 0 : config_template_find(c, name);
    if (r == 0 && number == 0) {
        if (c->n_templates == CONFIG_TEMPLATES)
            return err_set(e, EINVAL, STEP_USAGE, "templates: there are more than %d", CONFIG_TEMPLATES);
        add(c, name);
        number = c->n_templates;
    }
    return r < 0 ? r : set_value(&c->template[number - 1], found, key, value, e);
}

void config_template_defaults(struct config *c)
{
    add(c, "python");
}

int config_template_fill(struct config *c, const char *python, struct err *e)
{
    char name[96], path[CONFIG_PYTHON_PATH];

    for (uint32_t i = 0; i < c->n_templates; i++) {
        struct config_template *t = &c->template[i];
        if (t->python[0] == '/')
            continue;
        if (t->python[0]) {
            uint32_t number = config_python_find(c, t->python);
            snprintf(name, sizeof name, "%s.%s.python", prefix, t->name);
            if (!number)
                return config_python_refuse(c, name, t->python, e);
            snprintf(t->python, sizeof t->python, "%s", config_python_path(c, number, path));
            continue;
        }
        snprintf(t->python, sizeof t->python, "%s", python);
        t->python_is_default = true;
    }
    return 0;
}

const struct config_template *config_template(const struct config *c, uint32_t number)
{
    return number > 0 && number <= c->n_templates ? &c->template[number - 1] : NULL;
}

bool config_awaits_setup(const struct config *c, uint32_t number, const struct err *failure)
{
    const struct config_template *t = config_template(c, number ? number : 1);

    return t && t->python_is_default && failure->code == ENOENT && failure->step == STEP_EXEC;
}

const char *config_template_path(const struct config *c, uint32_t number, char room[CONFIG_PATH_SIZE])
{
    const struct config_template *t = config_template(c, number);
    int length = t ? (int)(strrchr(t->python, '/') - t->python) : 0;
    bool is_usual = length == 0 || strncmp(t->python, "/usr/bin/", (size_t)length + 1) == 0;

    snprintf(room, CONFIG_PATH_SIZE, BOX_FIRST ":%.*s%s" BOX_LAST_PATH, is_usual ? 0 : length, t ? t->python : "",
             is_usual ? "" : ":");
    return room;
}

uint32_t config_template_find(const struct config *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_templates; i++)
        if (strcmp(c->template[i].name, name) == 0)
            return i + 1;
    return 0;
}
