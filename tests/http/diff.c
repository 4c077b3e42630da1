/* Our request parser beside http-parser 2.9.4: mutated requests go through both. Where both take a message they must
 * see the same one: method, target, fields, body, end. Where they differ, the difference must be of a class that is
 * listed and explained here, and a check of its own must find the reason in the bytes. One unexplained difference
 * fails the test.
 *
 * usage: diff SECONDS [SEED] */
#include <ctype.h>
#include <http_parser.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "http/parse.h"
#include "mutate.h"

enum verdict { TAKEN, WAITS, REFUSED };

/* What one parser saw. */
struct view {
    enum verdict verdict;
    int why;                            /* our fault, or http-parser's errno */
    size_t end;                         /* of the message */
    char method[64];
    char text[2 * MESSAGE_MAX + 256];   /* "target\nname:value\n…" */
    size_t n_text;
    char body[MESSAGE_MAX];
    size_t n_body;
    enum { IN_TARGET, IN_NAME, IN_VALUE } last;
    bool is_upgrade;
};

static void add(struct view *v, const char *data, size_t size)
{
    memcpy(v->text + v->n_text, data, size);
    v->n_text += size;
}

/* ---- ours ---- */

static void look_ours(struct view *v, const char *data, size_t size)
{
    static struct http_head h;
    http_head_init(&h, false);
    v->n_text = v->n_body = 0;
    ssize_t n = http_head_parse(&h, data, size);
    v->verdict = n > 0 ? TAKEN : n == 0 ? WAITS : REFUSED;
    v->why = (int)h.fault;
    if (n <= 0)
        return;
    snprintf(v->method, sizeof v->method, "%.*s", HTTP_TEXT_FORMAT(h.method));
    add(v, h.target.data, h.target.size);
    for (unsigned i = 0; i < h.n_fields; i++) {
        struct http_text name, value;
        http_head_field(&h, i, &name, &value);
        add(v, "\n", 1);
        add(v, name.data, name.size);
        add(v, ":", 1);
        add(v, value.data, value.size);
    }
    size_t taken = 0;
    if (h.chunked) {
        struct http_chunked c = { 0 };
        int r = http_chunked_decode(&c, data + n, size - (size_t)n, v->body, sizeof v->body, &taken, &v->n_body);
        v->verdict = r < 0 ? REFUSED : r == 1 ? TAKEN : WAITS;
        v->why = (int)c.fault;
    } else if (h.length > 0) {
        size_t left = size - (size_t)n;
        taken = (uint64_t)h.length < left ? (size_t)h.length : left;
        memcpy(v->body, data + n, taken);
        v->n_body = taken;
        v->verdict = taken == (uint64_t)h.length ? TAKEN : WAITS;
    }
    v->end = (size_t)n + taken;
}

/* ---- theirs ---- */

static int on_url(http_parser *p, const char *at, size_t size)
{
    add(p->data, at, size);
    return 0;
}

static int on_name(http_parser *p, const char *at, size_t size)
{
    struct view *v = p->data;
    if (v->last != IN_NAME)             /* a name may come in pieces */
        add(v, "\n", 1);
    v->last = IN_NAME;
    add(v, at, size);
    return 0;
}

static int on_value(http_parser *p, const char *at, size_t size)
{
    struct view *v = p->data;
    if (v->last != IN_VALUE)
        add(v, ":", 1);
    v->last = IN_VALUE;
    add(v, at, size);
    return 0;
}

static int on_body(http_parser *p, const char *at, size_t size)
{
    struct view *v = p->data;
    memcpy(v->body + v->n_body, at, size);
    v->n_body += size;
    return 0;
}

/* Trailer fields come through the same callbacks; ours drops them. */
static size_t head_text;

static int on_headers_complete(http_parser *p)
{
    struct view *v = p->data;
    head_text = v->n_text;
    snprintf(v->method, sizeof v->method, "%s", http_method_str(p->method));
    return 0;
}

static int on_complete(http_parser *p)
{
    struct view *v = p->data;
    v->verdict = TAKEN;
    v->is_upgrade = p->upgrade;
    http_parser_pause(p, 1);
    return 0;
}

static void look_theirs(struct view *v, const char *data, size_t size)
{
    static const http_parser_settings settings = {
        .on_url = on_url, .on_header_field = on_name, .on_header_value = on_value, .on_body = on_body,
        .on_headers_complete = on_headers_complete, .on_message_complete = on_complete,
    };
    http_parser p;
    http_parser_init(&p, HTTP_REQUEST);
    p.data = v;
    v->verdict = WAITS;
    v->n_text = v->n_body = 0;
    v->last = IN_TARGET;
    v->is_upgrade = false;
    head_text = 0;
    size_t n = http_parser_execute(&p, &settings, data, size);
    v->why = HTTP_PARSER_ERRNO(&p);
    v->end = n;
    if (v->verdict == TAKEN)
        v->n_text = head_text;
    else if (v->why != HPE_OK)
        v->verdict = REFUSED;
}

/* ---- explanations, each looking at the bytes by itself ---- */

struct bytes {
    const char *data;
    size_t size;
};

static bool has(struct bytes b, const char *word)
{
    return memmem(b.data, b.size, word, strlen(word)) != NULL;
}

static bool has_nocase(struct bytes b, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= b.size; i++)
        if (strncasecmp(b.data + i, word, n) == 0)
            return true;
    return false;
}

static unsigned count_nocase(struct bytes b, const char *word)
{
    unsigned found = 0;
    for (size_t n = strlen(word), i = 0; i + n <= b.size; i++)
        found += strncasecmp(b.data + i, word, n) == 0;
    return found;
}

static bool bare_lf(struct bytes b)
{
    for (size_t i = 0; i < b.size; i++)
        if (b.data[i] == '\n' && (i == 0 || b.data[i - 1] != '\r'))
            return true;
    return false;
}

static bool bare_cr(struct bytes b)
{
    for (size_t i = 0; i + 1 < b.size; i++)
        if (b.data[i] == '\r' && b.data[i + 1] != '\n')
            return true;
    return false;
}

static bool folded(struct bytes b)
{
    return has(b, "\n ") || has(b, "\n\t");
}

static bool space_before_colon(struct bytes b)
{
    for (size_t i = 1; i < b.size; i++)     /* a name with a space in it, colon or not */
        if ((b.data[i] == ' ' || b.data[i] == '\t') && b.data[i - 1] != ':' && b.data[i - 1] != '\n')
            return true;
    return false;
}

static bool control_byte(struct bytes b)
{
    for (size_t i = 0; i < b.size; i++)
        if ((b.data[i] >= 0 && b.data[i] < ' ' && !strchr("\r\n\t", b.data[i])) || b.data[i] == 0 || b.data[i] == 0x7f)
            return true;
    return false;
}

static struct bytes first_line(struct bytes b)
{
    while (b.size && (b.data[0] == '\r' || b.data[0] == '\n'))
        b.data++, b.size--;
    const char *lf = memchr(b.data, '\n', b.size);
    return lf ? (struct bytes){ b.data, (size_t)(lf - b.data) } : b;
}

static struct bytes head_of(struct bytes b)
{
    for (size_t i = 0; i + 2 < b.size; i++)
        if (b.data[i] == '\n' && (b.data[i + 1] == '\n' || (b.data[i + 1] == '\r' && b.data[i + 2] == '\n')) && i > 1)
            return (struct bytes){ b.data, i + 1 };
    return b;
}

static bool starts_with_empty_lines(struct bytes b)
{
    return b.size > 2 && (b.data[0] == '\r' || b.data[0] == '\n');
}

static bool odd_target(struct bytes b)
{
    struct bytes line = first_line(b);
    for (size_t i = 0; i < line.size; i++)
        if (strchr("\"#<>\\\t\f", line.data[i]) || (unsigned char)line.data[i] >= 0x7f)
            return true;
    const char *space = memchr(line.data, ' ', line.size);
    if (!space || space + 1 == line.data + line.size)
        return true;
    if (!memchr(space + 1, ' ', (size_t)(line.data + line.size - space - 1)))
        return true;                        /* no version, as before HTTP/1.0 */
    return space[1] != '/';                 /* not origin-form: "*", absolute, authority, several spaces */
}

static bool escape_in_target(struct bytes b)
{
    return has(first_line(b), "%");
}

static bool dot_in_target(struct bytes b)
{
    return has(first_line(b), "/.") || has_nocase(first_line(b), "%2e") || has_nocase(first_line(b), "%2f.");
}

static bool not_http_1(struct bytes b)
{
    struct bytes line = first_line(b);
    return line.size < 9 || (memcmp(line.data + line.size - 9, "HTTP/1.1\r", 9) != 0 &&
                             memcmp(line.data + line.size - 9, "HTTP/1.0\r", 9) != 0);
}

static bool odd_version(struct bytes b)
{
    struct bytes line = first_line(b);      /* ends otherwise than with " HTTP/d.d" and CR */
    if (line.size && line.data[line.size - 1] == '\r')
        line.size--;
    return line.size < 9 || memcmp(line.data + line.size - 9, " HTTP/", 6) != 0 || !isdigit(line.data[line.size - 3]) ||
           line.data[line.size - 2] != '.' || !isdigit(line.data[line.size - 1]) ||
           memchr(line.data, ' ', line.size) == line.data + line.size - 9 ||
           memrchr(line.data, ' ', line.size - 9) != memchr(line.data, ' ', line.size);
}

static bool no_host(struct bytes b)
{
    return !has_nocase(head_of(b), "\nhost:");
}

static bool hosts(struct bytes b)
{
    return count_nocase(b, "\nhost:") > 1;
}

static bool host(struct bytes b)
{
    return count_nocase(b, "\nhost:") > 0;
}

static bool absolute_target(struct bytes b)
{
    return has(first_line(b), "://");
}

static bool lengths(struct bytes b)
{
    return count_nocase(b, "\ncontent-length:") > 1;
}

static bool odd_length(struct bytes b)
{
    for (size_t i = 0, n = strlen("\ncontent-length:"); i + n < b.size; i++) {
        if (strncasecmp(b.data + i, "\ncontent-length:", n) != 0)
            continue;
        size_t at = i + n, digits = 0;
        while (at < b.size && b.data[at] == ' ')
            at++;
        while (at < b.size && isdigit((unsigned char)b.data[at]))
            at++, digits++;
        while (at < b.size && b.data[at] == ' ')
            at++;
        if (at == b.size || b.data[at] != '\r' || digits == 0 || digits > 18)
            return true;
    }
    return false;
}

static bool coding(struct bytes b)
{
    return has_nocase(b, "\ntransfer-encoding:");
}

static bool codings(struct bytes b)
{
    return count_nocase(b, "\ntransfer-encoding:") > 1;
}

static bool expectation(struct bytes b)
{
    return has_nocase(b, "\nexpect:");
}

static bool connect_method(struct bytes b)
{
    return first_line(b).size > 8 && memcmp(first_line(b).data, "CONNECT ", 8) == 0;
}

static bool semicolon(struct bytes b)
{
    return coding(b) && has(b, ";");
}

static bool foreign_method(struct bytes b)
{
    struct bytes line = first_line(b);
    const char *space = memchr(line.data, ' ', line.size);
    size_t n = space ? (size_t)(space - line.data) : line.size;
    for (int i = 0; i < 64; i++) {
        const char *name = http_method_str((enum http_method)i);
        if (strlen(name) == n && memcmp(name, line.data, n) == 0)
            return false;
    }
    return true;
}

static bool framing_in_trailer(struct bytes b)
{
    struct bytes head = head_of(b);
    struct bytes rest = { head.data + head.size, b.size - head.size };
    return coding(head) && (has_nocase(rest, "\ncontent-length:") || has_nocase(rest, "\ntransfer-encoding:"));
}

static bool longer_name(struct bytes b)
{
    for (size_t i = 0, n = strlen("\ntransfer-encoding"); i + n < b.size; i++)
        if (strncasecmp(b.data + i, "\ntransfer-encoding", n) == 0 && b.data[i + n] != ':')
            return true;
    return false;
}

/* Ours is the stricter one. */
static const struct {
    enum http_fault fault;
    bool (*holds)(struct bytes b);
    const char *why;
} stricter[] = {
    { HTTP_BARE_LF, bare_lf, "http-parser takes LF for CRLF" },
    { HTTP_BARE_CR, bare_cr, "http-parser takes a CR for an end of line in places" },
    { HTTP_BAD_METHOD, starts_with_empty_lines, "http-parser skips any number of empty lines" },
    { HTTP_BAD_TARGET, odd_target, "http-parser takes more bytes and forms in a target" },
    { HTTP_BAD_ESCAPE, escape_in_target, "http-parser does not look at escapes" },
    { HTTP_DOT_SEGMENT, dot_in_target, "http-parser does not look at dot segments" },
    { HTTP_BAD_VERSION, odd_version, "http-parser takes spaces around the version" },
    { HTTP_OTHER_VERSION, not_http_1, "http-parser takes every HTTP/d.d" },
    { HTTP_SPACE_BEFORE_COLON, space_before_colon, "http-parser takes a space before the colon" },
    { HTTP_FOLDED_FIELD, folded, "http-parser unfolds" },
    { HTTP_BAD_VALUE, control_byte, "http-parser takes control bytes in values" },
    { HTTP_NO_HOST, no_host, "http-parser does not ask for Host" },
    { HTTP_MANY_HOSTS, hosts, "http-parser does not count Host" },
    { HTTP_BAD_HOST, host, "http-parser does not look into Host" },
    { HTTP_OTHER_HOST, absolute_target, "http-parser does not compare target and Host" },
    { HTTP_BAD_LENGTH, odd_length, "http-parser takes longer or spaced numbers, and tabs" },
    { HTTP_MANY_LENGTHS, lengths, "http-parser overlooks an empty second Content-Length" },
    { HTTP_MANY_CODINGS, codings, "http-parser takes several codings" },
    { HTTP_OTHER_CODING, coding, "http-parser leaves other codings to its caller" },
    { HTTP_OTHER_EXPECTATION, expectation, "http-parser does not look at Expect" },
    { HTTP_NO_TUNNELS, connect_method, "http-parser knows CONNECT" },
    { HTTP_BAD_CHUNK_SIZE, coding, "http-parser takes spaces after a chunk's size" },
    { HTTP_BAD_CHUNK_EXT, semicolon, "http-parser skips anything in an extension" },
    { HTTP_BAD_CHUNK_END, coding, "http-parser does not look at the byte after a chunk's CR in places" },
    { HTTP_BAD_TRAILER, coding, "the same as for fields" },
};

/* Theirs is the stricter one. */
static const struct {
    enum http_errno error;
    bool (*holds)(struct bytes b);
    const char *why;
} looser[] = {
    { HPE_INVALID_METHOD, foreign_method, "http-parser knows a fixed list of methods" },
    { HPE_INVALID_CONTENT_LENGTH, framing_in_trailer, "http-parser reads framing in trailers; ours drops them" },
    { HPE_UNEXPECTED_CONTENT_LENGTH, framing_in_trailer, "http-parser reads framing in trailers; ours drops them" },
    { HPE_UNEXPECTED_CONTENT_LENGTH, longer_name, "http-parser takes Transfer-EncodingX for Transfer-Encoding" },
    { HPE_INVALID_TRANSFER_ENCODING, longer_name, "http-parser takes Transfer-EncodingX for Transfer-Encoding" },
};

/* ---- the comparison ---- */

static unsigned long n_taken, n_refused, n_waiting, n_upgrades, n_stricter[HTTP_FAULTS], n_looser[8];

static void trimmed(struct view *v)
{
    size_t to = 0;      /* spaces and tabs at the ends of values do not count */
    for (size_t i = 0; i < v->n_text; i++) {
        if (v->text[i] == '\n')
            while (to && (v->text[to - 1] == ' ' || v->text[to - 1] == '\t'))
                to--;
        v->text[to++] = v->text[i];
    }
    while (to && (v->text[to - 1] == ' ' || v->text[to - 1] == '\t'))
        to--;
    v->n_text = to;
}

static bool same_message(struct view *a, struct view *b)
{
    trimmed(a);
    trimmed(b);
    return strcmp(a->method, b->method) == 0 && a->n_text == b->n_text && memcmp(a->text, b->text, a->n_text) == 0 &&
           a->end == b->end && a->n_body == b->n_body && memcmp(a->body, b->body, a->n_body) == 0;
}

/* Theirs took it in the middle of a line, after a CR without LF: ours must refuse it when the line ends. */
static bool refused_later(struct bytes b)
{
    static struct view later;
    static char longer[MESSAGE_MAX + 4];
    memcpy(longer, b.data, b.size);
    memcpy(longer + b.size, "\r\n\r\n", 4);
    look_ours(&later, longer, b.size + 4);
    return later.verdict == REFUSED && bare_cr(b);
}

/* Whether the outcome is one we expect; counts it. */
static bool explained(struct view *ours, struct view *theirs, struct bytes b)
{
    if (ours->verdict == REFUSED && theirs->verdict == REFUSED) {
        n_refused++;
        return true;
    }
    if (ours->verdict == REFUSED) {
        for (size_t i = 0; i < sizeof stricter / sizeof *stricter; i++)
            if ((int)stricter[i].fault == ours->why && stricter[i].holds(b)) {
                n_stricter[ours->why]++;
                return true;
            }
        return false;
    }
    if (ours->verdict == WAITS && (theirs->verdict == REFUSED || (theirs->verdict == TAKEN && refused_later(b)))) {
        n_waiting++;            /* ours judges whole lines; nothing was taken */
        return true;
    }
    if (theirs->verdict == REFUSED) {
        for (size_t i = 0; i < sizeof looser / sizeof *looser; i++)
            if ((int)looser[i].error == theirs->why && looser[i].holds(b)) {
                n_looser[i]++;
                return true;
            }
        return false;
    }
    if (theirs->verdict == TAKEN && theirs->is_upgrade) {
        n_upgrades++;           /* http-parser leaves the body of an upgrade to its caller */
        return true;
    }
    if (ours->verdict != theirs->verdict || (ours->verdict == TAKEN && !same_message(ours, theirs)))
        return false;
    n_taken++;
    return true;
}

static void show(const char *who, const struct view *v)
{
    static const char *const verdicts[] = { "takes it", "waits for more", "refuses it" };
    printf("%s %s (%d), end %zu, method %s, body %zu, text <%.*s>\n", who, verdicts[v->verdict], v->why, v->end,
           v->method, v->n_body, (int)v->n_text, v->text);
}

static time_t seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

int main(int argc, char **argv)
{
    static struct view ours, theirs;
    static char message[MESSAGE_MAX];
    time_t end = seconds() + (argc > 1 ? strtol(argv[1], NULL, 10) : 10);
    mutate_seed = argc > 2 ? strtoull(argv[2], NULL, 0) : UINT64_C(0x9E3779B97F4A7C15);
    unsigned long n = 0, failures = 0;
    for (; n % 4096 || seconds() < end; n++) {
        size_t size = mutate_request(message);
        char *exact = malloc(size ? size : 1);
        memcpy(exact, message, size);
        look_ours(&ours, exact, size);
        look_theirs(&theirs, exact, size);
        if (!explained(&ours, &theirs, (struct bytes){ exact, size }) && failures++ < 5) {
            printf("unexplained difference for <%.*s>\n", (int)size, exact);
            show("ours", &ours);
            show("theirs", &theirs);
            if (ours.verdict == REFUSED)
                printf("ours: %s\n", http_fault_text((enum http_fault)ours.why));
            if (theirs.verdict == REFUSED)
                printf("theirs: %s\n", http_errno_name((enum http_errno)theirs.why));
        }
        free(exact);
    }
    printf("http-diff: %lu requests; both take %lu and see the same, both refuse %lu, ours has not judged %lu, "
           "%lu upgrades, %lu unexplained\n", n, n_taken, n_refused, n_waiting, n_upgrades, failures);
    for (size_t i = 0; i < sizeof stricter / sizeof *stricter; i++)
        printf("  ours refuses %8lu: %s\n", n_stricter[stricter[i].fault], stricter[i].why);
    for (size_t i = 0; i < sizeof looser / sizeof *looser; i++)
        printf("  ours takes   %8lu: %s\n", n_looser[i], looser[i].why);
    return failures != 0;
}
