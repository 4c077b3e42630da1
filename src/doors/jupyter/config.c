#include "doors/jupyter/config.h"

#define AT(member) CONFIG_AT(struct jupyter_config, member)

static const struct jupyter_config defaults = { .cull_interval_s = 300 };

static const struct config_key keys[] = {
    { "jupyter.cull_idle", KIND_SECONDS, AT(cull_idle_s), 0, 0, "none" },
    { "jupyter.cull_interval", KIND_SECONDS, AT(cull_interval_s), 0, 0, NULL },
    { "jupyter.cull_connected", KIND_BOOL, AT(cull_connected), 0, 0, NULL },
    { "jupyter.cull_busy", KIND_BOOL, AT(cull_busy), 0, 0, NULL },
    { "jupyter.max_kernels", KIND_COUNT, AT(max_kernels), 1, 1000000, "none" },
    { "jupyter.client_envs", KIND_NAMES, AT(client_envs), 0, 0, NULL },
};

const struct config_section jupyter_settings = {
    .name = "jupyter",
    .keys = keys,
    .n_keys = sizeof keys / sizeof *keys,
    .defaults = &defaults,
    .size = sizeof defaults,
};
