#define _GNU_SOURCE
#include "front/front.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/jsonout.h"
#include "http/wsframe.h"

const uint32_t histogram_bound_us[HISTOGRAM_BOUNDS] = { 100,    250,    500,     1000,    2500,    5000,
                                                        10000,  25000,  50000,   100000,  250000,  500000,
                                                        1000000, 5000000, 30000000, 300000000 };

void histogram_add(struct histogram *h, uint64_t us)
{
    size_t i = 0;

    while (i < HISTOGRAM_BOUNDS && us > histogram_bound_us[i])
        i++;
    if (i < HISTOGRAM_BOUNDS)
        h->bucket[i]++;
    h->count++;
    h->sum_us += us;
}

int64_t front_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void front_time_text(int64_t ms, char text[32])
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;

    gmtime_r(&seconds, &tm);
    size_t n = strftime(text, 24, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text + n, 32 - n, ".%03dZ", (int)(ms % 1000));
}

json_t *front_time_json(int64_t ms)
{
    char text[32];

    if (!ms)
        return json_null();
    front_time_text(ms, text);
    return json_string(text);
}

int64_t front_time_parse(const char *text)
{
    struct tm tm = { 0 };
    int ms = 0;

    if (!text || sscanf(text, "%d-%d-%dT%d:%d:%d.%dZ", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour, &tm.tm_min,
                        &tm.tm_sec, &ms) != 7)
        return 0;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    return (int64_t)timegm(&tm) * 1000 + ms;
}

void front_own_identity(const struct front *front, char ret[32])
{
    snprintf(ret, 32, "uid:%u", (unsigned)front->owner_uid);
}

void front_make_id(char prefix, char id[16])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
    unsigned char random[12];

    /* Cannot fail for so few bytes once the machine is up. */
    if (getrandom(random, sizeof random, 0) != sizeof random)
        memset(random, 0, sizeof random);
    id[0] = prefix;
    for (size_t i = 0; i < sizeof random; i++)
        id[1 + i] = letters[random[i] & 31];
    id[13] = '\0';
}

static bool for_people;

void front_log_open(void)
{
    for_people = isatty(STDERR_FILENO);
}

bool front_log_is_for_people(void)
{
    return for_people;
}

/* "carrel: the keeper is gone (error: No such file or directory)" */
static void log_in_words(const char *message, va_list args)
{
    char storage[2048];
    struct buf line;
    unsigned n = 0;

    buf_init_fixed(&line, storage, sizeof storage - 1);
    buf_printf(&line, "carrel: %s", message);
    for (const char *key = va_arg(args, const char *); key; key = va_arg(args, const char *)) {
        const char *value = va_arg(args, const char *);
        buf_printf(&line, "%s%s: ", n++ ? ", " : " (", key);
        for (; *value; value++)         /* it may be a stranger's: drop all that a terminal obeys */
            buf_add_char(&line, (unsigned char)*value < 32 || *value == 127 ? '?' : *value);
    }
    buf_add_text(&line, n ? ")\n" : "\n");
    (void)!write(STDERR_FILENO, storage, line.length);
}

void front_log(const char *level, const char *message, ...)
{
    if (for_people) {
        va_list words;
        va_start(words, message);
        log_in_words(message, words);
        va_end(words);
        return;
    }
    char storage[2048], now[32];
    struct buf line;
    struct jsonout j;
    va_list args;

    buf_init_fixed(&line, storage, sizeof storage - 1);
    front_time_text(front_now_ms(), now);
    jsonout_init(&j, &line);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "time", now);
    jsonout_string(&j, "level", level);
    jsonout_string(&j, "message", message);
    va_start(args, message);
    for (const char *key = va_arg(args, const char *); key; key = va_arg(args, const char *))
        jsonout_string(&j, key, va_arg(args, const char *));
    va_end(args);
    jsonout_close(&j);
    int r = jsonout_finish(&j);
    storage[line.length] = '\n';
    if (r == 0)
        (void)!write(STDERR_FILENO, storage, line.length + 1);
}

void front_make_utf8(char *text)
{
    for (size_t n = 1; *text; text += n) {
        size_t left = strnlen(text, 4);
        for (n = 1; n <= left && !wsframe_is_utf8(text, n); n++)
            ;
        if (n > left) {
            *text = '?';
            n = 1;
        }
    }
}
