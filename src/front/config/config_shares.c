/* Defaults of requests: of the configuration and of templates. */
#include <errno.h>
#include <stdio.h>

#include "front/config/config_private.h"

/* A default that no box could have. */
static int check_request(const char *name, uint64_t request, const char *of, uint64_t most, struct err *e)
{
    return most && request > most
               ? err_set(e, EINVAL, STEP_USAGE, "%s is more than %s: no box could be made", name, of)
               : 0;
}

static int check_requests(const struct config *c, const char *where, const struct limits *requests, struct err *e)
{
    char memory[128], cpus[128];

    snprintf(memory, sizeof memory, "%s.request_memory", where);
    snprintf(cpus, sizeof cpus, "%s.request_cpus", where);
    int r = check_request(memory, requests->memory_bytes, "limits.memory", c->most.memory_bytes, e);
    if (r == 0)
        r = check_request(memory, requests->memory_bytes, "host.memory", c->host_memory_bytes, e);
    if (r == 0)
        r = check_request(memory, requests->memory_bytes, "quota.request_memory", c->quota.requests.memory_bytes, e);
    if (r == 0)
        r = check_request(cpus, requests->cpu_milli, "limits.cpus", c->most.cpu_milli, e);
    if (r == 0)
        r = check_request(cpus, requests->cpu_milli, "host.cpus", c->host_cpu_milli, e);
    if (r == 0)
        r = check_request(cpus, requests->cpu_milli, "quota.request_cpus", c->quota.requests.cpu_milli, e);
    return r;
}

int config_check_requests(const struct config *c, struct err *e)
{
    char where[96];
    int r = check_requests(c, "defaults", &c->default_requests, e);

    for (uint32_t i = 0; i < c->n_templates && r == 0; i++) {
        snprintf(where, sizeof where, "templates.%s", c->template[i].name);
        r = check_requests(c, where, &c->template[i].requests, e);
    }
    return r;
}
