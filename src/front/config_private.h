/* Shared by config.c (what the keys mean) and config_file.c (the YAML around them). */
#ifndef CARREL_FRONT_CONFIG_PRIVATE_H
#define CARREL_FRONT_CONFIG_PRIVATE_H

#include "front/config.h"

enum config_shape { CONFIG_UNKNOWN, CONFIG_SCALAR, CONFIG_BOOL, CONFIG_LIST, CONFIG_MAP, CONFIG_SECTION };

/* What kind of thing stands behind a key: "listen", "defaults" (a section), "defaults.memory", "roots" (a map with free
 * names). */
enum config_shape config_shape(const char *key);

/* ": did you mean X?" in the caller's storage, or "". */
const char *config_suggest(const char *key, char *text, size_t size);

#endif
