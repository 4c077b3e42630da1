/* Small pure functions: hashes, times, the ports of a Service. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/jsonout.h"
#include "cluster/object.h"
#include "cluster/texts.h"

enum { PORTS_MAX = 128 };

const char *texts_add(struct texts *t, const char *format, ...)
{
    va_list args;
    char *at = t->data + t->used;
    size_t room = sizeof t->data - t->used;

    va_start(args, format);
    int n = vsnprintf(at, room, format, args);
    va_end(args);
    if (n < 0)
        return "";
    t->used += (size_t)n < room ? (size_t)n + 1 : room;
    if (t->used == sizeof t->data)
        t->used--;
    return at;
}

bool texts_are_same(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

void hash_name(const char *name, char text[static 9])
{
    uint32_t h = 2166136261u;

    for (const unsigned char *p = (const unsigned char *)name; *p; p++)
        h = (h ^ *p) * 16777619u;
    snprintf(text, 9, "%08x", h);
}

uint64_t hash_bytes(uint64_t seed, const void *data, size_t size)
{
    const unsigned char *p = data;

    for (size_t i = 0; i < size; i++)
        seed = (seed ^ p[i]) * UINT64_C(0x100000001b3);
    return seed;
}

/* n digits; -1 if there are fewer. */
static int digits(const char *at, int n)
{
    int value = 0;

    for (int i = 0; i < n; i++) {
        if (at[i] < '0' || at[i] > '9')
            return -1;
        value = value * 10 + (at[i] - '0');
    }
    return value;
}

bool time_parse_us(const char *text, int64_t *ret)
{
    static const char pattern[] = "dddd-dd-ddTdd:dd:dd";
    int64_t offset = 0, us = 0, weight = 100000;

    for (size_t i = 0; i < sizeof pattern - 1; i++)
        if (pattern[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != pattern[i])
            return false;
    struct tm tm = { .tm_year = digits(text, 4) - 1900,
                     .tm_mon = digits(text + 5, 2) - 1,
                     .tm_mday = digits(text + 8, 2),
                     .tm_hour = digits(text + 11, 2),
                     .tm_min = digits(text + 14, 2),
                     .tm_sec = digits(text + 17, 2) };
    if (tm.tm_year < 70 || tm.tm_mon < 0 || tm.tm_mon > 11 || tm.tm_mday < 1 || tm.tm_mday > 31 || tm.tm_hour > 23 ||
        tm.tm_min > 59 || tm.tm_sec > 60)
        return false;
    const char *at = text + sizeof pattern - 1;
    if (*at == '.')
        for (at++; *at >= '0' && *at <= '9'; at++, weight /= 10)
            us += (*at - '0') * weight;
    if (*at == '+' || *at == '-') {
        if (strlen(at) != 6 || at[3] != ':' || digits(at + 1, 2) < 0 || digits(at + 4, 2) < 0)
            return false;
        offset = (int64_t)(digits(at + 1, 2) * 60 + digits(at + 4, 2)) * (*at == '-' ? -60 : 60);
    } else if (*at != 'Z' || at[1]) {
        return false;
    }
    *ret = (timegm(&tm) - offset) * 1000000 + us;
    return true;
}

bool time_parse(const char *text, int64_t *ret)
{
    int64_t us;

    if (!time_parse_us(text, &us))
        return false;
    *ret = us / 1000000;
    return true;
}

void time_write(int64_t seconds, char text[static 24])
{
    struct tm tm;
    time_t t = (time_t)seconds;

    if (!gmtime_r(&t, &tm) || strftime(text, 24, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        snprintf(text, 24, "1970-01-01T00:00:00Z");
}

void time_write_us(int64_t us, char text[static 32])
{
    char seconds[24];

    time_write(us / 1000000, seconds);
    snprintf(text, 32, "%.19s.%06lldZ", seconds, (long long)(us % 1000000));
}

void conditions_write(struct jsonslice conditions, struct buf *out)
{
    static const char *const members[] = { "type", "status", "reason", "message", "lastTransitionTime" };
    struct jsonwalk w = jsonscan_walk(conditions);
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_array(&j, NULL);
    while (jsonscan_next(&w)) {
        jsonout_open_object(&j, NULL);
        for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
            struct jsonslice value = jsonscan_find(w.value, members[i]);
            if (jsonscan_inside(value).size > 0)
                jsonout_raw(&j, members[i], value.data, value.size);
        }
        jsonout_close(&j);
    }
    jsonout_close(&j);
    if (jsonout_finish(&j) < 0)
        out->failure = out->failure ? out->failure : EINVAL;
}

/* ---- ports ---- */

struct port {
    unsigned long long number;
    char protocol[8];
    char name[64];      /* "" until it is named */
};

static bool name_is_taken(const struct port *all, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i].name, name) == 0)
            return true;
    return false;
}

static void add_container(struct jsonslice container, struct port *all, size_t *n)
{
    struct jsonwalk w = jsonscan_walk(jsonscan_find(container, "ports"));

    while (jsonscan_next(&w)) {
        struct port p = { .protocol = "TCP" };
        struct jsonslice name = jsonscan_find(w.value, "name");
        size_t i = 0;
        if (!jsonscan_number(jsonscan_find(w.value, "containerPort"), &p.number) || p.number == 0 || p.number > 65535)
            continue;
        if (!jsonscan_text(jsonscan_find(w.value, "protocol"), p.protocol, sizeof p.protocol) || !p.protocol[0])
            memcpy(p.protocol, "TCP", 4);
        if (!jsonscan_text(name, p.name, sizeof p.name))
            p.name[0] = '\0';
        while (i < *n && (all[i].number != p.number || strcmp(all[i].protocol, p.protocol) != 0))
            i++;
        bool taken = p.name[0] && name_is_taken(all, *n, p.name);
        if (i < *n) {
            if (!all[i].name[0] && !taken)
                memcpy(all[i].name, p.name, sizeof p.name);
        } else if (*n < PORTS_MAX) {
            if (taken)
                p.name[0] = '\0';
            all[(*n)++] = p;
        }
    }
}

static int compare_ports(const void *a, const void *b)
{
    const struct port *x = a, *y = b;

    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return strcmp(x->protocol, y->protocol);
}

static void write_port(struct jsonout *j, const struct port *p)
{
    jsonout_open_object(j, NULL);
    jsonout_string(j, "name", p->name);
    jsonout_unsigned(j, "port", p->number);
    jsonout_string(j, "protocol", p->protocol);
    jsonout_unsigned(j, "targetPort", p->number);
    jsonout_close(j);
}

void ports_write(struct jsonslice pod_spec, struct buf *out)
{
    struct port all[PORTS_MAX];
    size_t n = 0;
    struct jsonout j;
    struct jsonwalk w = jsonscan_walk(jsonscan_find(pod_spec, "containers"));

    while (jsonscan_next(&w))
        add_container(w.value, all, &n);
    w = jsonscan_walk(jsonscan_find(pod_spec, "initContainers"));
    while (jsonscan_next(&w))
        if (jsonscan_is(jsonscan_find(w.value, "restartPolicy"), "Always"))
            add_container(w.value, all, &n);
    if (n > 1)
        qsort(all, n, sizeof *all, compare_ports);
    jsonout_init(&j, out);
    jsonout_open_array(&j, NULL);
    for (size_t i = 0; i < n; i++) {
        char base[32], name[48];
        snprintf(base, sizeof base, "p-%llu-%s", all[i].number,
                 !strcmp(all[i].protocol, "TCP") ? "tcp" : !strcmp(all[i].protocol, "UDP") ? "udp" : "sctp");
        snprintf(name, sizeof name, "%s", base);
        for (unsigned k = 2; !all[i].name[0] && name_is_taken(all, n, name); k++)
            snprintf(name, sizeof name, "%s-%u", base, k);
        if (!all[i].name[0])
            memcpy(all[i].name, name, sizeof name);
        write_port(&j, &all[i]);
    }
    jsonout_close(&j);
    if (jsonout_finish(&j) < 0)
        out->failure = out->failure ? out->failure : EINVAL;
}

void ports_write_own(struct jsonslice ports, struct buf *out)
{
    struct jsonwalk w = jsonscan_walk(ports);
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_array(&j, NULL);
    while (jsonscan_next(&w)) {
        struct port p = { .protocol = "TCP" };
        unsigned long long target;
        (void)jsonscan_number(jsonscan_find(w.value, "port"), &p.number);
        (void)jsonscan_text(jsonscan_find(w.value, "name"), p.name, sizeof p.name);
        (void)jsonscan_text(jsonscan_find(w.value, "protocol"), p.protocol, sizeof p.protocol);
        if (!jsonscan_number(jsonscan_find(w.value, "targetPort"), &target) || target != p.number)
            memcpy(p.protocol, "?", 2);     /* never one of ours */
        write_port(&j, &p);
    }
    jsonout_close(&j);
    if (jsonout_finish(&j) < 0)
        out->failure = out->failure ? out->failure : EINVAL;
}
