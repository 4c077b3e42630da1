/* Cookies of a server behind the proxy: whatever it says, what a browser reads of the result holds below the server's
 * own path. The first byte says whether the client asked for that path itself. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http/proxy_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TOP   "/v1/boxes/b/ports/80"
#define ALIAS "/v1/boxes/name/ports/80"

static void check(bool fine)
{
    if (!fine)
        abort();
}

static bool is_below(const char *path, const char *top)
{
    size_t size = strlen(top);
    return strncmp(path, top, size) == 0 && (path[size] == '/' || path[size] == '\0');
}

/* As a browser reads it, with its own means: it changes the text. */
static void check_attributes(char *text, bool at_top)
{
    const char *path = NULL;
    char *rest = text, *part;

    check(strncasecmp(text + strspn(text, " \t"), "__Host-", 7) != 0);
    (void)strsep(&rest, ";");
    while ((part = strsep(&rest, ";"))) {
        char *name = strsep(&part, "=");
        name += strspn(name, " \t");
        for (size_t n = strlen(name); n && strchr(" \t", name[n - 1]);)
            name[--n] = '\0';
        check(strcasecmp(name, "Domain") != 0);
        if (strcasecmp(name, "Path") == 0) {
            check(!path && part);
            path = part + strspn(part, " \t");
        }
    }
    check(path ? strlen(path) <= 1024 && (is_below(path, TOP) || is_below(path, ALIAS)) : !at_top);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    const char *made;

    if (!size)
        return 0;
    struct http_text cookie = { (const char *)data + 1, size - 1 };
    if (!http_is_field_value(cookie))
        return 0;
    arena_init(&arena, NULL, 0);
    check(proxy_cookie_confine(&arena, cookie, TOP, ALIAS, data[0] & 1, &made) == 0);
    if (made) {
        check(http_is_field_value((struct http_text){ made, strlen(made) }));
        char *text = strdup(made);
        check(text != NULL);
        check_attributes(text, data[0] & 1);
        free(text);
    }
    arena_reset(&arena);
    return 0;
}
