/* The server's messages in the words of the command line: they name fields of the API, which are options there. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "client/client.h"
#include "proto/limits.h"

/* Fields whose options are called as they are. */
static const char *const fields[] = { "store", "template", "root", "stdin", "tty", "packages", "python", "devices" };

/* limits.NAME is --NAME, requests.NAME is --request-NAME.
 * Returns how much of the text that was; 0: it is something else. */
static size_t add_limit(const char *text, struct buf *out)
{
    static const char limits[] = "limits.", requests[] = "requests.";
    bool is_request = strncmp(text, requests, sizeof requests - 1) == 0;
    size_t before = (is_request ? sizeof requests : sizeof limits) - 1;

    if (!is_request && strncmp(text, limits, before) != 0)
        return 0;
    size_t n = strspn(text + before, "abcdefghijklmnopqrstuvwxyz");
    const struct limit *limit = limit_find(text + before, n);
    if (!limit)
        return 0;
    buf_printf(out, "--%s%s", is_request ? "request-" : "", limit->name);
    return before + n;
}

/* output_limit is --output-limit. */
static size_t add_output_limit(const char *text, struct buf *out)
{
    static const char name[] = "output_limit ";

    if (strncmp(text, name, sizeof name - 1) != 0)
        return 0;
    buf_printf(out, "--output-limit ");
    return sizeof name - 1;
}

/* keys[N] is --key. */
static size_t add_key(const char *text, struct buf *out)
{
    size_t n = strncmp(text, "keys[", 5) == 0 ? strspn(text + 5, "0123456789") : 0;
    static const char *const parts[] = { ".secret", ".name", ".host", ".header" };

    if (n == 0 || text[5 + n] != ']')
        return 0;
    buf_printf(out, "--key");
    n += 6;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strncmp(text + n, parts[i], strlen(parts[i])) == 0)
            return n + strlen(parts[i]);
    return n;
}

/* "NAME", "NAME": true, "NAME": "VALUE" are --NAME, --NAME, --NAME VALUE. */
static size_t add_field(const char *text, struct buf *out)
{
    size_t n = text[0] == '"' ? strspn(text + 1, "abcdefghijklmnopqrstuvwxyz_") : 0, at = n + 2, value;

    if (!n || text[n + 1] != '"')
        return 0;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strlen(fields[i]) != n || memcmp(fields[i], text + 1, n) != 0)
            continue;
        buf_printf(out, "--%s", strcmp(fields[i], "devices") == 0 ? "device" : fields[i]);
        if (strncmp(text + at, ": true", 6) == 0)
            return at + 6;
        if (strncmp(text + at, ": \"", 3) != 0 || text[at + 3 + (value = strcspn(text + at + 3, "\""))] != '"')
            return at;
        buf_printf(out, " %.*s", (int)value, text + at + 3);
        return at + value + 4;
    }
    return 0;
}

void client_words(const char *text, struct buf *out)
{
    bool is_new = true;         /* not in the middle of a word */

    while (*text) {
        size_t n = is_new ? add_limit(text, out) : 0;
        n = n ? n : is_new ? add_output_limit(text, out) : 0;
        n = n ? n : is_new ? add_field(text, out) : 0;
        n = n ? n : is_new ? add_key(text, out) : 0;
        if (n) {
            text += n;
            continue;
        }
        is_new = !((*text >= 'a' && *text <= 'z') || *text == '_' || *text == '.');
        buf_add_char(out, *text++);
    }
}
