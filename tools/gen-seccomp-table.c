/* Reads src/policy/syscalls.tbl; the language is described at its top.
 *
 * Lines are split into words in place. A line that begins with a blank belongs to the `rule` or `filter` above it.
 * Everything must be defined before it is used, except rows: the lines of a filter are kept until all rows are known.
 * Any doubt ends the build: a table that is half understood must not become a policy. */
#include <errno.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen-seccomp.h"

enum { WORDS = 64, CONSTANTS = 256, PENDING = 256 };

struct constant {
    char     name[TABLE_NAME];
    uint32_t value;
};

/* A line of a `filter` section, which is applied at the end. */
struct pending {
    size_t         filter;
    struct verdict verdict;
    char           name[TABLE_NAME];
    size_t         line;
};

struct reader {
    const char     *path;
    size_t          line;
    struct table   *table;
    struct rule    *rule;   /* open section, or NULL */
    struct filter  *filter; /* likewise */
    int             like[TABLE_FILTERS];
    struct verdict  otherwise;
    size_t          n_constants, n_pending;
    struct constant constant[CONSTANTS];
    struct pending  pending[PENDING];
};

static const struct {
    const char *name;
    uint32_t    action;
} actions[] = {
    {"allow", SECCOMP_RET_ALLOW},
    {"kill", SECCOMP_RET_KILL_PROCESS},
    {"nothing", SECCOMP_RET_ERRNO},     /* the errno 0: the caller thinks that it was done */
    {"ask", SECCOMP_RET_USER_NOTIF},
    {"eperm", SECCOMP_RET_ERRNO | EPERM},
    {"enosys", SECCOMP_RET_ERRNO | ENOSYS},
    {"einval", SECCOMP_RET_ERRNO | EINVAL},
    {"enomem", SECCOMP_RET_ERRNO | ENOMEM},
    {"enotty", SECCOMP_RET_ERRNO | ENOTTY},
    {"enoprotoopt", SECCOMP_RET_ERRNO | ENOPROTOOPT},
    {"eprotonosupport", SECCOMP_RET_ERRNO | EPROTONOSUPPORT},
    {"eafnosupport", SECCOMP_RET_ERRNO | EAFNOSUPPORT},
};

static void __attribute__((noreturn, format(printf, 2, 3))) reject(const struct reader *r, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s:%zu: ", r->path, r->line);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

static void copy_name(const struct reader *r, const char *name, char *ret)
{
    if (snprintf(ret, TABLE_NAME, "%s", name) >= TABLE_NAME)
        reject(r, "name too long: %s", name);
}

static bool parse_number(const char *text, uint32_t *ret)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 0);
    if (errno || end == text || *end || text[0] == '-' || value > UINT32_MAX)
        return false;
    *ret = (uint32_t)value;
    return true;
}

static uint32_t parse_value(const struct reader *r, const char *text)
{
    for (size_t i = 0; i < r->n_constants; i++)
        if (strcmp(r->constant[i].name, text) == 0)
            return r->constant[i].value;
    uint32_t value;
    if (!parse_number(text, &value))
        reject(r, "neither a number nor a constant: %s", text);
    return value;
}

static uint32_t parse_action(const struct reader *r, const char *text)
{
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
        if (strcmp(actions[i].name, text) == 0)
            return actions[i].action;
    reject(r, "unknown action: %s", text);
}

static struct verdict parse_verdict(const struct reader *r, const char *text)
{
    if (text[0] != '@')
        return (struct verdict){.rule = -1, .action = parse_action(r, text)};
    for (size_t i = 0; i < r->table->n_rules; i++)
        if (strcmp(r->table->rule[i].name, text + 1) == 0)
            return (struct verdict){.rule = (int)i};
    reject(r, "unknown rule: %s", text);
}

static size_t split(const struct reader *r, char *line, char *ret_words[WORDS])
{
    size_t n   = 0;
    line[strcspn(line, "#\n")] = '\0';
    for (char *word; (word = strsep(&line, " \t"));) {
        if (!*word)
            continue;
        if (n == WORDS)
            reject(r, "too many words");
        ret_words[n++] = word;
    }
    return n;
}

/* argN [& MASK] [in VALUE...] up to the next `and`. Returns how many words were used. */
static size_t parse_test(const struct reader *r, char **word, size_t n, struct test *ret)
{
    *ret = (struct test){.mask = UINT32_MAX};
    if (n < 3 || strncmp(word[0], "arg", 3) != 0 || word[0][3] < '0' || word[0][3] > '5' || word[0][4])
        reject(r, "a test is: argN [& MASK] [in VALUE...]");
    ret->argument = (unsigned)(word[0][3] - '0');
    size_t i      = 1;
    if (strcmp(word[i], "&") == 0) {
        ret->mask = parse_value(r, word[2]);
        i         = 3;
        if (i == n || strcmp(word[i], "and") == 0)
            return i;
    }
    if (strcmp(word[i++], "in") != 0)
        reject(r, "expected `in`");
    for (; i < n && strcmp(word[i], "and") != 0; i++) {
        if (ret->n_values == TEST_VALUES)
            reject(r, "too many values");
        uint32_t value = parse_value(r, word[i]);
        if (value & ~ret->mask)
            reject(r, "%s can never be equal: it has bits outside the mask", word[i]);
        ret->value[ret->n_values++] = value;
    }
    if (!ret->n_values)
        reject(r, "`in` without values");
    return i;
}

static void read_clause(struct reader *r, char **word, size_t n)
{
    struct rule *rule = r->rule;
    if (rule->n_clauses == RULE_CLAUSES)
        reject(r, "too many lines in rule %s", rule->name);
    if (rule->n_clauses && rule->clause[rule->n_clauses - 1].n_tests == 0)
        reject(r, "a line after the last word of rule %s", rule->name);
    struct clause *clause = &rule->clause[rule->n_clauses++];
    *clause = (struct clause){.action = parse_action(r, word[0])};
    if (n == 1)
        return;
    if (strcmp(word[1], "if") != 0)
        reject(r, "expected `if`");
    for (size_t i = 2;; i++) {
        if (clause->n_tests == CLAUSE_TESTS)
            reject(r, "too many tests");
        i += parse_test(r, word + i, n - i, &clause->test[clause->n_tests++]);
        if (i >= n)
            return;
    }
}

static void close_section(struct reader *r)
{
    if (r->rule && (!r->rule->n_clauses || r->rule->clause[r->rule->n_clauses - 1].n_tests))
        reject(r, "rule %s lacks a last word", r->rule->name);
    r->rule   = NULL;
    r->filter = NULL;
}

static struct filter *add_filter(struct reader *r, const char *name, struct verdict otherwise)
{
    struct table *t = r->table;
    if (t->n_filters == TABLE_FILTERS)
        reject(r, "too many filters");
    struct filter *filter = &t->filter[t->n_filters];
    r->like[t->n_filters++] = -1;
    copy_name(r, name, filter->name);
    filter->otherwise = otherwise;
    for (size_t i = 0; i < TABLE_NUMBERS; i++)
        filter->call[i] = otherwise;
    return filter;
}

static void read_filter(struct reader *r, char **word, size_t n)
{
    if (n != 4)
        reject(r, "filter NAME otherwise ACTION, or filter NAME like COLUMN");
    if (strcmp(word[2], "otherwise") == 0) {
        r->filter = add_filter(r, word[1], parse_verdict(r, word[3]));
        return;
    }
    for (size_t i = 0; i < r->table->n_columns; i++)
        if (strcmp(r->table->filter[i].name, word[3]) == 0 && strcmp(word[2], "like") == 0) {
            r->filter = add_filter(r, word[1], r->otherwise);
            r->like[r->table->n_filters - 1] = (int)i;
            return;
        }
    reject(r, "unknown column: %s", word[3]);
}

static void read_override(struct reader *r, char **word, size_t n)
{
    if (n < 2)
        reject(r, "ACTION NAME...");
    for (size_t i = 1; i < n; i++) {
        if (r->n_pending == PENDING)
            reject(r, "too many lines in filters");
        struct pending *p = &r->pending[r->n_pending++];
        p->filter  = (size_t)(r->filter - r->table->filter);
        p->verdict = parse_verdict(r, word[0]);
        p->line    = r->line;
        copy_name(r, word[i], p->name);
    }
}

static void read_row(struct reader *r, char **word, size_t n)
{
    struct table *t = r->table;
    uint32_t number;
    if (!parse_number(word[0], &number) || number >= TABLE_NUMBERS)
        reject(r, "not understood: %s", word[0]);
    if (!t->n_columns || n != 2 + t->n_columns)
        reject(r, "a row is: NUMBER NAME and %zu actions", t->n_columns);
    for (size_t i = 0; i < TABLE_NUMBERS; i++)
        if (i == number ? t->name[i][0] : strcmp(t->name[i], word[1]) == 0)
            reject(r, "a second row for %s %s", word[0], word[1]);
    copy_name(r, word[1], t->name[number]);
    for (size_t i = 0; i < t->n_columns; i++)
        t->filter[i].call[number] = parse_verdict(r, word[2 + i]);
}

static void read_heading(struct reader *r, char **word, size_t n)
{
    struct table *t = r->table;
    close_section(r);
    if (strcmp(word[0], "const") == 0 && n == 3) {
        if (r->n_constants == CONSTANTS)
            reject(r, "too many constants");
        struct constant *c = &r->constant[r->n_constants];
        copy_name(r, word[1], c->name);
        if (!parse_number(word[2], &c->value))
            reject(r, "not a number: %s", word[2]);
        r->n_constants++;
    } else if (strcmp(word[0], "rule") == 0 && n == 2) {
        if (t->n_rules == TABLE_RULES)
            reject(r, "too many rules");
        r->rule = &t->rule[t->n_rules++];
        copy_name(r, word[1], r->rule->name);
    } else if (strcmp(word[0], "columns") == 0 && !t->n_filters) {
        for (size_t i = 1; i < n; i++)
            add_filter(r, word[i], r->otherwise);
        t->n_columns = t->n_filters;
    } else if (strcmp(word[0], "otherwise") == 0 && n == 2 && t->n_columns) {
        r->otherwise = parse_verdict(r, word[1]);
        for (size_t i = 0; i < t->n_columns; i++) {
            t->filter[i].otherwise = r->otherwise;
            for (size_t k = 0; k < TABLE_NUMBERS; k++)
                t->filter[i].call[k] = r->otherwise;
        }
    } else if (strcmp(word[0], "filter") == 0) {
        read_filter(r, word, n);
    } else {
        read_row(r, word, n);
    }
}

static void apply_overrides(struct reader *r)
{
    struct table *t = r->table;
    for (size_t i = 0; i < t->n_filters; i++)
        if (r->like[i] >= 0)
            memcpy(t->filter[i].call, t->filter[r->like[i]].call, sizeof t->filter[i].call);
    for (size_t i = 0; i < r->n_pending; i++) {
        const struct pending *p = &r->pending[i];
        size_t number = 0;
        while (number < TABLE_NUMBERS && strcmp(t->name[number], p->name) != 0)
            number++;
        r->line = p->line;
        if (number == TABLE_NUMBERS)
            reject(r, "no row for %s", p->name);
        t->filter[p->filter].call[number] = p->verdict;
    }
}

void table_read(const char *path, struct table *ret)
{
    struct reader r = {.path = path, .table = ret, .otherwise = {-1, SECCOMP_RET_KILL_PROCESS}};
    FILE *file = fopen(path, "re");
    if (!file) {
        perror(path);
        exit(1);
    }
    memset(ret, 0, sizeof *ret);
    char line[1024], *word[WORDS];
    while (fgets(line, sizeof line, file)) {
        r.line++;
        if (!strchr(line, '\n'))
            reject(&r, "line too long, or no newline at its end");
        bool   indented = line[0] == ' ' || line[0] == '\t';
        size_t n        = split(&r, line, word);
        if (!n)
            continue;
        if (!indented)
            read_heading(&r, word, n);
        else if (r.rule)
            read_clause(&r, word, n);
        else if (r.filter)
            read_override(&r, word, n);
        else
            reject(&r, "an indented line without a section");
    }
    if (ferror(file)) {
        perror(path);
        exit(1);
    }
    fclose(file);
    close_section(&r);
    apply_overrides(&r);
}
