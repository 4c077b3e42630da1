/* The YAML file: read completely, loaded by libyaml as one document, walked two levels deep. Each value becomes
 * "section.key" and goes through config_set(). Strict: an unknown or repeated key, a list where a number belongs, a
 * second document, a foreign tag are errors with file, line and column. The caller's settings change only if the whole
 * file is valid. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

#include "base/fd.h"
#include "base/parse.h"
#include "front/config/config_private.h"

enum { FILE_MAX_BYTES = 256 * 1024, KEY_SIZE = 128, LINES_MAX = 4096 };

struct yaml_reader {
    const char     *path;
    struct config  *config;
    yaml_document_t document;
    struct err     *e;
};

/* The end of a long path is more informative than its beginning. */
static const char *short_path(const char *path)
{
    size_t length = strlen(path);

    return length > 80 ? path + length - 80 : path;
}

static int fail_at(struct yaml_reader *r, yaml_mark_t at, const char *what)
{
    return err_set(r->e, EINVAL, STEP_USAGE, "%s:%zu:%zu: %s", short_path(r->path), at.line + 1, at.column + 1, what);
}

static int PRINTF_LIKE(3, 4) fail(struct yaml_reader *r, const yaml_node_t *node, const char *format, ...)
{
    char what[sizeof r->e->what];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return fail_at(r, node->start_mark, what);
}

static const char *kind_name(const yaml_node_t *node)
{
    return node->type == YAML_MAPPING_NODE ? "a mapping" : node->type == YAML_SEQUENCE_NODE ? "a list" : "a value";
}

/* A scalar's text. A missing value ("key:") and null are no text; a tag other than YAML's own would be ignored
 * silently. */
static int scalar_text(struct yaml_reader *r, const yaml_node_t *node, const char *key, const char **ret)
{
    static const char *const nulls[] = { "", "~", "null", "Null", "NULL" };
    bool is_plain = node->type == YAML_SCALAR_NODE && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;

    if (node->type != YAML_SCALAR_NODE)
        return fail(r, node, "%s needs a single value, not %s", key, kind_name(node));
    const char *text = (const char *)node->data.scalar.value;
    if (strcmp((const char *)node->tag, YAML_STR_TAG) != 0)
        return fail(r, node, "%s has a tag (%s); leave it out", key, parse_quote((const char *)node->tag).text);
    if (strlen(text) != node->data.scalar.length)
        return fail(r, node, "%s has a NUL in it", key);
    for (size_t i = 0; is_plain && i < sizeof nulls / sizeof nulls[0]; i++)
        if (!strcmp(text, nulls[i]))
            return fail(r, node, "%s has no value; give one or leave the key out", key);
    *ret = text;
    return 0;
}

/* Sets one value, and prefixes config_set()'s errors with file, line and column. */
static int set_value(struct yaml_reader *r, const char *key, const yaml_node_t *node)
{
    const char *text = "";
    struct err inner = { 0 };
    int error = scalar_text(r, node, key, &text);

    if (error < 0)
        return error;
    if (config_shape(r->config, key) == CONFIG_BOOL && node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return fail(r, node, "%s must be true or false without quotes", key);
    error = config_set(r->config, key, text, &inner);
    if (error < 0) {
        char what[sizeof inner.what + 64];
        err_text(&inner, what, sizeof what);
        return fail(r, node, "%s", what);
    }
    return 0;
}

static yaml_node_t *node_of(struct yaml_reader *r, int index)
{
    return yaml_document_get_node(&r->document, index);
}

/* The name of a pair, with the section before it. Also refuses repeated names: earlier pairs are searched. */
static int pair_name(struct yaml_reader *r, const char *section, const yaml_node_t *map, const yaml_node_pair_t *pair,
                     char *ret)
{
    const yaml_node_t *node = node_of(r, pair->key);
    const char *text = "", *other;
    int error = scalar_text(r, node, "a key", &text);

    if (error < 0)
        return error;
    if (snprintf(ret, KEY_SIZE, "%s%s%s", section, section[0] ? "." : "", text) >= KEY_SIZE)
        return fail(r, node, "unknown setting '%s'", parse_quote(text).text);
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < pair; p++) {
        other = (const char *)node_of(r, p->key)->data.scalar.value;    /* checked to be a scalar */
        if (!strcmp(other, text))
            return fail(r, node, "'%s' stands here a second time; the first is in line %zu", parse_quote(ret).text,
                        node_of(r, p->key)->start_mark.line + 1);
    }
    return 0;
}

static int walk_list(struct yaml_reader *r, const char *key, const yaml_node_t *node)
{
    if (node->type != YAML_SEQUENCE_NODE)
        return fail(r, node, "%s needs a list, not %s", key, kind_name(node));
    for (const yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++) {
        int error = set_value(r, key, node_of(r, *i));
        if (error < 0)
            return error;
    }
    return 0;
}

/* A value, or a list whose items become its lines. */
static int walk_lines(struct yaml_reader *r, const char *key, const yaml_node_t *node)
{
    char text[LINES_MAX] = "", what[sizeof r->e->what + 64];
    struct err inner = { 0 };
    const char *one = "";

    if (node->type != YAML_SEQUENCE_NODE)
        return set_value(r, key, node);
    for (const yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++) {
        size_t n = strlen(text);
        int error = scalar_text(r, node_of(r, *i), key, &one);
        if (error < 0)
            return error;
        if (snprintf(text + n, sizeof text - n, "%s%s", n ? "\n" : "", one) >= (int)(sizeof text - n))
            return fail(r, node_of(r, *i), "%s is too long", key);
    }
    if (config_set(r->config, key, text, &inner) == 0)
        return 0;
    err_text(&inner, what, sizeof what);
    return fail(r, node, "%s", what);
}

static int walk_map(struct yaml_reader *r, const char *section, const yaml_node_t *map);

static int walk_pair(struct yaml_reader *r, const char *section, const yaml_node_t *map, const yaml_node_pair_t *pair)
{
    char key[KEY_SIZE], hint[80];
    const yaml_node_t *value = node_of(r, pair->value);
    int error = pair_name(r, section, map, pair, key);

    if (error < 0)
        return error;
    if (config_shape(r->config, section) == CONFIG_MAP)
        return set_value(r, key, value);
    const char *dot = strchr(key, '.');     /* "defaults.memory:" at the top is not the file's form */
    switch (section[0] || !dot ? config_shape(r->config, key) : CONFIG_UNKNOWN) {
    case CONFIG_SECTION:
    case CONFIG_MAP:
        return walk_map(r, key, value);
    case CONFIG_LIST:
        return walk_list(r, key, value);
    case CONFIG_LINES:
        return walk_lines(r, key, value);
    case CONFIG_SCALAR:
    case CONFIG_BOOL:
        return set_value(r, key, value);
    default:
        return fail(r, node_of(r, pair->key), "unknown setting '%s'%s", parse_quote(key).text,
                    config_suggest(r->config, key, hint, sizeof hint));
    }
}

/* Goes no deeper than the keys do, so that an alias to its own parent cannot lead in a circle. */
static int walk_map(struct yaml_reader *r, const char *section, const yaml_node_t *map)
{
    if (map->type != YAML_MAPPING_NODE)
        return fail(r, map, "%s%sneeds keys with values, not %s", section[0] ? section : "the file", " ",
                    kind_name(map));
    for (const yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        int error = walk_pair(r, section, map, p);
        if (error < 0)
            return error;
    }
    return 0;
}

static int fail_yaml(struct yaml_reader *r, const yaml_parser_t *parser)
{
    char what[160];
    bool is_known = parser->problem_mark.line || parser->problem_mark.column;

    if (parser->error == YAML_MEMORY_ERROR)
        return err_set(r->e, ENOMEM, STEP_MEMORY, "%s", short_path(r->path));
    snprintf(what, sizeof what, "%s%s%s", parser->problem ? parser->problem : "this is not YAML",
             parser->context ? " " : "", parser->context ? parser->context : "");
    return fail_at(r, is_known ? parser->problem_mark : parser->mark, what);
}

/* Only "---" and comments. */
static bool is_nothing(const yaml_node_t *root)
{
    return root->type == YAML_SCALAR_NODE && root->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           root->data.scalar.length == 0;
}

/* Walks one document; a second one is an error. */
static int walk_document(struct yaml_reader *r, yaml_parser_t *parser)
{
    yaml_document_t next;
    yaml_node_t *root;
    int error = 0;

    if (!yaml_parser_load(parser, &r->document))
        return fail_yaml(r, parser);
    root = yaml_document_get_root_node(&r->document);
    if (root && !is_nothing(root))
        error = walk_map(r, "", root);
    if (root && !error) {
        if (!yaml_parser_load(parser, &next)) {
            error = fail_yaml(r, parser);
        } else {
            if (yaml_document_get_root_node(&next))
                error = fail_at(r, next.start_mark, "a second document; there must be one");
            yaml_document_delete(&next);
        }
    }
    yaml_document_delete(&r->document);
    return error;
}

/* A user who can write this file controls the boxes. */
static int check_owner(const char *path, const struct stat *st, struct err *e)
{
    if (!S_ISREG(st->st_mode))
        return err_set(e, S_ISDIR(st->st_mode) ? EISDIR : EINVAL, STEP_USAGE, "%s is not a file", short_path(path));
    if (st->st_mode & S_IWOTH)
        return err_set(e, EPERM, STEP_USAGE, "%s can be written by everybody; run chmod o-w on it", short_path(path));
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return err_set(e, EPERM, STEP_USAGE, "%s belongs to another user", short_path(path));
    if (st->st_size > FILE_MAX_BYTES)
        return err_set(e, EFBIG, STEP_USAGE, "%s is too large for a file of settings", short_path(path));
    return 0;
}

/* On a copy: the caller's settings change completely or not at all. */
static int load_text(struct config *c, const char *path, const char *text, size_t size, struct err *e)
{
    struct config copy = *c;
    struct yaml_reader reader = { .path = path, .config = &copy, .e = e };
    yaml_parser_t parser;

    if (!yaml_parser_initialize(&parser))
        return err_at(e, ENOMEM, STEP_MEMORY, 0, short_path(path));
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    int r = walk_document(&reader, &parser);
    yaml_parser_delete(&parser);
    if (r == 0)
        *c = copy;
    return r;
}

int config_load(struct config *c, const char *path, bool must_exist, struct err *e)
{
    FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* so that open() cannot block on a pipe */
    struct stat st;

    if (fd < 0)
        return errno == ENOENT && !must_exist ? 0 : err_set(e, errno, STEP_NONE, "cannot read %s", short_path(path));
    if (fstat(fd, &st) < 0)
        return err_set(e, errno, STEP_NONE, "cannot read %s", short_path(path));
    int r = check_owner(path, &st, e);
    if (r < 0)
        return r;
    size_t size = (size_t)st.st_size;
    char *text = malloc(size + 1);
    if (!text)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, short_path(path));
    r = fd_read_all(fd, text, size);
    r = r < 0 ? err_set(e, -r, STEP_NONE, "cannot read %s", short_path(path)) : load_text(c, path, text, size, e);
    free(text);
    return r;
}
