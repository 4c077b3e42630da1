/* A head is taken line by line: memchr finds the LF, the line before it is checked byte by byte against a table and
 * recorded as offsets, so that the caller's buffer may move while bytes still arrive. Rules about the head as a whole
 * (Host, framing, the target's form) are checked at the empty line. Chunked bodies are in chunked.c.
 *
 * Strictness is the point: each rule here closes a known way to make two programs see different messages in the same
 * bytes (request smuggling) or different files in the same path. */
#include "http/parse.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "http/chars.h"

/* Room for method, version and spaces in the first line besides the target. */
#define FIRST_LINE_MAX (HTTP_TARGET_MAX_BYTES + HTTP_METHOD_MAX_BYTES + 16)

const uint8_t http_chars[256] = {
    ['\t'] = CHAR_VALUE, [' '] = CHAR_VALUE,
    ['!'] = CHAR_TOKEN | CHAR_VALUE | CHAR_TARGET | CHAR_HOST,
    ['"'] = CHAR_VALUE, ['#'] = CHAR_TOKEN | CHAR_VALUE,
    ['$' ... '\''] = CHAR_TOKEN | CHAR_VALUE | CHAR_TARGET | CHAR_HOST,     /* $ % & ' */
    ['('] = CHAR_VALUE | CHAR_TARGET | CHAR_HOST, [')'] = CHAR_VALUE | CHAR_TARGET | CHAR_HOST,
    ['*'] = CHAR_TOKEN | CHAR_VALUE | CHAR_TARGET | CHAR_HOST,
    ['+'] = CHAR_TOKEN | CHAR_VALUE | CHAR_TARGET | CHAR_HOST,
    [','] = CHAR_VALUE | CHAR_TARGET | CHAR_HOST,
    ['-'] = CHAR_TOKEN | CHAR_VALUE | CHAR_TARGET | CHAR_HOST,
    ['.'] = CHAR_TOKEN | CHAR_VALUE | CHAR_TARGET | CHAR_HOST,
    ['/'] = CHAR_VALUE | CHAR_TARGET,
    ['0' ... '9'] = CHAR_TOKEN | CHAR_VALUE | CHAR_TARGET | CHAR_HOST,
    [':'] = CHAR_VALUE | CHAR_TARGET,
    [';'] = CHAR_VALUE | CHAR_TARGET | CHAR_HOST,
    ['<'] = CHAR_VALUE,
    ['='] = CHAR_VALUE | CHAR_TARGET | CHAR_HOST,
    ['>'] = CHAR_VALUE,
    ['?'] = CHAR_VALUE | CHAR_TARGET, ['@'] = CHAR_VALUE | CHAR_TARGET,
    ['A' ... 'Z'] = CHAR_TOKEN | CHAR_VALUE | CHAR_TARGET | CHAR_HOST,
    ['['] = CHAR_VALUE | CHAR_TARGET, [']'] = CHAR_VALUE | CHAR_TARGET,
    ['\\'] = CHAR_VALUE | CHAR_TARGET,      /* browsers leave it alone in a query; http_path_check() refuses it */
    ['^'] = CHAR_TOKEN | CHAR_VALUE | CHAR_TARGET,
    ['_'] = CHAR_TOKEN | CHAR_VALUE | CHAR_TARGET | CHAR_HOST,
    ['`'] = CHAR_TOKEN | CHAR_VALUE | CHAR_TARGET,
    ['a' ... 'z'] = CHAR_TOKEN | CHAR_VALUE | CHAR_TARGET | CHAR_HOST,
    ['{'] = CHAR_VALUE | CHAR_TARGET, ['}'] = CHAR_VALUE | CHAR_TARGET,
    ['|'] = CHAR_TOKEN | CHAR_VALUE | CHAR_TARGET,
    ['~'] = CHAR_TOKEN | CHAR_VALUE | CHAR_TARGET | CHAR_HOST,
    [0x80 ... 0xff] = CHAR_VALUE,
};

/* ---- fields ---- */

static int refuse(struct http_head *h, enum http_fault f)
{
    h->fault = f;
    return -EBADMSG;
}

static int take_length(struct http_head *h, struct http_text v)
{
    if (h->n_lengths++)
        return refuse(h, HTTP_MANY_LENGTHS);
    if (!v.size || v.size > 18)     /* 18 digits fit an int64_t; "+1", "1, 1" and "0x1" are not digits */
        return refuse(h, HTTP_BAD_LENGTH);
    int64_t length = 0;
    for (size_t i = 0; i < v.size; i++) {
        if (v.data[i] < '0' || v.data[i] > '9')
            return refuse(h, HTTP_BAD_LENGTH);
        length = length * 10 + (v.data[i] - '0');
    }
    h->length = length;
    return 0;
}

/* A name, an address or a bracketed IPv6 address, and perhaps a port. */
static bool is_authority(struct http_text v)
{
    size_t i = 0;
    if (v.size && v.data[0] == '[') {
        while (++i < v.size && v.data[i] != ']')
            if (!char_is_hex(v.data[i]) && v.data[i] != ':' && v.data[i] != '.')
                return false;
        if (i++ == v.size)
            return false;
    } else {
        while (i < v.size && char_is(v.data[i], CHAR_HOST))
            i++;
    }
    if (i == 0 || (i < v.size && v.data[i++] != ':'))
        return false;
    for (; i < v.size; i++)
        if (v.data[i] < '0' || v.data[i] > '9')
            return false;
    return true;
}

static int take_host(struct http_head *h, struct http_text v)
{
    if (h->is_response)
        return 0;
    if (h->n_hosts++)
        return refuse(h, HTTP_MANY_HOSTS);
    if (!is_authority(v))
        return refuse(h, HTTP_BAD_HOST);
    h->host_at = (uint16_t)(v.data - h->base);
    h->host_size = (uint16_t)v.size;
    return 0;
}

/* raw is the value with the space around it. A tab beside a value that frames the body is legal, but some programs
 * overlook such a field. */
static int take_special_field(struct http_head *h, struct http_text n, struct http_text raw, struct http_text v)
{
    bool has_tab = memchr(raw.data, '\t', raw.size) != NULL;
    switch (n.size) {
    case 4:
        return http_text_is_nocase(n, "host") ? take_host(h, v) : 0;
    case 6:
        if (!h->is_response && http_text_is_nocase(n, "expect")) {
            if (!http_text_is_nocase(v, "100-continue"))
                return refuse(h, HTTP_OTHER_EXPECTATION);
            h->wants_continue = true;
        }
        return 0;
    case 10:
        if (http_text_is_nocase(n, "connection")) {
            if (http_list_has(v, "close"))
                h->keep_alive = false;
            if (http_list_has(v, "upgrade"))
                h->wants_upgrade = true;
        }
        return 0;
    case 14:
        if (!http_text_is_nocase(n, "content-length"))
            return 0;
        return has_tab ? refuse(h, HTTP_BAD_LENGTH) : take_length(h, v);
    case 17:
        if (http_text_is_nocase(n, "transfer-encoding")) {
            if (h->n_codings++)
                return refuse(h, HTTP_MANY_CODINGS);
            if (!http_text_is_nocase(v, "chunked") || has_tab)
                return refuse(h, HTTP_OTHER_CODING);
            h->chunked = true;
        }
        return 0;
    default:
        return 0;
    }
}

static int take_field(struct http_head *h, const char *line, size_t size)
{
    if (line[0] == ' ' || line[0] == '\t')
        return refuse(h, HTTP_FOLDED_FIELD);
    if (h->n_fields == HTTP_FIELDS_MAX)
        return refuse(h, HTTP_MANY_FIELDS);
    size_t i = 0;
    while (i < size && char_is(line[i], CHAR_TOKEN))
        i++;
    if (i == 0 || i == size || line[i] != ':') {
        char stop = i < size ? line[i] : 0;
        return refuse(h, stop == '\r' ? HTTP_BARE_CR
                       : i > 0 && (stop == ' ' || stop == '\t') ? HTTP_SPACE_BEFORE_COLON : HTTP_BAD_NAME);
    }
    struct http_text name = { line, i }, value = { line + i + 1, size - i - 1 };
    for (size_t j = 0; j < value.size; j++)
        if (!char_is(value.data[j], CHAR_VALUE))
            return refuse(h, value.data[j] == '\r' ? HTTP_BARE_CR : HTTP_BAD_VALUE);
    struct http_text raw = value;
    value = http_text_trim(value);
    h->field[h->n_fields++] = (struct http_field){
        .name = (uint16_t)(name.data - h->base), .name_size = (uint16_t)name.size,
        .value = (uint16_t)(value.data - h->base), .value_size = (uint16_t)value.size,
    };
    return take_special_field(h, name, raw, value);
}

/* ---- first lines ---- */

static int take_version(struct http_head *h, const char *v, size_t size)
{
    if (size != 8 || memcmp(v, "HTTP/", 5) != 0 || v[5] < '0' || v[5] > '9' || v[6] != '.' || v[7] < '0' || v[7] > '9')
        return refuse(h, HTTP_BAD_VERSION);
    if (v[5] != '1' || v[7] > '1')
        return refuse(h, HTTP_OTHER_VERSION);
    h->minor = (uint8_t)(v[7] - '0');
    h->keep_alive = h->minor == 1;
    return 0;
}

static int take_request_line(struct http_head *h, const char *line, size_t size)
{
    size_t i = 0;
    while (i < size && char_is(line[i], CHAR_TOKEN))
        i++;
    if (i == 0 || i > HTTP_METHOD_MAX_BYTES || i == size || line[i] != ' ')
        return refuse(h, HTTP_BAD_METHOD);
    h->first.name = (uint16_t)h->at;
    h->first.name_size = (uint16_t)i;
    const char *target = line + i + 1;
    size_t left = size - i - 1;
    for (i = 0; i < left && char_is(target[i], CHAR_TARGET); i++)
        ;
    if (i > HTTP_TARGET_MAX_BYTES)
        return refuse(h, HTTP_LONG_TARGET);
    if (i == 0 || i == left || target[i] != ' ')
        return refuse(h, HTTP_BAD_TARGET);
    h->first.value = (uint16_t)(target - h->base);
    h->first.value_size = (uint16_t)i;
    return take_version(h, target + i + 1, left - i - 1);
}

static int take_status_line(struct http_head *h, const char *line, size_t size)
{
    if (size < 12 || line[8] != ' ')
        return refuse(h, HTTP_BAD_STATUS);
    int r = take_version(h, line, 8);
    if (r < 0)
        return r;
    for (int i = 9; i < 12; i++) {
        if (line[i] < '0' || line[i] > '9')
            return refuse(h, HTTP_BAD_STATUS);
        h->status = h->status * 10 + (line[i] - '0');
    }
    if (h->status < 100 || h->status > 599)
        return refuse(h, HTTP_BAD_STATUS);
    if (size > 12 && line[12] != ' ')       /* the space before an empty reason is often forgotten */
        return refuse(h, HTTP_BAD_STATUS);
    struct http_text reason = { line + (size > 12 ? 13 : 12), size > 12 ? size - 13 : 0 };
    h->first.value = (uint16_t)(reason.data - h->base);
    h->first.value_size = (uint16_t)reason.size;
    return http_is_field_value(reason) ? 0 : refuse(h, HTTP_BAD_STATUS);
}

/* ---- the head as a whole ---- */

static int split_target(struct http_head *h)
{
    struct http_text t = h->target;
    if (http_text_is(h->method, "CONNECT"))
        return refuse(h, HTTP_NO_TUNNELS);
    if (http_text_is(t, "*")) {
        h->path = t;
        return http_text_is(h->method, "OPTIONS") ? 0 : refuse(h, HTTP_BAD_TARGET);
    }
    if (t.data[0] != '/') {
        size_t scheme = t.size > 7 && strncasecmp(t.data, "http://", 7) == 0 ? 7
                      : t.size > 8 && strncasecmp(t.data, "https://", 8) == 0 ? 8 : 0;
        if (!scheme)
            return refuse(h, HTTP_BAD_TARGET);
        size_t end = scheme;
        while (end < t.size && t.data[end] != '/' && t.data[end] != '?')
            end++;
        if (end == t.size || t.data[end] != '/')    /* a client must send "/" for an empty path */
            return refuse(h, HTTP_BAD_TARGET);
        struct http_text authority = { t.data + scheme, end - scheme };
        if (!is_authority(authority))
            return refuse(h, HTTP_BAD_TARGET);
        if (h->n_hosts && (authority.size != h->host.size ||
                           strncasecmp(authority.data, h->host.data, authority.size) != 0))
            return refuse(h, HTTP_OTHER_HOST);
        t = (struct http_text){ t.data + end, t.size - end };
    }
    const char *mark = memchr(t.data, '?', t.size);
    h->path = (struct http_text){ t.data, mark ? (size_t)(mark - t.data) : t.size };
    if (mark)
        h->query = (struct http_text){ mark + 1, t.size - h->path.size - 1 };
    enum http_fault f = http_path_check(h->path);
    return f == HTTP_OK ? 0 : refuse(h, f);
}

/* The buffer no longer moves: offsets become texts. */
static int judge(struct http_head *h)
{
    struct http_text value = { h->base + h->first.value, h->first.value_size };
    h->method = (struct http_text){ h->base + h->first.name, h->first.name_size };
    h->host = (struct http_text){ h->base + h->host_at, h->host_size };
    if (h->is_response)
        h->reason = value;
    else
        h->target = value;
    if (h->n_codings && h->n_lengths)
        return refuse(h, HTTP_LENGTH_AND_CODING);
    if (h->n_codings && h->minor == 0)      /* HTTP/1.0 has no chunks: the sender is lying or confused */
        return refuse(h, HTTP_OTHER_CODING);
    if (h->is_response)
        return 0;
    if (!h->n_hosts && h->minor == 1)
        return refuse(h, HTTP_NO_HOST);
    if (h->minor == 0)
        h->wants_continue = false;
    return split_target(h);
}

void http_head_init(struct http_head *h, bool is_response)
{
    memset(h, 0, offsetof(struct http_head, field));
    h->length = -1;
    h->is_response = is_response;
}

static int take_line(struct http_head *h, const char *line, size_t size)
{
    if (h->has_first_line)
        return take_field(h, line, size);
    const char *cr = memchr(line, '\r', size);
    if (cr)
        return refuse(h, HTTP_BARE_CR);
    h->has_first_line = true;
    h->start = h->at;
    return h->is_response ? take_status_line(h, line, size) : take_request_line(h, line, size);
}

ssize_t http_head_parse(struct http_head *h, const char *data, size_t size)
{
    h->base = data;
    if (h->fault)
        return -EBADMSG;
    size_t end = size < HTTP_HEAD_MAX_BYTES ? size : HTTP_HEAD_MAX_BYTES;
    while (h->scanned < end) {
        const char *lf = memchr(data + h->scanned, '\n', end - h->scanned);
        if (!lf) {
            h->scanned = (uint32_t)end;
            break;
        }
        size_t stop = (size_t)(lf - data);
        if (stop == h->at || data[stop - 1] != '\r')
            return refuse(h, HTTP_BARE_LF);
        size_t line = h->at, length = stop - 1 - line;
        int r = 0;
        if (length == 0 && h->has_first_line) {
            r = judge(h);
            return r < 0 ? r : (ssize_t)stop + 1;
        }
        if (length == 0 && line > 0)        /* one empty line before a request is tolerated, not two */
            return refuse(h, h->is_response ? HTTP_BAD_STATUS : HTTP_BAD_METHOD);
        if (length > 0)
            r = take_line(h, data + line, length);
        if (r < 0)
            return r;
        h->at = h->scanned = (uint32_t)stop + 1;
    }
    if (!h->has_first_line && !h->is_response && end - h->at > FIRST_LINE_MAX)
        return refuse(h, HTTP_LONG_TARGET);
    return end == HTTP_HEAD_MAX_BYTES ? refuse(h, HTTP_LONG_HEAD) : 0;
}

enum http_body http_head_response_body(const struct http_head *h, bool was_head)
{
    if (was_head || h->status < 200 || h->status == 204 || h->status == 304)
        return HTTP_BODY_NONE;
    if (h->chunked)
        return HTTP_BODY_CHUNKED;
    return h->length >= 0 ? HTTP_BODY_LENGTH : HTTP_BODY_UNTIL_CLOSE;
}

void http_head_field(const struct http_head *h, unsigned i, struct http_text *ret_name, struct http_text *ret_value)
{
    const struct http_field *f = &h->field[i];
    *ret_name = (struct http_text){ h->base + f->name, f->name_size };
    *ret_value = (struct http_text){ h->base + f->value, f->value_size };
}

struct http_text http_head_get(const struct http_head *h, const char *name)
{
    for (unsigned i = 0; i < h->n_fields; i++) {
        struct http_text n, v;
        http_head_field(h, i, &n, &v);
        if (http_text_is_nocase(n, name))
            return v;
    }
    return (struct http_text){ NULL, 0 };
}
