/* Shared by config.c (the keys) and config_file.c (the YAML). */
#ifndef CARREL_FRONT_CONFIG_CONFIG_PRIVATE_H
#define CARREL_FRONT_CONFIG_CONFIG_PRIVATE_H

#include "front/config/config.h"

/* LINES: a text, or a list of texts, which become its lines. */
enum config_shape {
    CONFIG_UNKNOWN, CONFIG_SCALAR, CONFIG_BOOL, CONFIG_LIST, CONFIG_LINES, CONFIG_MAP, CONFIG_SECTION
};

/* The kind of value that a key has: "listen", "defaults" (a section), "defaults.memory", "roots" (a map with free
 * names). */
enum config_shape config_shape(const struct config *c, const char *key);

/* In config.c, for config_template.c. */
MUST_CHECK int config_check_path(const char *name, const char *value, struct err *e);
MUST_CHECK int config_check_name(const char *section, const char *name, struct err *e);

/* config_template.c: keys that begin with "templates". */
bool           config_template_owns(const char *key);
enum config_shape config_template_shape(const char *key);
MUST_CHECK int config_template_set(struct config *c, const char *key, const char *value, struct err *e);
void           config_template_defaults(struct config *c);

/* config_pairs.c: words LEFT=RIGHT, separated by spaces. */
MUST_CHECK int config_check_pairs(const char *name, const char *value, const char *example, struct err *e);

/* config_python.c: pythons.NAME. */
MUST_CHECK int config_python_set(struct config *c, const char *name, const char *path, struct err *e);

/* config_shares.c: no default request is more than a box may have. */
MUST_CHECK int config_check_requests(const struct config *c, struct err *e);

/* config_network.c: networks.NAME, network.ask, network.deny. */
MUST_CHECK int config_network_set(struct config *c, const char *name, const char *value, struct err *e);
MUST_CHECK int config_network_ask(const char *key, const char *value, enum network_ask *ret, struct err *e);
MUST_CHECK int config_network_deny(const char *key, const char *value, struct net_policy *ret, struct err *e);

/* ": did you mean X?" in the caller's storage, or "". */
const char *config_suggest(const struct config *c, const char *key, char *text, size_t size);

#endif
