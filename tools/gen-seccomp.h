/* What the parts of gen-seccomp share: the table as read, and a program as compiled. */
#ifndef CARREL_TOOLS_GEN_SECCOMP_H
#define CARREL_TOOLS_GEN_SECCOMP_H

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TABLE_NUMBERS = 1024, /* system call numbers that a row may have */
    TABLE_NAME    = 32,
    TABLE_RULES   = 48,
    TABLE_FILTERS = 16,
    RULE_CLAUSES  = 16,
    CLAUSE_TESTS  = 4,
    TEST_VALUES   = 32,
};

/* What happens to a call: a seccomp return value, or a rule decides. */
struct verdict {
    int      rule;   /* index into table.rule, or -1 */
    uint32_t action; /* SECCOMP_RET_*, if there is no rule */
};

/* (argument & mask) is one of the values; with no values: is not zero. */
struct test {
    unsigned argument;
    uint32_t mask;
    size_t   n_values;
    uint32_t value[TEST_VALUES];
};

struct clause {
    uint32_t    action;
    size_t      n_tests;
    struct test test[CLAUSE_TESTS];
};

struct rule {
    char          name[TABLE_NAME];
    size_t        n_clauses;
    struct clause clause[RULE_CLAUSES];
};

struct filter {
    char           name[TABLE_NAME];
    struct verdict otherwise;
    struct verdict call[TABLE_NUMBERS];
};

struct table {
    char          name[TABLE_NUMBERS][TABLE_NAME];
    size_t        n_rules, n_filters, n_columns; /* the first n_columns filters are the columns */
    struct rule   rule[TABLE_RULES];
    struct filter filter[TABLE_FILTERS];
};

struct program {
    size_t             length;
    struct sock_filter code[BPF_MAXINSNS];
};

/* Reads a table or ends the program with a message that names file and line. */
void table_read(const char *path, struct table *ret);

/* Turns one filter into instructions. Ends the program if that is not possible. */
void filter_compile(const struct table *table, const struct filter *filter, struct program *ret);

#endif
