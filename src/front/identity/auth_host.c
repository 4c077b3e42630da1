/* See auth_host.h. Hosts are compared by meaning: addresses as bytes, names in lower case without the final dot.
 * Spellings of an address that a browser normalizes before it sends them (127.1, 0x7f000001) are refused: no honest
 * client sends them, and a proxy might read them differently. */
#include "front/identity/auth_host.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Digits up to the end, or nothing. */
static int parse_port(struct http_text text, int *ret)
{
    int port = 0;

    if (!text.size) {
        *ret = -1;
        return 0;
    }
    if (text.size > 5)
        return -EINVAL;
    for (size_t i = 0; i < text.size; i++) {
        if (!isdigit((unsigned char)text.data[i]))
            return -EINVAL;
        port = port * 10 + (text.data[i] - '0');
    }
    if (port == 0 || port > 65535)
        return -EINVAL;
    *ret = port;
    return 0;
}

/* h->name has the text. */
static int set_ipv6(struct host *h)
{
    struct in6_addr address;

    if (inet_pton(AF_INET6, h->name, &address) != 1)
        return -EINVAL;
    if (IN6_IS_ADDR_V4MAPPED(&address)) {
        h->kind = HOST_IPV4;
        memcpy(h->address, address.s6_addr + 12, 4);
        return inet_ntop(AF_INET, h->address, h->name, sizeof h->name) ? 0 : -EINVAL;
    }
    h->kind = HOST_IPV6;
    memcpy(h->address, &address, 16);
    return inet_ntop(AF_INET6, &address, h->name, sizeof h->name) ? 0 : -EINVAL;
}

/* A name whose last label is a number is an address to every resolver. */
static bool looks_like_ipv4(const char *name)
{
    const char *last = strrchr(name, '.');

    last = last ? last + 1 : name;
    if (last[0] == '0' && last[1] == 'x')
        return last[2 + strspn(last + 2, "0123456789abcdef")] == 0;
    return last[strspn(last, "0123456789")] == 0;
}

/* h->name has the text, in lower case. */
static int set_name(struct host *h)
{
    size_t length = strlen(h->name), label = 0;

    if (length && h->name[length - 1] == '.')
        h->name[--length] = 0;
    if (!length)
        return -EINVAL;
    for (size_t i = 0; i <= length; i++) {
        char c = h->name[i];
        if (c == '.' || c == 0) {
            if (label == 0 || label > 63)
                return -EINVAL;
            label = 0;
        } else if (isalnum((unsigned char)c) || c == '-' || c == '_') {
            label++;
        } else {
            return -EINVAL;
        }
    }
    if (!looks_like_ipv4(h->name))
        return 0;
    h->kind = HOST_IPV4;
    return inet_pton(AF_INET, h->name, h->address) == 1 ? 0 : -EINVAL;
}

int host_parse(struct http_text text, struct host *ret)
{
    struct host h = { .port = -1 };
    bool has_brackets = text.size && text.data[0] == '[';
    const char *end = text.size ? memchr(text.data, has_brackets ? ']' : ':', text.size) : NULL;
    size_t start = has_brackets, length = end ? (size_t)(end - text.data) - start : text.size;
    size_t rest = start + length + has_brackets;
    int r;

    if ((has_brackets && !end) || length >= sizeof h.name || length == 0)
        return -EINVAL;
    for (size_t i = 0; i < length; i++)     /* a NUL ends the name early, so the lengths differ */
        h.name[i] = (char)tolower((unsigned char)text.data[start + i]);
    if (strlen(h.name) != length)
        return -EINVAL;
    r = has_brackets ? set_ipv6(&h) : set_name(&h);
    if (r < 0)
        return r;
    if (rest < text.size) {
        if (text.data[rest] != ':')
            return -EINVAL;
        rest++;
        r = parse_port((struct http_text){ text.data + rest, text.size - rest }, &h.port);
        if (r < 0)
            return r;
    }
    *ret = h;
    return 0;
}

int origin_parse(struct http_text text, struct origin *ret)
{
    static const char http[] = "http://", https[] = "https://";
    struct origin o = { 0 };
    size_t skip;

    if (text.size > strlen(https) && !strncasecmp(text.data, https, strlen(https))) {
        o.is_https = true;
        skip = strlen(https);
    } else if (text.size > strlen(http) && !strncasecmp(text.data, http, strlen(http))) {
        skip = strlen(http);
    } else {
        return -EINVAL;
    }
    int r = host_parse((struct http_text){ text.data + skip, text.size - skip }, &o.host);
    if (r < 0)
        return r;
    if (o.host.port < 0)
        o.host.port = o.is_https ? 443 : 80;
    *ret = o;
    return 0;
}

void origin_format(const struct origin *o, char *text, size_t size)
{
    bool is_v6 = o->host.kind == HOST_IPV6;
    char port[16] = "";

    if (o->host.port != (o->is_https ? 443 : 80))
        snprintf(port, sizeof port, ":%d", o->host.port);
    snprintf(text, size, "%s://%s%s%s%s", o->is_https ? "https" : "http", is_v6 ? "[" : "", o->host.name,
             is_v6 ? "]" : "", port);
}

bool host_is_loopback(const struct host *h)
{
    static const char suffix[] = ".localhost";
    size_t length = strlen(h->name);

    if (h->kind == HOST_IPV4)
        return h->address[0] == 127;
    if (h->kind == HOST_IPV6)
        return !memcmp(h->address, &in6addr_loopback, 16);
    return !strcmp(h->name, "localhost") ||
           (length >= sizeof suffix && !strcmp(h->name + length - (sizeof suffix - 1), suffix));
}

bool host_is_any(const struct host *h)
{
    static const unsigned char zero[16];

    return h->kind != HOST_NAME && !memcmp(h->address, zero, h->kind == HOST_IPV4 ? 4 : 16);
}

bool host_same(const struct host *a, const struct host *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == HOST_NAME)
        return !strcmp(a->name, b->name);
    return !memcmp(a->address, b->address, a->kind == HOST_IPV4 ? 4 : 16);
}

int auth_rules_init(struct auth_rules *rules, const struct config *config, struct err *e)
{
    *rules = (struct auth_rules){ .has_listen = config->listen[0] != 0 };
    if (rules->has_listen &&
        host_parse((struct http_text){ config->listen, strlen(config->listen) }, &rules->listen) < 0)
        return err_set(e, EINVAL, STEP_USAGE, "listen: %s is not ADDRESS:PORT", config->listen);
    for (uint32_t i = 0; i < config->n_origins; i++) {
        const char *text = config->origin[i];
        if (origin_parse((struct http_text){ text, strlen(text) }, &rules->origin[rules->n_origins++]) < 0)
            return err_set(e, EINVAL, STEP_USAGE, "origins: %s is not an origin such as https://example.org", text);
    }
    return 0;
}

bool auth_host_allowed(const struct auth_rules *rules, const struct host *h)
{
    if (host_is_any(h)) /* browsers resolve 0.0.0.0 to this machine; no user should use it */
        return false;
    if (host_is_loopback(h))
        return true;
    if (rules->has_listen && host_same(h, &rules->listen))
        return true;
    if (rules->has_listen && host_is_any(&rules->listen) && h->kind != HOST_NAME)
        return true;
    for (unsigned i = 0; i < rules->n_origins; i++)
        if (host_same(h, &rules->origin[i].host))
            return true;
    return false;
}

bool auth_origin_allowed(const struct auth_rules *rules, const struct origin *o, const struct host *h)
{
    int own = o->is_https ? 443 : 80;

    if (host_same(&o->host, h) && o->host.port == (h->port < 0 ? own : h->port))
        return true;
    for (unsigned i = 0; i < rules->n_origins; i++)
        if (rules->origin[i].is_https == o->is_https && rules->origin[i].host.port == o->host.port &&
            host_same(&rules->origin[i].host, &o->host))
            return true;
    return false;
}

static int forbid(const char *why, const char **ret_why)
{
    *ret_why = why;
    return 403;
}

/* A request that a foreign page made without Origin: an image, a script, a form. Following a link to us is no
 * attack. */
static bool is_foreign_fetch(const struct auth_source *s)
{
    if (!s->site.data || http_text_is(s->site, "same-origin") || http_text_is(s->site, "none"))
        return false;
    return !(s->is_get && http_text_is(s->mode, "navigate") && http_text_is(s->dest, "document"));
}

int auth_source_check(const struct auth_rules *rules, const struct auth_source *s, const char **ret_why)
{
    struct host host;
    struct origin origin;

    if (!s->origin.data && is_foreign_fetch(s))
        return forbid("the request was made by a page of another site", ret_why);
    if (s->is_unix && !s->origin.data)
        return 0;
    if (s->many_origins)
        return forbid("the request has more than one Origin", ret_why);
    if (host_parse(s->host, &host) < 0)
        return forbid("the Host of the request is missing or not understood", ret_why);
    if (!auth_host_allowed(rules, &host))
        return forbid("the Host of the request is not a name of this server; "
                      "use localhost, the address it listens on, or a host named in 'origins'", ret_why);
    if (!s->origin.data)
        return 0;
    if (origin_parse(s->origin, &origin) < 0 || !auth_origin_allowed(rules, &origin, &host))
        return forbid("pages of this Origin may not use this server; add it to 'origins'", ret_why);
    return 0;
}

/* Some programs send an Origin as well; a WebSocket of some browsers lacks Sec-Fetch-Site. A page controls neither that
 * field nor, where it is missing, User-Agent. */
static bool is_browser_at_work(const struct auth_source *s)
{
    static const char agent[] = "Mozilla/";

    if (s->site.data)
        return !http_text_is(s->site, "none");
    return s->origin.data && s->agent.size >= sizeof agent - 1 && !memcmp(s->agent.data, agent, sizeof agent - 1);
}

bool auth_source_is_page(const struct auth_rules *rules, const struct auth_source *s)
{
    struct origin origin = { 0 };
    bool has_origin = s->origin.data != NULL;

    if (!is_browser_at_work(s))
        return false;
    if ((has_origin ? origin_parse(s->origin, &origin) : host_parse(s->host, &origin.host)) < 0)
        return true;
    for (unsigned i = 0; i < rules->n_origins; i++) {
        const struct origin *known = &rules->origin[i];
        int port = origin.host.port < 0 ? (known->is_https ? 443 : 80) : origin.host.port;
        if (host_same(&known->host, &origin.host) && known->host.port == port
            && (!has_origin || known->is_https == origin.is_https))
            return false;
    }
    return true;
}
