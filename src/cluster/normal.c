/* A normal form of JSON, so that a hash shows whether two objects mean the same: members are sorted, empty ones are
 * left out, quantities are in one unit. The API server and other controllers write the same Pod spec in several
 * ways. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cluster/extension.h"

struct member {
    struct jsonslice key, value;
};

static int compare_members(const void *a, const void *b)
{
    const struct member *x = a, *y = b;
    size_t least = x->key.size < y->key.size ? x->key.size : y->key.size;
    int r = memcmp(x->key.data, y->key.data, least);

    return r ? r : (x->key.size > y->key.size) - (x->key.size < y->key.size);
}

/* ---- quantities: "1Gi", "0.5", "1e3" in thousandths ---- */

static long double unit_of(const char *suffix)
{
    static const struct { const char *suffix; long double factor; } units[] = {
        { "", 1 }, { "n", 1e-9L }, { "u", 1e-6L }, { "m", 1e-3L }, { "k", 1e3L }, { "M", 1e6L }, { "G", 1e9L },
        { "T", 1e12L }, { "P", 1e15L }, { "E", 1e18L }, { "Ki", 1024.0L }, { "Mi", 1048576.0L },
        { "Gi", 1073741824.0L }, { "Ti", 1099511627776.0L }, { "Pi", 1125899906842624.0L },
        { "Ei", 1152921504606846976.0L } };

    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(suffix, units[i].suffix) == 0)
            return units[i].factor;
    return 0;
}

/* False: it is no quantity; out is unchanged. */
static bool write_quantity(struct jsonslice value, struct buf *out)
{
    char text[64], *end;
    struct jsonslice inside = jsonscan_inside(value), bare = inside.data ? inside : value;

    if (bare.size == 0 || bare.size >= sizeof text)
        return false;
    memcpy(text, bare.data, bare.size);
    text[bare.size] = '\0';
    long double number = strtold(text, &end);
    long double factor = end > text ? unit_of(end) : 0;
    if (factor == 0)
        return false;
    buf_printf(out, "\"%.0Lf\"", number * factor * 1e9L);
    return true;
}

/* ---- values ---- */

static void write_value(struct jsonslice value, enum normal_form form, const char *within, struct buf *out);

static bool is_empty(struct jsonslice v, enum normal_form form)
{
    if (v.size == 4 && memcmp(v.data, "null", 4) == 0)
        return true;
    struct jsonwalk w = jsonscan_walk(v);
    bool is_object = *v.data == '{';
    if ((!is_object && *v.data != '[') || (is_object && form == NORMAL_RULES))
        return false;
    while (jsonscan_next(&w))
        if (!is_empty(w.value, form) || !is_object)
            return false;
    return true;
}

static void write_object(struct jsonslice value, enum normal_form form, const char *within, struct buf *out)
{
    size_t n = 0, most = 0, written = 0;
    struct jsonwalk w = jsonscan_walk(value);
    bool is_port = form == NORMAL_RULES && strcmp(within, "ports") == 0 && !jsonscan_find(value, "protocol").data;
    bool counts = strcmp(within, "limits") == 0 || strcmp(within, "requests") == 0;

    while (jsonscan_next(&w))
        most++;
    struct member *all = calloc(most + 1, sizeof *all);
    if (!all) {
        out->failure = out->failure ? out->failure : ENOMEM;
        return;
    }
    for (w = jsonscan_walk(value); jsonscan_next(&w);)
        if (!is_empty(w.value, form))
            all[n++] = (struct member){ w.key, w.value };
    if (n > 1)
        qsort(all, n, sizeof *all, compare_members);
    buf_add_char(out, '{');
    for (size_t i = 0; i < n; i++) {
        char key[64];
        if (written++ > 0)
            buf_add_char(out, ',');
        buf_add(out, all[i].key.data, all[i].key.size);
        buf_add_char(out, ':');
        if (!jsonscan_text(all[i].key, key, sizeof key))
            key[0] = '\0';
        if (!(counts || strcmp(key, "sizeLimit") == 0) || !write_quantity(all[i].value, out))
            write_value(all[i].value, form, key, out);
    }
    if (is_port)
        buf_printf(out, "%s\"protocol\":\"TCP\"", written ? "," : "");
    buf_add_char(out, '}');
    free(all);
}

static void write_value(struct jsonslice value, enum normal_form form, const char *within, struct buf *out)
{
    struct jsonwalk w = jsonscan_walk(value);
    size_t n = 0;

    if (*value.data == '{') {
        write_object(value, form, within, out);
    } else if (*value.data == '[') {
        buf_add_char(out, '[');
        while (jsonscan_next(&w)) {
            if (n++ > 0)
                buf_add_char(out, ',');
            write_value(w.value, form, within, out);
        }
        buf_add_char(out, ']');
    } else {
        buf_add(out, value.data, value.size);
    }
}

void normal_write(struct jsonslice value, enum normal_form form, struct buf *out)
{
    if (value.data)
        write_value(value, form, "", out);
}

uint64_t normal_hash(struct jsonslice value, enum normal_form form)
{
    struct buf text;

    buf_init(&text, 8 << 20);
    normal_write(value, form, &text);
    uint64_t hash = hash_bytes(HASH_SEED, buf_string(&text), text.length);
    buf_done(&text);
    return hash;
}

uint64_t blueprint_hash(struct jsonslice pod_spec, struct jsonslice claim_templates, uint8_t service)
{
    struct jsonwalk w = jsonscan_walk(claim_templates);
    struct buf text;

    buf_init(&text, 8 << 20);
    normal_write(pod_spec, NORMAL_POD, &text);
    while (jsonscan_next(&w)) {
        struct jsonslice name = jsonscan_find(jsonscan_find(w.value, "metadata"), "name");
        buf_add_char(&text, ' ');
        buf_add(&text, name.data, name.size);
        normal_write(jsonscan_find(w.value, "spec"), NORMAL_POD, &text);
    }
    buf_printf(&text, " %u", service);
    uint64_t hash = hash_bytes(HASH_SEED, buf_string(&text), text.length);
    buf_done(&text);
    return hash ? hash : 1;
}
