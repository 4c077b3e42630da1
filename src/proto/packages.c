#include "proto/packages.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"

static const char operators[] = "<>=!~";

void packages_done(struct packages *p)
{
    free(p->text);
    *p = (struct packages){ 0 };
}

static int add(struct packages *p, const char *name, const char *at, size_t length, struct err *e)
{
    if (!p->text && !(p->text = malloc(PACKAGES_BYTES)))
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "packages");
    if (p->n == PACKAGES_LINES || p->used + length + 1 > PACKAGES_BYTES)
        return err_set(e, E2BIG, STEP_USAGE, "%s: more than %d packages, or more than %d KiB", name, PACKAGES_LINES,
                       PACKAGES_BYTES >> 10);
    p->line[p->n] = p->text + p->used;
    memcpy(p->line[p->n], at, length);
    p->line[p->n++][length] = '\0';
    p->used += length + 1;
    return 0;
}

static size_t skip_space(const char *at)
{
    return strspn(at, " \t");
}

/* --hash=sha256:HEX, or a longer one. A shorter one (md5) proves nothing, and uv takes it. */
static bool is_hash(const char *word)
{
    static const struct {
        const char *name;
        size_t      digits;
    } kinds[] = { { "--hash=sha256:", 64 }, { "--hash=sha384:", 96 }, { "--hash=sha512:", 128 } };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t length = strlen(kinds[i].name), digits = kinds[i].digits;
        if (strncmp(word, kinds[i].name, length) == 0)
            return strspn(word + length, "0123456789abcdefABCDEF") == digits && strchr(" \t", word[length + digits]);
    }
    return false;
}

/* NAME, [extras] and the rest: versions, a marker, hashes. Returns the error, or NULL. */
static const char *find_fault(const char *line)
{
    size_t n = 0;

    for (const char *c = line; *c; c++)
        if (!isprint((unsigned char)*c) && *c != '\t')
            return "it has a character that no requirement has";
    if (line[0] == '-')
        return "options are not taken: packages come from this machine's index, by name";
    while (isalnum((unsigned char)line[n]) || (n && strchr("._-", line[n]) && line[n]))
        n++;
    if (n == 0 || line[n] == '/' || strstr(line, "://") || strncmp(line + n + skip_space(line + n), "@", 1) == 0)
        return "only names and versions are taken, no paths and no addresses";
    if (!isalnum((unsigned char)line[n - 1]))
        return "a name ends with a letter or a digit";
    n += skip_space(line + n);
    if (line[n] == '[') {
        size_t inner = strspn(line + n + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-, ");
        if (line[n + 1 + inner] != ']')
            return "its extras end with ]";
        n += inner + 2;
        n += skip_space(line + n);
    }
    if (line[n] && !strchr(operators, line[n]) && !strchr(";(", line[n]) && strncmp(line + n, "--hash=", 7) != 0)
        return "after the name come versions, like ==1.26.* or >=2,<3";
    /* Options may follow a requirement. */
    for (const char *dash = strchr(line + n, '-'); dash; dash = strchr(dash + 1, '-')) {
        if (!strchr(" \t", dash[-1]))
            continue;
        if (strncmp(dash, "--hash=", 7) != 0)
            return "options are not taken: packages come from this machine's index, by name";
        if (!is_hash(dash))
            return "a hash is --hash=sha256: with 64 digits, or of sha384 or sha512";
    }
    return NULL;
}

static int add_line(struct packages *p, const char *name, unsigned number, const char *at, size_t length, struct err *e)
{
    char line[PACKAGES_LINE], where[24] = "";

    while (length && isspace((unsigned char)at[length - 1]))
        length--;
    while (length && isspace((unsigned char)*at))
        at++, length--;
    if (length == 0)
        return 0;
    if (number)
        snprintf(where, sizeof where, ", line %u", number);
    if (length >= sizeof line)
        return err_set(e, EINVAL, STEP_USAGE, "%s%s is longer than %d bytes", name, where, PACKAGES_LINE - 1);
    memcpy(line, at, length);
    line[length] = '\0';
    const char *fault = find_fault(line);
    if (fault)
        return err_set(e, EINVAL, STEP_USAGE, "%s%s: '%s': %s", name, where, parse_quote(line).text, fault);
    return add(p, name, line, length, e);
}

/* Whether another requirement begins after a comma or a space: a requirement never begins with an operator, and the
 * parts of a requirement begin with one or follow one. */
static bool begins_next(const char *words, size_t at)
{
    size_t before = at, after = at + 1;

    while (before && isspace((unsigned char)words[before - 1]))
        before--;
    after += skip_space(words + after);
    return before && isalnum((unsigned char)words[after]) && !strchr(operators, words[before - 1])
           && words[before - 1] != ',';
}

int packages_add(struct packages *p, const char *name, const char *words, struct err *e)
{
    size_t from = 0, at = 0;
    bool in_extras = false, in_marker = false;
    int r = 0;

    if (!words[skip_space(words)])
        return err_set(e, EINVAL, STEP_USAGE, "%s is empty; name a package, like 'numpy<2'", name);
    for (; words[at] && r == 0; at++) {
        in_extras = words[at] == '[' || (in_extras && words[at] != ']');
        in_marker |= words[at] == ';';
        if (in_extras || in_marker || !strchr(", \t", words[at]) || !begins_next(words, at))
            continue;
        r = add_line(p, name, 0, words + from, at - from, e);
        from = at + 1;
    }
    return r < 0 ? r : add_line(p, name, 0, words + from, at - from, e);
}

int packages_add_file(struct packages *p, const char *name, const char *text, struct err *e)
{
    char line[PACKAGES_LINE];
    unsigned number = 0, first = 0;
    size_t length = 0;

    while (*text) {
        size_t part = strcspn(text, "\n"), end = part;
        const char *next = text + part + (text[part] == '\n');
        number++;
        first = length ? first : number;
        /* A comment begins the line, or follows a space. */
        for (size_t i = 0; i < part && end == part; i++)
            if (text[i] == '#' && (i == 0 || isspace((unsigned char)text[i - 1])))
                end = i;
        while (end && isspace((unsigned char)text[end - 1]))
            end--;
        bool goes_on = end == part - (part && text[part - 1] == '\r') && end && text[end - 1] == '\\';
        end -= goes_on;
        if (length + end + 2 > sizeof line)
            return err_set(e, EINVAL, STEP_USAGE, "%s, line %u is longer than %d bytes", name, first,
                           PACKAGES_LINE - 2);
        memcpy(line + length, text, end);
        length += end;
        text = next;
        if (goes_on && *text) {
            line[length++] = ' ';
            continue;
        }
        int r = add_line(p, name, first, line, length, e);
        if (r < 0)
            return r;
        length = 0;
    }
    return 0;
}

int packages_read_file(struct packages *p, const char *name, const char *path, struct err *e)
{
    static char text[PACKAGES_BYTES];
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(text, 1, sizeof text, file) : 0;

    if (!file || ferror(file)) {
        int r = err_file(e, errno, "%s %s", name, parse_quote_path(path).text);
        if (file)
            fclose(file);
        return r;
    }
    fclose(file);
    if (n == sizeof text || memchr(text, 0, n))
        return err_set(e, EINVAL, STEP_USAGE, "%s %s: %s", name, parse_quote_path(path).text,
                       n == sizeof text ? "the file is too long" : "the file is no text");
    text[n] = '\0';
    return packages_add_file(p, path, text, e);
}

size_t packages_name_length(const char *requirement)
{
    size_t n = 0;

    while (isalnum((unsigned char)requirement[n]) || (requirement[n] && strchr("-_.", requirement[n])))
        n++;
    return n;
}

static char plain(char c)
{
    return c == '_' || c == '.' ? '-' : (char)tolower((unsigned char)c);
}

bool packages_has(const struct packages *p, const char *name, size_t length)
{
    for (size_t i = 0; i < p->n; i++) {
        size_t k = 0;
        while (k < length && plain(p->line[i][k]) == plain(name[k]))
            k++;
        if (k == length && packages_name_length(p->line[i]) == length)
            return true;
    }
    return false;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void packages_sort(struct packages *p)
{
    size_t kept = 0;

    if (p->n)
        qsort(p->line, p->n, sizeof *p->line, compare);
    for (size_t i = 0; i < p->n; i++)
        if (i == 0 || strcmp(p->line[i], p->line[kept - 1]) != 0)
            p->line[kept++] = p->line[i];
    p->n = kept;
}

char *packages_join(const struct packages *p)
{
    char *text = malloc(p->used + 1), *at = text;

    for (size_t i = 0; text && i < p->n; i++) {
        size_t length = strlen(p->line[i]);
        memcpy(at, p->line[i], length);
        at += length;
        *at++ = '\n';
    }
    if (text)
        *at = '\0';
    return text;
}

void packages_key(const struct packages *p, const char *python, const char *index, char ret[SHA256_HEX + 1])
{
    struct sha256 sha;
    uint8_t digest[SHA256_BYTES];

    sha256_begin(&sha);
    sha256_add(&sha, "2\n", 2);
    sha256_add(&sha, index, strlen(index) + 1);
    sha256_add(&sha, python, strlen(python));
    for (size_t i = 0; i < p->n; i++) {
        sha256_add(&sha, "\n", 1);
        sha256_add(&sha, p->line[i], strlen(p->line[i]));
    }
    sha256_end(&sha, digest);
    sha256_hex(digest, ret);
}

void packages_owner(const char *identity, char ret[PACKAGES_OWNER])
{
    struct sha256 sha;
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX + 1];
    const char *number = strncmp(identity, "uid:", 4) == 0 ? identity + 4 : "";

    if (number[0] && strlen(number) <= 10 && strspn(number, "0123456789") == strlen(number)) {
        snprintf(ret, PACKAGES_OWNER, "uid-%s", number);
        return;
    }
    sha256_begin(&sha);
    sha256_add(&sha, identity, strlen(identity));
    sha256_end(&sha, digest);
    sha256_hex(digest, hex);
    snprintf(ret, PACKAGES_OWNER, "id-%.48s", hex);
}
