/* The request's body, for the handlers of this door. */
#include "doors/native/door.h"
#include "front/request/body.h"

/* While a slow body arrived, its box or exec may have been forgotten. */
static void on_json(void *owner, json_t *root)
{
    struct ask *a = owner;

    if (ask_find_again(a))
        a->on_json(a, root);
}

static void on_text(void *owner, const char *data, size_t size)
{
    struct ask *a = owner;

    if (ask_find_again(a))
        a->on_raw(a, data, size);
}

static void on_fail(void *owner, int status, const char *code, const char *why)
{
    error_reply(((struct ask *)owner)->r, status, code, why, NULL);
}

void body_json(struct ask *a, size_t max, void (*handler)(struct ask *a, json_t *root))
{
    static const struct body_reader reader = { .on_json = on_json, .on_fail = on_fail };

    a->on_json = handler;
    body_read(a->r, max, &reader);
}

void body_raw(struct ask *a, size_t max, void (*handler)(struct ask *a, const char *data, size_t size))
{
    static const struct body_reader reader = { .on_text = on_text, .on_fail = on_fail };

    a->on_raw = handler;
    body_read(a->r, max, &reader);
}
