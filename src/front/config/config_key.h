/* A key of the configuration as a row of a table: its name, how its text is read, where it goes. Doors have tables of
 * their own, each for a section. */
#ifndef CARREL_FRONT_CONFIG_CONFIG_KEY_H
#define CARREL_FRONT_CONFIG_CONFIG_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum config_kind {
    KIND_LISTEN,        /* char[]: ADDRESS:PORT, or "" */
    KIND_PATH,          /* char[]: absolute */
    KIND_USER,          /* char[] */
    KIND_BOOL,          /* bool */
    KIND_LEVEL,         /* char[] */
    KIND_SIZE,          /* uint64_t: bytes */
    KIND_CPUS,          /* uint32_t: thousandths */
    KIND_COUNT,         /* uint32_t */
    KIND_SECONDS,       /* uint32_t: a duration */
    KIND_ORIGINS,
    KIND_ROOTS,
    KIND_NETWORKS,
    KIND_PYTHONS,
    KIND_ASK,           /* enum network_ask */
    KIND_DENY,          /* struct net_policy: rules that deny */
    KIND_NAMES,         /* char[]: names of variables, separated by commas */
    KIND_DEVICES,       /* char[]: kinds of devices, the same */
    KIND_CREDENTIALS,   /* char[]: words NAME=IDENTITY */
};

struct config_key {
    const char      *name;          /* "jupyter.cull_idle" */
    enum config_kind kind;
    size_t           offset, size;
    uint64_t         least, most;   /* sizes: least; counts: both */
    const char      *zero;          /* the word for 0; NULL: a value is required */
};
#define CONFIG_AT(type, member) offsetof(type, member), sizeof((type *)0)->member

/* The keys of a section that a door owns, and their struct. */
struct config_section {
    const char              *name;          /* "jupyter": the part before the dot */
    const struct config_key *keys;
    size_t                   n_keys;
    const void              *defaults;      /* a whole struct */
    size_t                   size;          /* of it */
};

struct config;

/* After config_defaults(), before the file is read. */
MUST_CHECK int config_add_section(struct config *c, const struct config_section *section, struct err *e);
/* The struct with the values; valid as long as c. */
const void    *config_section_values(const struct config *c, const struct config_section *section);

#endif
