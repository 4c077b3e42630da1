/* Messages of a worker. It runs its author's code and may send anything: a message is one JSON object of a bounded size
 * (guest_link.c checks that); its kind and its members are checked here. An invalid message ends the worker; one about
 * a call that does not exist (any more) is dropped. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonout.h"
#include "base/list.h"
#include "front/front.h"
#include "front/services/service_private.h"

enum { DESCRIPTION_MOST = 4 << 20, FUNCTIONS_MOST = 1024, CLOSE_PATIENCE_MS = 1000, PRINT_PIECE = 16 << 10 };

static struct service_private *private_of(struct guest_link *l)
{
    return container_of(l, struct service_private, link);
}

void service_say(struct service *s, const char *text)
{
    size_t size = strlen(text);
    struct guest_message *m = guest_message_new(0, size);

    if (!m)
        return;
    memcpy(m->data, text, size);
    int r = guest_link_send(&s->private->link, m);
    if (r == -EDQUOT)
        service_condemn(s, OUTCOME_ERROR, "the server keeps as much for its owner as it may (quota.buffers)");
    else if (r < 0)
        service_condemn(s, OUTCOME_ERROR, "the worker was ended because it does not read its messages");
    guest_message_unref(m);
}

void service_say_cancel(struct service *s, unsigned long long id)
{
    char text[96];

    snprintf(text, sizeof text, "{\"" SERVICE_KEY_TYPE "\":\"%s\",\"" SERVICE_KEY_ID "\":%llu}",
             service_message_name(SERVICE_CANCEL), id);
    service_say(s, text);
}

/* ---- its functions ---- */

static bool is_identifier(const char *name)
{
    size_t n = strlen(name);

    /* Letters beyond ASCII are allowed, as in Python; it must only be one word. */
    if (n == 0 || n > 127 || (name[0] >= '0' && name[0] <= '9'))
        return false;
    for (const char *c = name; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || *c == '_' ||
              (unsigned char)*c >= 0x80))
            return false;
    return true;
}

/* The form in the API: the required members and the known ones, no others. NULL: a member is missing or wrong. */
static json_t *take_function(json_t *one, const json_t *seen)
{
    static const char *const texts[] = { "name", "doc", "signature" };
    const char *name = json_string_value(json_object_get(one, "name"));
    json_t *schema = json_object_get(one, "input_schema"), *output = json_object_get(one, "output_schema");
    json_t *f = json_object();
    size_t i;
    json_t *other;

    bool good = name && is_identifier(name) && json_is_object(schema) && f;
    json_array_foreach(seen, i, other)
        good = good && strcmp(json_string_value(json_object_get(other, "name")), name) != 0;
    for (i = 0; i < 3 && good; i++)
        good = json_is_string(json_object_get(one, texts[i])) &&
               json_object_set(f, texts[i], json_object_get(one, texts[i])) == 0;
    if (good)
        good = json_object_set_new(f, "async", json_boolean(json_is_true(json_object_get(one, "async")))) == 0 &&
               json_object_set(f, "input_schema", schema) == 0 &&
               (!json_is_object(output) || json_object_set(f, "output_schema", output) == 0);
    if (good)
        return f;
    json_decref(f);
    return NULL;
}

/* Its description of its functions is kept, and the tree may take a hundred times its size. */
static void on_loaded(struct service *s, const struct guest_message *m)
{
    if (s->state != SERVICE_LOADING)
        return;
    bool may = m->size <= DESCRIPTION_MOST && service_keep(s, jsonscan_weight(m->data, m->size));
    json_t *root = may ? json_loadb(m->data, m->size, 0, NULL) : NULL;
    json_t *list = json_object_get(root, SERVICE_KEY_FUNCTIONS), *one, *functions = json_array();
    size_t i;

    bool good = json_is_array(list) && json_array_size(list) >= 1 && json_array_size(list) <= FUNCTIONS_MOST;
    json_array_foreach(list, i, one) {
        json_t *f = good ? take_function(one, functions) : NULL;
        good = f && json_array_append_new(functions, f) == 0;
    }
    json_decref(root);
    if (!good) {
        json_decref(functions);
        service_condemn(s, OUTCOME_ERROR,
                        may ? "the worker was ended because it described its functions wrongly"
                            : "the worker was ended because its description is more than may be kept (quota.buffers)");
        return;
    }
    bool is_news = !json_equal(s->functions, functions);
    json_decref(s->functions);
    s->functions = functions;
    if (is_news)
        service_save(s);
    json_decref(s->error);
    s->error = NULL;
    loop_timer_cancel(s->front->loop, &s->private->load_timer);
    service_set_state(s, SERVICE_READY);
}

/* It could not be loaded, and sends the reason. It exits by itself. */
static void on_failed(struct service *s, const struct guest_message *m)
{
    /* Texts, of a few kilobytes. */
    bool may = m->size <= DESCRIPTION_MOST && jsonscan_weight(m->data, m->size) <= 2 * DESCRIPTION_MOST;
    json_t *root = may ? json_loadb(m->data, m->size, 0, NULL) : NULL;
    json_t *error = json_object_get(root, SERVICE_KEY_FAILURE);

    if (s->state == SERVICE_LOADING && json_is_object(error) && json_is_string(json_object_get(error, "type")) &&
        json_is_string(json_object_get(error, "message"))) {
        json_decref(s->error);
        s->error = json_incref(error);
    }
    json_decref(root);
}

/* ---- its prints and answers ---- */

static void print(struct service *s, struct service_call *c, enum service_stream which, struct jsonslice text)
{
    const char *stream = service_stream_name(which);

    if (c && c->options.on_print && !c->private->is_over)
        c->options.on_print(c, stream, text);
    else if (!c && s->state == SERVICE_LOADING)
        service_tell_print(s, stream, text);
}

/* SERVICE_MESSAGES: an unknown word. */
static enum service_message kind_of(struct jsonslice type)
{
    unsigned i = 0;

    while (i < SERVICE_MESSAGES && !jsonscan_is(type, service_message_name((enum service_message)i)))
        i++;
    return (enum service_message)i;
}

/* An answer to an existing or earlier call. */
static const char *take_answer(struct service_call *c, enum service_message kind, struct guest_message *m,
                               struct jsonslice value)
{
    bool is_refusal = kind == SERVICE_INVALID;

    if (!value.data || (kind != SERVICE_RESULT && value.data[0] != '{'))
        return "an answer without a value";
    if (!c || !(c->private->sent || (is_refusal && c->private->checked)))
        return NULL;
    if (kind == SERVICE_ERROR)
        service_call_fail(c, m, value);
    else
        service_call_finish(c, is_refusal ? CALL_INVALID : CALL_OK, value);
    return NULL;
}

static const char *take_message(struct service *s, struct guest_message *m)
{
    struct jsonslice text = { m->data, m->size }, type = { 0 }, id = { 0 }, value = { 0 }, stream = { 0 };
    unsigned long long number = 0;

    for (struct jsonwalk w = jsonscan_walk(text); jsonscan_next(&w);) {
        if (jsonscan_is(w.key, SERVICE_KEY_TYPE))
            type = w.value;
        else if (jsonscan_is(w.key, SERVICE_KEY_ID))
            id = w.value;
        else if (jsonscan_is(w.key, SERVICE_KEY_STREAM))
            stream = w.value;
        else if (jsonscan_is(w.key, SERVICE_KEY_VALUE))
            value = w.value;
    }
    if (id.data && !jsonscan_number(id, &number))
        return "a message with a wrong id";
    struct service_call *c = number ? service_call_by_id(s, number) : NULL;
    enum service_message kind = kind_of(type);
    bool is_error = jsonscan_is(stream, service_stream_name(SERVICE_STDERR));
    switch (kind) {
    case SERVICE_PRINT:
        if (!jsonscan_inside(value).data)
            return "a print without a text";
        if (!number || c)
            print(s, c, is_error ? SERVICE_STDERR : SERVICE_STDOUT, value);
        return NULL;
    case SERVICE_STARTED:
        s->private->started = true;
        return NULL;
    case SERVICE_LOADED:
        on_loaded(s, m);
        return NULL;
    case SERVICE_FAILED:
        on_failed(s, m);
        return NULL;
    case SERVICE_RESULT:
    case SERVICE_ERROR:
    case SERVICE_INVALID:
        return take_answer(c, kind, m, value);
    default:
        return "a message of an unknown kind";
    }
}

static void on_message(struct guest_link *l, struct guest_message *m)
{
    struct service *s = private_of(l)->service;

    if (s->private->gone || s->private->end_outcome)
        return;         /* messages of a worker that is being ended are ignored */
    const char *wrong = take_message(s, m);
    if (wrong) {
        char text[160];
        snprintf(text, sizeof text, "the worker was ended because it sent %s", wrong);
        front_log("warning", text, "service", s->name, "box", s->box->id, NULL);
        service_condemn(s, OUTCOME_ERROR, text);
    }
}

static void on_broken(struct guest_link *l, enum outcome outcome, const char *why)
{
    struct service_private *p = private_of(l);
    char text[160];

    if (!outcome) {         /* most often it has just exited */
        loop_timer_set(l->loop, &p->close_timer, CLOSE_PATIENCE_MS);
        return;
    }
    snprintf(text, sizeof text, "the worker was ended because it sent %s", why);
    front_log("warning", text, "service", p->service->name, "box", p->service->box->id, NULL);
    service_condemn(p->service, outcome, text);
}

static void on_close_timer(struct loop_timer *t)
{
    struct service_private *p = container_of(t, struct service_private, close_timer);

    service_condemn(p->service, OUTCOME_ERROR, "the worker was ended because it closed its link");
}

/* After the timeout the loading is interrupted, so that the traceback shows where it was; then the worker is ended. */
static void on_load_timer(struct loop_timer *t)
{
    struct service_private *p = container_of(t, struct service_private, load_timer);

    if (p->load_cancelled) {
        service_condemn(p->service, OUTCOME_TIMEOUT,
                        p->started ? "the interface took too long to load" : "the interpreter took too long to start");
        return;
    }
    p->load_cancelled = true;
    service_say_cancel(p->service, SERVICE_NO_CALL);
    loop_timer_set(p->service->front->loop, t, 3000);
}

static const char *check_message(struct guest_message *m)
{
    return jsonscan_is_object(m->data, m->size) ? NULL : "a message that is no JSON object";
}

static const struct guest_link_owner link_owner = {
    .least = SERVICE_MESSAGE_LEAST, .check = check_message, .on_message = on_message, .on_broken = on_broken
};

void service_link_init(struct service *s)
{
    struct service_private *p = s->private;

    guest_link_init(&p->link, s->front->loop, &link_owner);
    p->close_timer.on_expire = on_close_timer;
    p->load_timer.on_expire = on_load_timer;
}

/* ---- output that bypasses the interpreter: of C code and child processes ---- */

static void keep_tail(struct service_private *p, const char *data, size_t size)
{
    size_t n = size < sizeof p->tail ? size : sizeof p->tail;

    if (p->tail_size + n > sizeof p->tail) {
        size_t drop = p->tail_size + n - sizeof p->tail;
        memmove(p->tail, p->tail + drop, p->tail_size - drop);
        p->tail_size -= drop;
    }
    memcpy(p->tail + p->tail_size, data + size - n, n);
    p->tail_size += n;
}

void service_on_output(struct exec *x, unsigned stream, const char *data, size_t size)
{
    struct service *s = x->owned_by;
    struct buf text;
    struct jsonout j;

    if (!s || s->private->gone)
        return;
    if (stream == 1)
        keep_tail(s->private, data, size);
    for (size_t at = 0, n; at < size; at += n) {
        n = size - at < PRINT_PIECE ? size - at : PRINT_PIECE;
        while (at + n < size && n > 1 && (data[at + n] & 0xc0) == 0x80)
            n--;
        buf_init(&text, PRINT_PIECE * 6 + 16);
        jsonout_init(&j, &text);
        jsonout_bytes(&j, NULL, data + at, n);
        if (jsonout_finish(&j) == 0)
            print(s, s->private->running, stream ? SERVICE_STDERR : SERVICE_STDOUT,
                  (struct jsonslice){ text.data, text.length });
        buf_done(&text);
        if (s->private->gone)
            return;
    }
}
