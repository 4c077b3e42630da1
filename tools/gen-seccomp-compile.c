/* From a filter to the instructions of the kernel's classic BPF.
 *
 * What costs time when a filter is loaded is (1) checking, translating and compiling each instruction, and (2) finding
 * the calls that are always allowed: the kernel interprets the program once per system call number. So the program is
 * a decision tree over ranges of numbers with equal verdict, built by dynamic programming to be cheapest in just that
 * sum.
 *
 * Code is emitted backwards, from the last instruction to the first: then every target of a jump is already known, and
 * a target out of reach (a conditional jump has 8 bits) is mended on the spot by a copy of the return or an
 * unconditional jump, emitted directly behind the jump that needs it. A label is an index into the backward code. */
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen-seccomp.h"

enum {
    RANGES           = 600,
    X32_FIRST        = 0x40000000,
    /* What an instruction costs by its presence, in units of one interpreted step. From 10 to 1000 no difference in
     * load time can be measured, so the shorter program is taken. */
    INSTRUCTION_COST = 1000,
};

struct range {
    uint32_t       first; /* the last is the next one's first - 1 */
    struct verdict verdict;
    uint64_t       weight; /* how many numbers of it the kernel tries */
};

struct compiler {
    const struct table *table;
    size_t         n_ranges;
    struct range   range[RANGES];
    uint64_t       cost[RANGES][RANGES];
    uint16_t       split[RANGES][RANGES]; /* where [i,j] is cut; i if it is a chain */
    size_t         n;
    struct sock_filter code[BPF_MAXINSNS]; /* backwards; jumps hold true offsets already */
    size_t         n_returns;
    struct { uint32_t action; size_t label; } returned[64];
    size_t         rule_label[TABLE_RULES];
    bool           rule_emitted[TABLE_RULES];
};

static bool same(struct verdict a, struct verdict b)
{
    return a.rule == b.rule && (a.rule >= 0 || a.action == b.action);
}

/* Ranges. */

static void add_range(struct compiler *c, uint32_t first, struct verdict verdict, uint64_t weight)
{
    if (c->n_ranges && same(c->range[c->n_ranges - 1].verdict, verdict)) {
        c->range[c->n_ranges - 1].weight += weight;
        return;
    }
    if (c->n_ranges == RANGES) {
        fputs("gen-seccomp: too many ranges\n", stderr);
        exit(1);
    }
    c->range[c->n_ranges++] = (struct range){first, verdict, weight};
}

static void make_ranges(struct compiler *c, const struct filter *filter)
{
    const struct verdict kill = {-1, SECCOMP_RET_KILL_PROCESS};
    uint32_t last = 0;
    for (uint32_t i = 0; i < TABLE_NUMBERS; i++)
        if (c->table->name[i][0])
            last = i;
    for (uint32_t i = 0; i < TABLE_NUMBERS; i++)
        add_range(c, i, filter->call[i], i <= last);
    add_range(c, TABLE_NUMBERS, filter->otherwise, 0);
    add_range(c, X32_FIRST, kill, 0);
    /* syscall(-1) is what programs do that lack a number for this architecture; without a filter it gives ENOSYS. */
    add_range(c, UINT32_MAX, filter->otherwise, 0);
}

/* Is range i a single number? */
static bool single(const struct compiler *c, size_t i)
{
    uint32_t last = i + 1 < c->n_ranges ? c->range[i + 1].first - 1 : UINT32_MAX;
    return c->range[i].first == last;
}

/* Can [i,j] be decided by equality alone: one verdict with single numbers in between? */
static bool chain(const struct compiler *c, size_t i, size_t j)
{
    if (j == i || (j - i) % 2)
        return false;
    for (size_t k = i + 2; k <= j; k += 2)
        if (!same(c->range[k].verdict, c->range[i].verdict) || !single(c, k - 1))
            return false;
    return true;
}

static void plan_tree(struct compiler *c)
{
    for (size_t length = 2; length <= c->n_ranges; length++)
        for (size_t i = 0; i + length <= c->n_ranges; i++) {
            size_t   j = i + length - 1;
            uint64_t weight = 0, best = UINT64_MAX;
            for (size_t k = i; k <= j; k++)
                weight += c->range[k].weight;
            for (size_t k = i + 1; k <= j; k++) {
                uint64_t cost = weight + INSTRUCTION_COST + c->cost[i][k - 1] + c->cost[k][j];
                if (cost < best) {
                    best           = cost;
                    c->split[i][j] = (uint16_t)k;
                }
            }
            if (chain(c, i, j)) {
                uint64_t cost = 0, left = weight;
                for (size_t k = i + 1; k < j; k += 2) {
                    cost += left + INSTRUCTION_COST;
                    left -= c->range[k].weight;
                }
                if (cost < best) {
                    best           = cost;
                    c->split[i][j] = (uint16_t)i;
                }
            }
            c->cost[i][j] = best;
        }
}

/* Code. */

static size_t emit(struct compiler *c, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
    if (c->n == BPF_MAXINSNS) {
        fputs("gen-seccomp: program too long\n", stderr);
        exit(1);
    }
    c->code[c->n] = (struct sock_filter){.code = code, .jt = jt, .jf = jf, .k = k};
    return c->n++;
}

/* How many instructions lie between the next one emitted and the label. */
static size_t distance(const struct compiler *c, size_t label)
{
    return c->n - label - 1;
}

/* The same target, near enough for a conditional jump before which up to two more instructions are emitted. */
static size_t reach(struct compiler *c, size_t label)
{
    if (distance(c, label) <= UINT8_MAX - 2)
        return label;
    if (c->code[label].code == (BPF_RET | BPF_K))
        return emit(c, BPF_RET | BPF_K, c->code[label].k, 0, 0);
    return emit(c, BPF_JMP | BPF_JA, (uint32_t)distance(c, label), 0, 0);
}

static size_t emit_jump(struct compiler *c, uint16_t operation, uint32_t k, size_t yes, size_t no)
{
    yes = reach(c, yes);
    no  = reach(c, no);
    return emit(c, (uint16_t)(BPF_JMP | BPF_K | operation), k, (uint8_t)distance(c, yes), (uint8_t)distance(c, no));
}

static size_t emit_return(struct compiler *c, uint32_t action)
{
    size_t i = 0;
    while (i < c->n_returns && c->returned[i].action != action)
        i++;
    if (i == c->n_returns) {
        c->n_returns++;
        c->returned[i].action = action;
        c->returned[i].label  = emit(c, BPF_RET | BPF_K, action, 0, 0);
    }
    return c->returned[i].label = reach(c, c->returned[i].label);
}

/* Jumps to yes if the test holds, else to no. */
static size_t emit_test(struct compiler *c, const struct test *test, bool loaded, size_t yes, size_t no)
{
    if (!test->n_values) {
        no = emit_jump(c, BPF_JSET, test->mask, yes, no);
    } else {
        for (size_t i = test->n_values; i-- > 0;)
            no = emit_jump(c, BPF_JEQ, test->value[i], yes, no);
        if (test->mask != UINT32_MAX)
            no = emit(c, BPF_ALU | BPF_AND | BPF_K, test->mask, 0, 0);
    }
    if (loaded)
        return no;
    /* Little endian: the low half of a 64-bit argument comes first. */
    uint32_t offset = (uint32_t)(offsetof(struct seccomp_data, args) + 8 * test->argument);
    return emit(c, BPF_LD | BPF_W | BPF_ABS, offset, 0, 0);
}

/* A jump from the clause before has the argument in the accumulator, unmasked. */
static bool already_loaded(const struct rule *rule, size_t clause)
{
    if (!clause)
        return false;
    const struct clause *before = &rule->clause[clause - 1];
    const struct test   *last   = &before->test[0];
    return before->n_tests == 1 && last->argument == rule->clause[clause].test[0].argument &&
           (last->mask == UINT32_MAX || !last->n_values);
}

static size_t emit_rule(struct compiler *c, const struct rule *rule)
{
    size_t next = emit_return(c, rule->clause[rule->n_clauses - 1].action);
    for (size_t i = rule->n_clauses - 1; i-- > 0;) {
        const struct clause *clause = &rule->clause[i];
        size_t yes = emit_return(c, clause->action);
        for (size_t k = clause->n_tests; k-- > 0;)
            yes = emit_test(c, &clause->test[k], k == 0 && already_loaded(rule, i), yes, next);
        next = yes;
    }
    return next;
}

static size_t emit_verdict(struct compiler *c, struct verdict verdict)
{
    if (verdict.rule < 0)
        return emit_return(c, verdict.action);
    size_t *label = &c->rule_label[verdict.rule];
    return *label = reach(c, *label);
}

static size_t emit_tree(struct compiler *c, size_t i, size_t j)
{
    if (i == j)
        return emit_verdict(c, c->range[i].verdict);
    size_t split = c->split[i][j];
    if (split != i) {
        size_t high = emit_tree(c, split, j);
        size_t low  = emit_tree(c, i, split - 1);
        return emit_jump(c, BPF_JGE, c->range[split].first, high, low);
    }
    size_t label = emit_verdict(c, c->range[i].verdict);
    for (size_t k = j; k > i; k -= 2)
        label = emit_jump(c, BPF_JEQ, c->range[k - 1].first, emit_verdict(c, c->range[k - 1].verdict), label);
    return label;
}

void filter_compile(const struct table *table, const struct filter *filter, struct program *ret)
{
    static struct compiler c;
    memset(&c, 0, sizeof c);
    c.table = table;
    make_ranges(&c, filter);
    plan_tree(&c);
    for (size_t i = 0; i < c.n_ranges; i++) {
        int rule = c.range[i].verdict.rule;
        if (rule >= 0 && !c.rule_emitted[rule]) {
            c.rule_label[rule]   = emit_rule(&c, &table->rule[rule]);
            c.rule_emitted[rule] = true;
        }
    }
    size_t tree  = emit_tree(&c, 0, c.n_ranges - 1);
    size_t kill  = emit_return(&c, SECCOMP_RET_KILL_PROCESS);
    /* If the root is not the last one emitted, something must lead to it. */
    if (distance(&c, tree))
        emit(&c, BPF_JMP | BPF_JA, (uint32_t)distance(&c, tree), 0, 0);
    size_t start = emit(&c, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
    emit_jump(&c, BPF_JEQ, AUDIT_ARCH_X86_64, start, kill);
    emit(&c, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
    ret->length = c.n;
    for (size_t i = 0; i < c.n; i++)
        ret->code[i] = c.code[c.n - 1 - i];
}
