/* The index that packages come from. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "cli/layers/layers.h"

#ifndef CARREL_INDEX
#define CARREL_INDEX ""     /* a default set at build time */
#endif

/* ---- the index ---- */

/* "index-url = ADDRESS" or "index_url: ADDRESS" of the section [global] or [install]. */
static bool read_pip_file(const char *path, char ret[INDEX_MAX])
{
    char line[1024], section[32] = "";
    FILE *file = fopen(path, "re");
    bool found = false;

    while (file && fgets(line, sizeof line, file)) {
        char *at = line + strspn(line, " \t"), *equals = strpbrk(at, "=:");
        line[strcspn(line, "\r\n")] = '\0';
        if (at[0] == '[')
            snprintf(section, sizeof section, "%.*s", (int)strcspn(at + 1, "]"), at + 1);
        if (!equals || (strncmp(at, "index-url", 9) != 0 && strncmp(at, "index_url", 9) != 0)
            || (strcmp(section, "global") != 0 && strcmp(section, "install") != 0))
            continue;
        equals += 1 + strspn(equals + 1, " \t");
        found = snprintf(ret, INDEX_MAX, "%.*s", (int)strcspn(equals, " \t"), equals) < INDEX_MAX;
    }
    if (file)
        fclose(file);
    return found;
}

static bool find_configured(char ret[INDEX_MAX])
{
    static const char *const variables[] = { "UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL" };
    const char *own = getenv("PIP_CONFIG_FILE"), *home = getenv("HOME"), *config = getenv("XDG_CONFIG_HOME");
    char path[PATH_MAX];

    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = getenv(variables[i]);
        if (value && value[0])
            return snprintf(ret, INDEX_MAX, "%s", value) < INDEX_MAX;
    }
    if (own && read_pip_file(own, ret))
        return true;
    if (config && config[0] == '/')
        snprintf(path, sizeof path, "%s/pip/pip.conf", config);
    else
        snprintf(path, sizeof path, "%s/.config/pip/pip.conf", home ? home : "");
    if (read_pip_file(path, ret))
        return true;
    snprintf(path, sizeof path, "%s/.pip/pip.conf", home ? home : "");
    return read_pip_file(path, ret) || read_pip_file("/etc/xdg/pip/pip.conf", ret)
           || read_pip_file("/etc/pip.conf", ret);
}

int index_find(char ret[INDEX_MAX], struct err *e)
{
    if (!find_configured(ret) && snprintf(ret, INDEX_MAX, "%s", CARREL_INDEX) == 0)
        return err_set(e, ENOENT, STEP_USAGE, "no index of packages is known here; name one in PIP_INDEX_URL or as "
                       "'index-url' in /etc/pip.conf");
    char rule[INDEX_MAX];
    return index_rule(ret, rule, sizeof rule, e);
}

void index_name(char ret[INDEX_MAX])
{
    if (!find_configured(ret))
        snprintf(ret, INDEX_MAX, "%s", CARREL_INDEX);
    char *host = strstr(ret, "://");
    host = host ? host + 3 : ret;
    size_t length = strcspn(host, "/?#");
    for (size_t at = length; at > 0; at--)
        if (host[at - 1] == '@') {
            memmove(host, host + at, strlen(host + at) + 1);
            break;
        }
    for (size_t n = strlen(ret); n && ret[n - 1] == '/'; n--)
        ret[n - 1] = '\0';
}

int index_rule(const char *url, char *ret, size_t size, struct err *e)
{
    bool is_tls = strncmp(url, "https://", 8) == 0;
    const char *host = is_tls ? url + 8 : strncmp(url, "http://", 7) == 0 ? url + 7 : NULL;
    size_t length = host ? strcspn(host, "/?#") : 0;

    for (const char *c = url; *c; c++)
        if (!isgraph((unsigned char)*c))
            host = NULL;
    if (!host || length == 0)
        return err_set(e, EINVAL, STEP_USAGE, "the index of packages '%s' is not an address like "
                       "https://index.example.org/simple", parse_quote(url).text);
    if (memchr(host, '@', length))
        return err_set(e, EINVAL, STEP_USAGE, "the configured index of packages has a user name or a password in its "
                       "address, which code of packages could read; name one without in UV_DEFAULT_INDEX");
    bool has_port = memchr(host, ':', length) && host[length - 1] != ']';
    if (snprintf(ret, size, "%.*s%s", (int)length, host, has_port ? "" : is_tls ? ":443" : ":80") >= (int)size)
        return err_set(e, EINVAL, STEP_USAGE, "the address of the index of packages is too long");
    return 0;
}
