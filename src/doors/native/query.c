/* Parameters of the query, and the JSON form that the client wants. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "base/parse.h"
#include "doors/native/door.h"

/* 1: present. 0: absent. -1: malformed, and answered. */
static int get(struct ask *a, const char *name, struct http_text *ret)
{
    int r = http_query_get(&a->r->arena, a->r->head.query, name, ret);

    if (r == 0)
        return 1;
    if (r == -ENOENT)
        return 0;
    reply_fail(a, 400, "invalid", "?%s= cannot be decoded", name);
    return -1;
}

bool query_bool(struct ask *a, const char *name, bool *ret)
{
    struct http_text t;
    int r = get(a, name, &t);

    if (r <= 0)
        return r == 0;
    if (http_text_is(t, "true") || http_text_is(t, "1") || t.size == 0) {
        *ret = true;
    } else if (http_text_is(t, "false") || http_text_is(t, "0")) {
        *ret = false;
    } else {
        reply_fail(a, 400, "invalid", "?%s= must be true or false, not '%s'", name, parse_quote(t.data).text);
        return false;
    }
    return true;
}

bool query_number(struct ask *a, const char *name, uint64_t most, uint64_t *ret)
{
    struct http_text t;
    uint64_t value = 0;
    int r = get(a, name, &t);

    if (r <= 0)
        return r == 0;
    bool good = t.size > 0 && t.size <= 19;
    for (size_t i = 0; good && i < t.size; i++) {
        good = t.data[i] >= '0' && t.data[i] <= '9';
        value = value * 10 + (uint64_t)(t.data[i] - '0');
    }
    if (!good || value > most) {
        reply_fail(a, 400, "invalid", "?%s= must be a whole number up to %llu, not '%s'", name,
                   (unsigned long long)most, parse_quote(t.data).text);
        return false;
    }
    *ret = value;
    return true;
}

bool query_text(struct ask *a, const char *name, const char **ret)
{
    struct http_text t;
    int r = get(a, name, &t);

    if (r > 0)
        *ret = t.data;
    return r >= 0;
}

bool query_only(struct ask *a, const char *const *names)
{
    struct http_text query = a->r->head.query, raw, value, name;

    while (query.data && http_query_next(&query, &raw, &value)) {
        bool known = false;
        if (http_unescape(&a->r->arena, raw, true, &name) < 0) {
            reply_fail(a, 400, "invalid", "the query cannot be decoded");
            return false;
        }
        for (const char *const *n = names; *n && !known; n++)
            known = http_text_is(name, *n);
        if (!known && !http_text_is(name, "token")) {
            reply_fail(a, 400, "invalid", "there is no parameter '%s' here", parse_quote(name.data).text);
            return false;
        }
    }
    return true;
}

bool ask_accepts(const struct ask *a, const char *type)
{
    struct http_text list = http_head_get(&a->r->head, "Accept"), one;

    while (list.data && http_list_next(&list, &one)) {
        const char *end = memchr(one.data, ';', one.size);
        if (end)
            one.size = (size_t)(end - one.data);
        if (http_text_is_nocase(http_text_trim(one), type))
            return true;
    }
    return false;
}
