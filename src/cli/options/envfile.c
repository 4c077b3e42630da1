/* The file usually holds secrets: messages name the line, never its contents. */
#include "cli/options/envfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/parse.h"

struct line {
    const char *file;
    size_t      number;
    const char *at;     /* the unread rest */
    const char *end;
};

static int refuse(const struct line *line, const char *why, struct err *e)
{
    return err_set(e, EINVAL, STEP_USAGE, "%s:%zu: %s", parse_quote_path(line->file).text, line->number, why);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static void skip_blanks(struct line *line)
{
    while (line->at < line->end && is_blank(*line->at))
        line->at++;
}

static void skip_export(struct line *line)
{
    static const char word[] = "export";
    size_t length = sizeof word - 1;

    if ((size_t)(line->end - line->at) > length && !memcmp(line->at, word, length) && is_blank(line->at[length])) {
        line->at += length;
        skip_blanks(line);
    }
}

/* Reads up to the closing quote; appends the value to buf. */
static int read_quoted(struct line *line, struct buf *value, struct err *e)
{
    char quote = *line->at++;

    for (;; line->at++) {
        if (line->at == line->end)
            return refuse(line, "the quote is not closed on this line", e);
        if (*line->at == quote)
            break;
        if (quote == '"' && *line->at == '\\' && line->at + 1 < line->end &&
            (line->at[1] == '"' || line->at[1] == '\\'))
            line->at++;
        buf_add_char(value, *line->at);
    }
    line->at++;
    skip_blanks(line);
    if (line->at < line->end && *line->at != '#')
        return refuse(line, "there is text after the closing quote", e);
    return 0;
}

static void read_plain(struct line *line, struct buf *value)
{
    const char *start = line->at, *p = start;

    while (p < line->end && !(*p == '#' && is_blank(p[-1]))) /* there is at least the '=' before it */
        p++;
    while (p > start && is_blank(p[-1]))
        p--;
    buf_add(value, start, (size_t)(p - start));
}

static int parse_line(struct line *line, struct buf *value, struct envlist *list, struct err *e)
{
    if (memchr(line->at, 0, (size_t)(line->end - line->at)))
        return refuse(line, "there is a NUL byte in the line; is this a text file?", e);
    if (line->at < line->end && line->end[-1] == '\r')
        line->end--;
    skip_blanks(line);
    if (line->at == line->end || *line->at == '#')
        return 0;
    skip_export(line);
    const char *name = line->at;
    const char *equals = memchr(name, '=', (size_t)(line->end - name));
    if (!equals)
        return refuse(line, "no '=' in the line; write NAME=VALUE", e);
    line->at = equals + 1;
    skip_blanks(line);
    buf_clear(value);
    if (line->at < line->end && (*line->at == '"' || *line->at == '\'')) {
        int r = read_quoted(line, value, e);
        if (r < 0)
            return r;
    } else {
        read_plain(line, value);
    }
    int r = buf_error(value);
    if (r < 0)
        return err_set(e, -r, STEP_MEMORY, "%s", parse_quote_path(line->file).text);
    char origin[sizeof e->what / 2];
    snprintf(origin, sizeof origin, "%s:%zu", parse_quote_path(line->file).text, line->number);
    return envlist_set_from(list, origin, name, (size_t)(equals - name), buf_string(value), value->length, e);
}

int envfile_parse(const char *file, const char *text, size_t size, struct envlist *list, struct err *e)
{
    struct line line = { .file = file };
    const char *p = text, *end = text + size;
    struct buf value;
    int r = 0;

    if (size >= 3 && !memcmp(p, "\xef\xbb\xbf", 3)) /* some editors begin a file with a byte order mark */
        p += 3;
    buf_init(&value, ENVFILE_BYTES_MAX);
    while (p < end && r == 0) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        line.number++;
        line.at = p;
        line.end = stop ? stop : end;
        p = stop ? stop + 1 : end;
        r = parse_line(&line, &value, list, e);
    }
    buf_done(&value);
    return r;
}

int envfile_read(const char *path, struct envlist *list, struct err *e)
{
    struct buf text;
    int r = 0;

    FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return err_set(e, errno, STEP_USAGE, "--env-file %s: %s", parse_quote_path(path).text, strerror(errno));
    buf_init(&text, ENVFILE_BYTES_MAX);
    for (;;) {
        size_t left = ENVFILE_BYTES_MAX - text.length, step = left < 16384 ? left : 16384;
        char spare; /* a file of exactly the maximum is legal: only a further byte is too much */
        char *to = step ? buf_reserve(&text, step) : &spare;
        ssize_t n = to ? read(fd, to, step ? step : 1) : -1;
        if (to && n < 0 && errno == EINTR)
            continue;
        if (!to)
            r = err_set(e, ENOMEM, STEP_MEMORY, "--env-file %s", parse_quote_path(path).text);
        else if (n < 0)
            r = err_set(e, errno, STEP_USAGE, "--env-file %s: %s", parse_quote_path(path).text, strerror(errno));
        else if (n > 0 && !step)
            r = err_set(e, EINVAL, STEP_USAGE, "--env-file %s is larger than 4 MiB", parse_quote_path(path).text);
        if (r < 0 || n == 0)
            break;
        buf_commit(&text, (size_t)n);
    }
    if (r == 0)
        r = envfile_parse(path, buf_string(&text), text.length, list, e);
    buf_done(&text);
    return r;
}
