/* Block style is parsed by lines and indentation, flow style by brackets. Texts are copied into one buffer: no text
 * grows by being read, but each gets a NUL. */
#include "devices/notation.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"

enum { PART_NODES = 128 };

struct notation_part {
    struct notation_part *next;
    size_t                n;
    struct notation       node[PART_NODES];
};

struct reader {
    const char           *name;
    const char           *at, *end;
    const char           *line_start;
    unsigned              line;
    unsigned              depth;
    char                 *room;         /* for the next text */
    struct notation_tree *tree;
    struct err           *e;
};

static int refuse(const struct reader *r, const char *why)
{
    return err_set(r->e, EINVAL, STEP_USAGE, "%s:%u: %s", parse_quote_path(r->name).text, r->line, why);
}

static struct notation *new_node(struct reader *r)
{
    struct notation_part *part = r->tree->parts;

    if (!part || part->n == PART_NODES) {
        part = calloc(1, sizeof *part);
        if (!part) {
            (void)err_at(r->e, ENOMEM, STEP_MEMORY, 0, r->name);
            return NULL;
        }
        part->next = r->tree->parts;
        r->tree->parts = part;
    }
    struct notation *node = &part->node[part->n++];
    node->line = r->line;
    node->text = "";
    return node;
}

static char peek(const struct reader *r)
{
    return r->at < r->end ? *r->at : '\0';
}

static void step(struct reader *r)
{
    if (*r->at++ == '\n') {
        r->line++;
        r->line_start = r->at;
    }
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Skips the blanks of this line and a comment after them. */
static void skip_blanks(struct reader *r)
{
    const char *from = r->at;

    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
    if (peek(r) == '#' && (r->at > from || r->at == r->line_start))
        while (r->at < r->end && *r->at != '\n')
            r->at++;
}

/* ---- scalars ---- */

static void keep_rune(struct reader *r, unsigned rune)
{
    if (rune < 0x80) {
        *r->room++ = (char)rune;
    } else if (rune < 0x800) {
        *r->room++ = (char)(0xc0 | rune >> 6);
        *r->room++ = (char)(0x80 | (rune & 0x3f));
    } else {
        *r->room++ = (char)(0xe0 | rune >> 12);
        *r->room++ = (char)(0x80 | (rune >> 6 & 0x3f));
        *r->room++ = (char)(0x80 | (rune & 0x3f));
    }
}

static int read_escape(struct reader *r)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = peek(r);
    const char *known = c ? strchr(from, c) : NULL;
    unsigned rune = 0;

    if (known) {
        *r->room++ = to[known - from];
        r->at++;
        return 0;
    }
    if (c != 'u' || r->end - r->at < 5)
        return refuse(r, "this escape is not understood");
    for (int i = 1; i <= 4; i++) {
        char digit = r->at[i];
        unsigned value = digit >= '0' && digit <= '9'   ? (unsigned)(digit - '0')
                         : digit >= 'a' && digit <= 'f' ? (unsigned)(digit - 'a') + 10
                         : digit >= 'A' && digit <= 'F' ? (unsigned)(digit - 'A') + 10
                                                        : 16;
        if (value == 16)
            return refuse(r, "this escape is not understood");
        rune = rune * 16 + value;
    }
    if (rune == 0 || (rune >= 0xd800 && rune < 0xe000))
        return refuse(r, "this escape is not understood");
    r->at += 5;
    keep_rune(r, rune);
    return 0;
}

static int read_quoted(struct reader *r, const char **ret)
{
    const char quote = *r->at++, *text = r->room;

    for (;;) {
        char c = peek(r);
        if (r->at == r->end || c == '\n' || c == '\0')
            return refuse(r, "the quote is not closed on this line");
        r->at++;
        if (c == quote && quote == '\'' && peek(r) == '\'') {
            *r->room++ = *r->at++;
        } else if (c == quote) {
            break;
        } else if (c == '\\' && quote == '"') {
            int code = read_escape(r);
            if (code < 0)
                return code;
        } else {
            *r->room++ = c;
        }
    }
    *r->room++ = '\0';
    *ret = text;
    return 0;
}

/* A plain scalar ends with the line, before a comment, at ": " and, in flow style, at the end of a member. */
static int read_plain(struct reader *r, bool in_flow, const char **ret)
{
    const char *start = r->at, *last = start;

    if (strchr("&*!|>@`%", *start) && *start)
        return refuse(r, "anchors, tags and block texts are not understood");
    for (; r->at < r->end && *r->at != '\n'; r->at++) {
        char c = *r->at, after = r->at + 1 < r->end ? r->at[1] : '\n';
        if (c == '\0')
            return refuse(r, "there is a NUL byte; is this a text file?");
        if ((c == ':' && (is_space(after) || (in_flow && strchr(",[]{}", after) && after)))
            || (c == '#' && r->at > start && is_space(r->at[-1])) || (in_flow && strchr(",[]{}", c)))
            break;
        if (!is_space(c))
            last = r->at + 1;
    }
    r->at = last;       /* only blanks before a # make it a comment */
    size_t n = (size_t)(last - start);
    memcpy(r->room, start, n);
    r->room[n] = '\0';
    /* null is the one word that does not stand for its text. */
    if ((n == 4 && memcmp(start, "null", 4) == 0) || (n == 1 && *start == '~'))
        r->room[n = 0] = '\0';
    *ret = r->room;
    r->room += n + 1;
    return 0;
}

static int read_scalar(struct reader *r, bool in_flow, const char **ret)
{
    return peek(r) == '"' || peek(r) == '\'' ? read_quoted(r, ret) : read_plain(r, in_flow, ret);
}

/* ---- flow style, and so JSON ---- */

static int read_flow(struct reader *r, struct notation *into);

static void skip_lines(struct reader *r)
{
    for (;;) {
        skip_blanks(r);
        if (peek(r) != '\n')
            return;
        step(r);
    }
}

static int check_new_key(const struct reader *r, const struct notation *map, const char *key)
{
    return notation_get(map, key) ? refuse(r, "a name is there twice") : 0;
}

static int read_flow_members(struct reader *r, struct notation *into, char close)
{
    struct notation **tail = &into->child;

    r->at++;
    for (;;) {
        skip_lines(r);
        if (peek(r) == close)
            break;
        struct notation *node = new_node(r);
        const char *key = NULL;
        int code = node ? 0 : -ENOMEM;
        if (code == 0 && into->kind == NOTATION_MAP) {
            code = strchr("{[]},:", peek(r)) || !peek(r) ? refuse(r, "a name is missing") : read_scalar(r, true, &key);
            skip_lines(r);
            if (code == 0 && peek(r) != ':')
                code = refuse(r, "':' is missing after a name");
            if (code == 0)
                code = check_new_key(r, into, key);
            if (code == 0) {
                r->at++;
                skip_lines(r);
            }
        }
        if (code == 0)
            code = read_flow(r, node);
        if (code < 0)
            return code;
        node->key = key;
        *tail = node;
        tail = &node->next;
        skip_lines(r);
        if (peek(r) != ',' && peek(r) != close)
            return refuse(r, "',' or the closing bracket is missing");
        if (peek(r) == ',')
            r->at++;
    }
    r->at++;
    return 0;
}

static int read_flow(struct reader *r, struct notation *into)
{
    char c = peek(r);
    int code;

    if (c != '{' && c != '[') {
        if (!c || strchr(",]}:", c))
            return refuse(r, "a value is missing");
        return read_scalar(r, true, &into->text);
    }
    if (++r->depth > NOTATION_DEPTH_MAX)
        return refuse(r, "this is nested too deeply");
    into->kind = c == '{' ? NOTATION_MAP : NOTATION_LIST;
    code = read_flow_members(r, into, c == '{' ? '}' : ']');
    r->depth--;
    return code;
}

/* ---- block style ---- */

static int read_block(struct reader *r, size_t indent, struct notation *into);

/* Goes to the next line with content. False: there is none. *ret_indent: its indentation. */
static bool next_line(struct reader *r, size_t *ret_indent)
{
    for (;;) {
        skip_blanks(r);
        if (r->at == r->end)
            return false;
        if (*r->at != '\n') {
            *ret_indent = (size_t)(r->at - r->line_start);
            return true;
        }
        step(r);
    }
}

static int end_line(struct reader *r)
{
    skip_blanks(r);
    return r->at < r->end && *r->at != '\n' ? refuse(r, "there is text behind the value") : 0;
}

static bool is_item(const struct reader *r)
{
    return peek(r) == '-' && (r->at + 1 == r->end || is_space(r->at[1]));
}

/* The value after a key or a dash on this line; if the line ends there, the value below it. least: its minimum
 * indentation. */
static int read_value(struct reader *r, size_t least, bool list_may_be_beside, struct notation *into)
{
    size_t indent;
    int code;

    skip_blanks(r);
    if (r->at < r->end && *r->at != '\n') {
        code = strchr("[{", *r->at) ? read_flow(r, into) : read_scalar(r, false, &into->text);
        return code < 0 ? code : end_line(r);
    }
    struct reader before = *r;
    if (next_line(r, &indent) && (indent >= least || (list_may_be_beside && indent + 1 == least && is_item(r))))
        return read_block(r, indent, into);
    *r = before;
    return 0;
}

static int read_item(struct reader *r, size_t indent, struct notation *item)
{
    r->at++;
    skip_blanks(r);
    if (r->at == r->end || *r->at == '\n')
        return read_value(r, indent + 1, false, item);
    /* "- name: value": a map that begins on the line of its dash. */
    struct reader probe = *r;
    const char *key;
    struct err ignored = { 0 };
    probe.e = &ignored;
    char *room = r->room;
    bool is_map = strchr("[{", *r->at) == NULL && read_scalar(&probe, false, &key) == 0
               && (skip_blanks(&probe), peek(&probe) == ':');
    r->room = room;
    if (is_map || is_item(r))
        return read_block(r, (size_t)(r->at - r->line_start), item);
    return read_value(r, 0, false, item);
}

static int read_member(struct reader *r, size_t indent, struct notation *map, struct notation *node)
{
    const char *key = "";

    if (strchr("[]{},", *r->at))
        return refuse(r, "a name is missing");
    int code = read_scalar(r, false, &key);
    if (code != 0)
        return code;
    skip_blanks(r);
    if (peek(r) != ':')
        return refuse(r, "':' is missing after a name");
    code = check_new_key(r, map, key);
    if (code < 0)
        return code;
    r->at++;
    node->key = key;
    return read_value(r, indent + 1, true, node);
}

static int read_block(struct reader *r, size_t indent, struct notation *into)
{
    struct notation **tail = &into->child;
    size_t here = indent;
    int code = 0;

    if (++r->depth > NOTATION_DEPTH_MAX)
        return refuse(r, "this is nested too deeply");
    into->kind = is_item(r) ? NOTATION_LIST : NOTATION_MAP;
    do {
        if (memchr(r->line_start, '\t', (size_t)(r->at - r->line_start)))
            return refuse(r, "a tab before the text; indent with blanks");
        if (here > indent)
            return refuse(r, "this line is further in than those above it");
        if (is_item(r) != (into->kind == NOTATION_LIST))
            break;      /* a list may be indented like its key: this line continues the map around it */
        struct notation *node = new_node(r);
        if (!node)
            return -ENOMEM;
        code = into->kind == NOTATION_LIST ? read_item(r, indent, node) : read_member(r, indent, into, node);
        if (code < 0)
            return code;
        *tail = node;
        tail = &node->next;
    } while (next_line(r, &here) && here >= indent);
    r->depth--;
    return 0;
}

int notation_read(const char *name, const char *text, size_t size, struct notation_tree *ret, struct err *e)
{
    struct notation_tree tree = { 0 };
    struct reader r = { .name = name, .at = text, .end = text + size, .line_start = text, .line = 1, .tree = &tree,
                        .e = e };
    size_t indent;

    if (size > NOTATION_BYTES_MAX)
        return err_set(e, EFBIG, STEP_USAGE, "%s is larger than 1 MiB", parse_quote_path(name).text);
    /* Each text gets a NUL and is followed by at least one byte that is not copied: a blank, a colon, a comma, a line's
     * end. */
    tree.texts = r.room = malloc(2 * size + 2);
    if (!tree.texts)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, name);
    int code = 0;
    if (size >= 3 && memcmp(text, "---", 3) == 0 && (size == 3 || is_space(text[3])))
        r.at += 3;
    if (!next_line(&r, &indent))
        code = refuse(&r, "there is nothing in it");
    else if (!(tree.root = new_node(&r)))
        code = -ENOMEM;
    else if (peek(&r) == '{' || peek(&r) == '[')
        code = read_flow(&r, tree.root);
    else
        code = read_block(&r, indent, tree.root);
    if (code == 0 && next_line(&r, &indent))
        code = refuse(&r, "this line belongs to nothing above it");
    if (code < 0) {
        notation_free(&tree);
        return code;
    }
    *ret = tree;
    return 0;
}

void notation_free(struct notation_tree *tree)
{
    for (struct notation_part *part = tree->parts, *next; part; part = next) {
        next = part->next;
        free(part);
    }
    free(tree->texts);
    *tree = (struct notation_tree){ 0 };
}

const struct notation *notation_get(const struct notation *map, const char *key)
{
    for (const struct notation *m = map && map->kind == NOTATION_MAP ? map->child : NULL; m; m = m->next)
        if (m->key && strcmp(m->key, key) == 0)
            return m;
    return NULL;
}
