#include "proto/limits.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"

#define LIMIT_ROW(field, type, name, kind, least, most, run, server, server_most, flags, example, what, ...) \
    { name, LIMIT_##kind, offsetof(struct limits, field), sizeof(type), least, most, run, server, server_most, flags, \
      example, what },
const struct limit limit_table[LIMITS] = { LIMIT_ROWS(LIMIT_ROW) };

const struct limit *limit_find(const char *name, size_t length)
{
    for (size_t i = 0; i < LIMITS; i++)
        if (strlen(limit_table[i].name) == length && memcmp(limit_table[i].name, name, length) == 0)
            return &limit_table[i];
    return NULL;
}

uint64_t limit_get(const struct limits *limits, const struct limit *limit)
{
    const char *at = (const char *)limits + limit->offset;
    uint64_t large;
    uint32_t small;

    if (limit->size == sizeof large) {
        memcpy(&large, at, sizeof large);
        return large;
    }
    memcpy(&small, at, sizeof small);
    return small;
}

void limit_set(struct limits *limits, const struct limit *limit, uint64_t value)
{
    char *at = (char *)limits + limit->offset;
    uint32_t small = (uint32_t)value;

    if (limit->size == sizeof value)
        memcpy(at, &value, sizeof value);
    else
        memcpy(at, &small, sizeof small);
}

bool limits_equal(const struct limits *a, const struct limits *b)
{
    for (size_t i = 0; i < LIMITS; i++)
        if (limit_get(a, &limit_table[i]) != limit_get(b, &limit_table[i]))
            return false;
    return true;
}

void limits_update(struct limits *limits, const struct limits *more)
{
    for (size_t i = 0; i < LIMITS; i++) {
        uint64_t value = limit_get(more, &limit_table[i]);
        if (value)
            limit_set(limits, &limit_table[i], value);
    }
}

void limits_fill(struct limits *limits, const struct limits *defaults)
{
    for (size_t i = 0; i < LIMITS; i++)
        if (!limit_get(limits, &limit_table[i]))
            limit_set(limits, &limit_table[i], limit_get(defaults, &limit_table[i]));
}

int limit_parse(const struct limit *limit, const char *option, const char *text, struct limits *into, struct err *e)
{
    uint64_t large = 0;
    uint32_t small = 0;
    int r = -EINVAL;

    switch (limit->kind) {
    case LIMIT_SIZE:
        r = parse_size(option, text, limit->least, &large, e);
        break;
    case LIMIT_CPUS:
        r = parse_cpus(option, text, &small, e);
        break;
    case LIMIT_COUNT:
        r = parse_count(option, text, (uint32_t)limit->least, (uint32_t)limit->most, &small, e);
        break;
    }
    if (r == 0)
        limit_set(into, limit, limit->kind == LIMIT_SIZE ? large : small);
    return r;
}

struct limit_text limit_show(const struct limit *limit, uint64_t value)
{
    struct limit_text shown;

    if (limit->kind == LIMIT_CPUS && value % 1000 == 0)
        snprintf(shown.text, sizeof shown.text, "%llu", (unsigned long long)value / 1000);
    else if (limit->kind == LIMIT_CPUS)
        snprintf(shown.text, sizeof shown.text, "%llu.%03llu", (unsigned long long)value / 1000,
                 (unsigned long long)value % 1000);
    else if (limit->kind == LIMIT_SIZE)
        snprintf(shown.text, sizeof shown.text, "%s", parse_show_size(value).text);
    else
        snprintf(shown.text, sizeof shown.text, "%llu", (unsigned long long)value);
    return shown;
}
