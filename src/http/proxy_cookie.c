/* Cookies of a server that has only one path of the origin. A browser would send a cookie with Path=/ to every server
 * at the origin, and a cookie with a Domain to other hosts of it. So the path is moved below the server's own and the
 * domain is removed. The text is cut as browsers cut it (RFC 6265, 5.2): at every semicolon, quotes have no meaning,
 * and the last of several attributes with one name counts. */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "http/proxy_private.h"

#define PATH_MOST 1024      /* browsers ignore a longer attribute and choose a path themselves */

/* Cuts the text before the next semicolon off the front of rest; at its end data is NULL. */
static struct http_text cut(struct http_text *rest)
{
    const char *end = memchr(rest->data, ';', rest->size);
    struct http_text part = { rest->data, end ? (size_t)(end - rest->data) : rest->size };

    rest->size -= part.size + (end != NULL);
    rest->data = end ? end + 1 : NULL;
    return part;
}

static struct http_text name_of(struct http_text part, struct http_text *ret_value)
{
    const char *equals = memchr(part.data, '=', part.size);
    size_t size = equals ? (size_t)(equals - part.data) : part.size;

    *ret_value = equals ? http_text_trim((struct http_text){ equals + 1, part.size - size - 1 })
                        : (struct http_text){ part.data + size, 0 };
    return http_text_trim((struct http_text){ part.data, size });
}

static bool is_below(struct http_text path, const char *top)
{
    size_t size = strlen(top);

    return path.size >= size && memcmp(path.data, top, size) == 0 && (path.size == size || path.data[size] == '/');
}

static char *add(char *to, const char *data, size_t size)
{
    if (size)
        memcpy(to, data, size);
    return to + size;
}

/* The path to which browsers will confine the cookie; the server asked for path. */
static char *add_path(char *to, struct http_text path, const char *top, const char *alias, bool at_top)
{
    bool is_known = is_below(path, top) || (alias && is_below(path, alias));
    struct http_text above = { top, is_known ? 0 : strlen(top) };

    if (!path.size || path.data[0] != '/') {
        if (!at_top)        /* browsers use the folder of the request, which is below top */
            return to;
        path.size = 0;
    }
    if (path.size == 1 || above.size + path.size > PATH_MOST) {
        above.size = strlen(top);
        path.size = 0;
    }
    to = add(to, "; Path=", 7);
    to = add(to, above.data, above.size);
    return add(to, path.data, path.size);
}

int proxy_cookie_confine(struct arena *a, struct http_text cookie, const char *top, const char *alias, bool at_top,
                         const char **ret)
{
    static const char whole[] = "__Host-";
    struct http_text path = { "", 0 }, value, first = cut(&cookie);

    /* Browsers accept such a name with Path=/ only. */
    struct http_text start = http_text_trim(first);
    *ret = NULL;
    if (start.size >= sizeof whole - 1 && strncasecmp(start.data, whole, sizeof whole - 1) == 0)
        return 0;
    char *text = arena_alloc(a, first.size + cookie.size + strlen(top) + PATH_MOST + sizeof "; Path=" + 1);
    if (!text)
        return -ENOMEM;
    char *end = add(text, first.data, first.size);
    while (cookie.data) {
        struct http_text part = cut(&cookie), name = name_of(part, &value);
        if (http_text_is_nocase(name, "Path")) {
            path = value;
        } else if (!http_text_is_nocase(name, "Domain")) {
            *end++ = ';';
            end = add(end, part.data, part.size);
        }
    }
    end = add_path(end, path, top, alias, at_top);
    *end = '\0';
    *ret = text;
    return 0;
}
