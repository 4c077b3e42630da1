/* The section "jupyter" of the configuration. */
#ifndef CARREL_DOORS_JUPYTER_CONFIG_H
#define CARREL_DOORS_JUPYTER_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "front/config/config_key.h"

struct jupyter_config {
    uint32_t cull_idle_s, cull_interval_s;  /* kernels that nobody used for so long are ended; 0: never */
    bool     cull_connected, cull_busy;     /* even if a client is connected, or a cell runs */
    uint32_t max_kernels;                   /* of each identity; 0: no limit */
    char     client_envs[1024];     /* comma list: what a client may hand to its kernel besides KERNEL_*, or "*" */
};

extern const struct config_section jupyter_settings;

#endif
