/* The section "jupyter" of the configuration. */
#ifndef CARREL_DOORS_JUPYTER_CONFIG_H
#define CARREL_DOORS_JUPYTER_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "front/config/config_key.h"

struct jupyter_config {
    uint32_t cull_idle_s, cull_interval_s;  /* ends kernels that were idle for so long; 0: never */
    bool     cull_connected, cull_busy;     /* also if a client is connected, or a cell runs */
    uint32_t max_kernels;                   /* of each identity; 0: no limit */
    char     client_envs[1024];     /* comma-separated: variables that a client may pass to its kernel besides KERNEL_*,
                                     * or "*" */
};

extern const struct config_section jupyter_settings;

#endif
