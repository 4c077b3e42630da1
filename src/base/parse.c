/* Numbers are read as fractions of 128-bit integers; no floating point, so that 0.1 is a tenth and overflow is seen. */
#include "base/parse.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)

__extension__ typedef unsigned __int128 wide;

/* An unsigned decimal number: value / scale. */
struct number {
    wide     value;
    uint64_t scale;
    bool     huge;      /* more digits than fit; value is meaningless */
};

struct unit {
    const char *suffix;
    uint64_t    factor;
};

struct parse_quote parse_quote(const char *text)
{
    struct parse_quote quote = { "" };
    size_t room = sizeof quote.text - 1, length = strnlen(text, room + 1);
    bool cut = length > room;

    if (cut)
        length = room - 3;
    for (size_t i = 0; i < length; i++)
        quote.text[i] = (unsigned char)text[i] >= 0x20 && text[i] != 0x7f ? text[i] : '?';
    if (cut)
        memcpy(quote.text + length, "...", 4);
    return quote;
}

struct parse_quote parse_quote_path(const char *path)
{
    size_t room = sizeof((struct parse_quote *)0)->text - 1, length = strlen(path);
    bool cut = length > room;
    struct parse_quote quote = parse_quote(cut ? path + length - room : path);

    if (cut)
        memcpy(quote.text, "...", 3);
    return quote;
}

/* Reads digits[.digits] and returns the rest, or NULL if there is no number. */
static const char *read_number(const char *text, struct number *ret)
{
    const char *p = text;
    const wide most = (wide)1 << 80; /* leaves room for the largest factor, 2^40 */
    *ret = (struct number){ .scale = 1 };

    if (!isdigit((unsigned char)*p))
        return NULL;
    for (; isdigit((unsigned char)*p); p++) {
        ret->value = ret->value * 10 + (unsigned)(*p - '0');
        if (ret->value > most) {
            ret->huge = true;
            ret->value = 0;
        }
    }
    if (*p != '.')
        return p;
    if (!isdigit((unsigned char)*++p))
        return NULL;
    for (unsigned digits = 0; isdigit((unsigned char)*p); p++, digits++) {
        if (digits >= 9 || ret->value > most / 10)
            continue; /* finer than any unit here needs */
        ret->value = ret->value * 10 + (unsigned)(*p - '0');
        ret->scale *= 10;
    }
    return p;
}

/* Finds the factor of a suffix in a table that ends with a NULL suffix; 0 if it is missing. */
static uint64_t find_factor(const struct unit *units, const char *suffix)
{
    for (; units->suffix; units++)
        if (!strcasecmp(units->suffix, suffix))
            return units->factor;
    return 0;
}

/* Sets the sentence for a text that is not a number at all. */
static int refuse(const char *name, const char *text, const char *wanted, struct err *e)
{
    const char *digits = text + strspn(text, "-");

    if (!text[0])
        return err_set(e, EINVAL, STEP_USAGE, "%s needs a value: %s", name, wanted);
    if (text[0] == '-' && isdigit((unsigned char)digits[0]))
        return err_set(e, EINVAL, STEP_USAGE, "%s %s is negative; use %s", name, parse_quote(text).text, wanted);
    return err_set(e, EINVAL, STEP_USAGE, "%s %s is not understood; use %s", name, parse_quote(text).text, wanted);
}

int parse_size(const char *name, const char *text, uint64_t least, uint64_t *ret_bytes, struct err *e)
{
    static const struct unit units[] = {
        { "", 1 },           { "b", 1 },           { "k", 1ULL << 10 },  { "kb", 1ULL << 10 }, { "ki", 1ULL << 10 },
        { "kib", 1ULL << 10 }, { "m", 1ULL << 20 },  { "mb", 1ULL << 20 }, { "mi", 1ULL << 20 }, { "mib", 1ULL << 20 },
        { "g", 1ULL << 30 },  { "gb", 1ULL << 30 }, { "gi", 1ULL << 30 }, { "gib", 1ULL << 30 }, { "t", 1ULL << 40 },
        { "tb", 1ULL << 40 }, { "ti", 1ULL << 40 }, { "tib", 1ULL << 40 }, { NULL, 0 },
    };
    static const char wanted[] = "a size such as 64k, 512M or 1.5G";
    struct number number;
    const char *suffix = read_number(text, &number);
    uint64_t factor = suffix ? find_factor(units, suffix) : 0;

    if (!factor || (factor == 1 && number.scale > 1)) /* there is no half byte */
        return refuse(name, text, wanted, e);
    wide bytes = number.value * factor / number.scale;
    if (number.huge || bytes > INT64_MAX)
        return err_set(e, EINVAL, STEP_USAGE, "%s %s is too large; the most is 8388607T", name, parse_quote(text).text);
    if (bytes == 0)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be more than 0; use %s", name, wanted);
    if (bytes < least)
        return err_set(e, EINVAL, STEP_USAGE, "%s %s is too small; the least is %" PRIu64 "%s%s", name,
                       parse_quote(text).text, least % MIB ? (least + 1023) / 1024 : least / MIB,
                       least % MIB ? "k" : "M", *suffix ? "" : " (a number without k, M or G is bytes)");
    *ret_bytes = (uint64_t)bytes;
    return 0;
}

int parse_duration(const char *name, const char *text, uint64_t *ret_ms, struct err *e)
{
    static const struct unit units[] = {
        { "", 1000 }, { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 }, { NULL, 0 },
    };
    static const char wanted[] = "a time such as 500ms, 30s, 2m or 1h";
    struct number number;
    const char *suffix = read_number(text, &number);
    uint64_t factor = suffix ? find_factor(units, suffix) : 0;

    if (!factor)
        return refuse(name, text, wanted, e);
    wide ms = number.value * factor / number.scale;
    if (number.huge || ms > PARSE_DURATION_MAX_MS)
        return err_set(e, EINVAL, STEP_USAGE, "%s %s is too long; the most is 365d", name, parse_quote(text).text);
    if (ms == 0)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be at least 1ms; leave it out for no limit", name);
    *ret_ms = (uint64_t)ms;
    return 0;
}

int parse_cpus(const char *name, const char *text, uint32_t *ret_milli, struct err *e)
{
    static const char wanted[] = "a number of processors such as 0.5, 1 or 1.5";
    struct number number;
    const char *suffix = read_number(text, &number);

    if (!suffix || *suffix)
        return refuse(name, text, wanted, e);
    wide milli = number.value * 1000 / number.scale;
    if (number.huge || milli > PARSE_CPU_MILLI_MAX)
        return err_set(e, EINVAL, STEP_USAGE, "%s %s is too large; the most is %d", name, parse_quote(text).text,
                       PARSE_CPU_MILLI_MAX / 1000);
    if (milli < PARSE_CPU_MILLI_MIN)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be at least 0.01; use %s", name, wanted);
    *ret_milli = (uint32_t)milli;
    return 0;
}

int parse_count(const char *name, const char *text, uint32_t least, uint32_t most, uint32_t *ret, struct err *e)
{
    char wanted[64];
    struct number number;
    const char *suffix = read_number(text, &number);

    snprintf(wanted, sizeof wanted, "a whole number from %" PRIu32 " to %" PRIu32, least, most);
    if (!suffix || *suffix || number.scale > 1)
        return refuse(name, text, wanted, e);
    if (number.huge || number.value > most || number.value < least)
        return err_set(e, EINVAL, STEP_USAGE, "%s %s is not possible; use %s", name, parse_quote(text).text, wanted);
    *ret = (uint32_t)number.value;
    return 0;
}

int parse_user(const char *name, const char *text, uid_t *ret_uid, gid_t *ret_gid, struct err *e)
{
    static const char wanted[] = "UID or UID:GID in numbers from 0 to 65535, e.g. 1000:1000";
    struct number uid, gid;
    const char *rest = read_number(text, &uid);

    if (!rest || uid.scale > 1)
        return refuse(name, text, wanted, e);
    gid = uid;
    if (*rest == ':')
        rest = read_number(rest + 1, &gid);
    if (!rest || *rest || gid.scale > 1)
        return refuse(name, text, wanted, e);
    if (uid.huge || gid.huge || uid.value > PARSE_ID_MAX || gid.value > PARSE_ID_MAX)
        return err_set(e, EINVAL, STEP_USAGE, "%s %s is out of range; use %s", name, parse_quote(text).text, wanted);
    *ret_uid = (uid_t)uid.value;
    *ret_gid = (gid_t)gid.value;
    return 0;
}

struct parse_quote parse_show_size(uint64_t bytes)
{
    static const char *const units[] = { "T", "G", "M", "k" };
    struct parse_quote shown;
    unsigned shift = 40;

    for (size_t i = 0; i < sizeof units / sizeof *units; i++, shift -= 10)
        if (bytes && bytes % (UINT64_C(1) << shift) == 0) {
            snprintf(shown.text, sizeof shown.text, "%llu%s", (unsigned long long)(bytes >> shift), units[i]);
            return shown;
        }
    snprintf(shown.text, sizeof shown.text, "%llu bytes", (unsigned long long)bytes);
    return shown;
}
