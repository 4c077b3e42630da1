/* Tables and texts for people. Texts from a box or from another user (names, labels, commands) are cleaned first,
 * because a terminal obeys escape sequences. Colours are for terminals only, and not if NO_COLOR is set. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/client.h"

enum { RING = 64, RING_TEXT = 512 };

static char *ring_next(void)
{
    static char ring[RING][RING_TEXT];
    static unsigned at;

    return ring[at++ % RING];
}

const char *show_format(const char *format, ...)
{
    char *text = ring_next();
    va_list args;

    va_start(args, format);
    vsnprintf(text, RING_TEXT, format, args);
    va_end(args);
    return text;
}

const char *show_bytes(uint64_t bytes)
{
    static const char units[] = "BKMGTPE";
    double value = (double)bytes;
    unsigned unit = 0;

    while (value >= 1000 && unit < 6) {
        value /= 1024;
        unit++;
    }
    if (unit == 0)
        return show_format("%llu", (unsigned long long)bytes);
    return show_format(value < 9.95 && value != (double)(int)value ? "%.1f%c" : "%.0f%c", value, units[unit]);
}

const char *show_number(uint64_t number)
{
    return show_format("%llu", (unsigned long long)number);
}

const char *show_age(const char *time_text)
{
    struct tm parts = { 0 };
    const char *rest = strptime(time_text, "%Y-%m-%dT%H:%M:%S", &parts);

    if (!rest)
        return "-";
    long long seconds = (long long)(time(NULL) - timegm(&parts));
    if (seconds < 0)
        seconds = 0;
    if (seconds < 120)
        return show_format("%llds", seconds);
    if (seconds < 7200)
        return show_format("%lldm", seconds / 60);
    return seconds < 172800 ? show_format("%lldh", seconds / 3600) : show_format("%lldd", seconds / 86400);
}

const char *show_text(const char *text)
{
    char *to = ring_next();
    size_t n = 0;

    for (; *text && n + 1 < RING_TEXT; text++) {
        unsigned char c = (unsigned char)*text;
        /* Also the C1 controls, as UTF-8. */
        bool is_c1 = c == 0xc2 && (unsigned char)text[1] >= 0x80 && (unsigned char)text[1] < 0xa0;
        to[n++] = c < 0x20 || c == 0x7f || is_c1 ? '?' : (char)c;
        text += is_c1;
    }
    to[n] = '\0';
    return to;
}

bool show_colours(int fd)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fd) && !(no && no[0]) && !(term && strcmp(term, "dumb") == 0);
}

const char *colour_of(const char *word, int fd)
{
    static const struct {
        const char *word, *colour;
    } colours[] = {
        { "running", "\033[32m" }, { "ok", "\033[32m" },     { "creating", "\033[36m" }, { "paused", "\033[33m" },
        { "stopped", "\033[33m" }, { "failed", "\033[31m" }, { "error", "\033[31m" },    { "deleting", "\033[2m" },
        { "deleted", "\033[2m" },  { "title", "\033[1m" },   { "dim", "\033[2m" },
    };

    for (size_t i = 0; show_colours(fd) && i < sizeof colours / sizeof *colours; i++)
        if (strcmp(colours[i].word, word) == 0)
            return colours[i].colour;
    return "";
}

const char *colour_off(int fd)
{
    return show_colours(fd) ? "\033[0m" : "";
}

void table_init(struct table *t, const char *const *titles, uint32_t right)
{
    *t = (struct table){ .right = right };
    while (titles[t->columns] && t->columns < TABLE_COLUMNS) {
        t->title[t->columns] = titles[t->columns];
        t->columns++;
    }
}

void table_add(struct table *t, ...)
{
    va_list args;

    if (t->n == t->room) {
        size_t room = t->room ? t->room * 2 : 32;
        char **grown = reallocarray(t->cell, room * t->columns, sizeof *grown);
        if (!grown)
            return;
        t->cell = grown;
        t->room = room;
    }
    va_start(args, t);
    for (unsigned i = 0; i < t->columns; i++) {
        const char *text = va_arg(args, const char *);
        t->cell[t->n * t->columns + i] = strdup(text && text[0] ? show_text(text) : "-");
    }
    va_end(args);
    t->n++;
}

/* The width of a text: counts the bytes that begin a character. */
static int width_of(const char *text)
{
    int n = 0;

    for (; text && *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void print_row(const struct table *t, char *const *row, const int *width, const char *colour)
{
    for (unsigned i = 0; i < t->columns; i++) {
        const char *text = row[i] ? row[i] : "";
        int pad = width[i] - width_of(text);
        bool is_right = t->right >> i & 1, is_last = i + 1 == t->columns;
        const char *own = colour ? colour : colour_of(text, STDOUT_FILENO);
        printf("%*s%s%s%s%*s", is_right ? pad : 0, "", own, text, own[0] ? colour_off(STDOUT_FILENO) : "",
               is_right || is_last ? 0 : pad, "");
        fputs(is_last ? "\n" : "  ", stdout);
    }
}

void table_print(struct table *t)
{
    int width[TABLE_COLUMNS];

    for (unsigned i = 0; i < t->columns; i++) {
        width[i] = width_of(t->title[i]);
        for (size_t row = 0; row < t->n; row++) {
            int own = width_of(t->cell[row * t->columns + i]);
            width[i] = own > width[i] ? own : width[i];
        }
    }
    print_row(t, (char *const *)(uintptr_t)t->title, width, colour_of("title", STDOUT_FILENO));
    for (size_t row = 0; row < t->n; row++)
        print_row(t, t->cell + row * t->columns, width, NULL);
    for (size_t i = 0; i < t->n * t->columns; i++)
        free(t->cell[i]);
    t->n = 0;
}

void table_done(struct table *t)
{
    for (size_t i = 0; i < t->n * t->columns; i++)
        free(t->cell[i]);
    free(t->cell);
    *t = (struct table){ 0 };
}
