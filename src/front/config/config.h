/* The server's settings: /etc/carrel/carrel.yaml (or the user's own), then flags. Everything has a default. */
#ifndef CARREL_FRONT_CONFIG_CONFIG_H
#define CARREL_FRONT_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "front/config/config_key.h"
#include "proto/net.h"
#include "proto/limits.h"

struct config_quota {
    uint32_t boxes;             /* 0: no limit */
    uint64_t memory_bytes;
    uint32_t cpu_milli;
    uint64_t buffer_bytes;      /* of the front's memory */
};

enum {
    CONFIG_ROOTS = 64, CONFIG_NETWORKS = 16, CONFIG_ORIGINS = 16, CONFIG_POOL = 128, CONFIG_TEMPLATES = 32,
    CONFIG_SECTIONS = 8
};

/* What kernels are made from: an interpreter, and what it has imported before it is asked. Those of the keeper have the
 * same numbers: 1 is the first. */
struct config_template {
    char     name[64];
    char     python[256];               /* path of the interpreter, the same on the host and in a box */
    bool     python_is_default;         /* nobody has named it; it may not be there before 'carrel setup' */
    char     imports[512];              /* comma list; those that are not installed are left out */
    char     startup[256];              /* directory of startup files; "" = none */
    char     layers[768];               /* further directories that boxes see read-only, with colons between them */
    /* Parked kernels that are kept ready; 0: none, they are forked when asked for. */
    uint32_t pool;
    bool     no_zygote;                 /* every kernel is started anew */
    bool     zygote_late;               /* it is started with the first kernel, and not with the server or a box */
    char     kernel[512];               /* command of a stock kernel, words with spaces between them; "": our own */
    bool     interrupt_by_message;      /* what that kernel wants instead of a signal */
    char     language[32];              /* of the kernel, as Jupyter's programs are told */
    char     net[64];                   /* the network of its boxes, if they ask for none; "": none */
};

/* A policy that boxes may ask for by its name. */
struct config_network {
    char              name[64];
    struct net_policy policy;
};

/* What boxes may ask for. */
enum network_ask { NETWORK_ANY, NETWORK_NAMED, NETWORK_NONE };

struct config {
    char     listen[128];               /* "127.0.0.1:7070"; "" = no TCP */
    char     socket[108];               /* unix socket of the API */
    char     state[256];                /* directory of the database and the logs */
    char     run[256];                  /* directory of the keeper's socket */
    char     user[64];                  /* whom the front becomes when it is started as root; "" = an id of its own */
    bool     allow_anonymous;           /* TCP without a token, on loopback only */
    bool     owner_only;                /* of unix peers only who runs the server and root, also if that is root */
    uint64_t output_kept_bytes;         /* of a command without an output limit; the limit of a cell */
    uint64_t max_output_bytes;          /* the most that a command or a cell may ask for as its limit */
    struct limits defaults, most;       /* of a box that does not say otherwise, and of any; 0: none */
    uint64_t host_memory_bytes;         /* what boxes may request in all; 0: what the host has, less an eighth */
    uint32_t host_cpu_milli;            /* 0: all processors */
    uint32_t ttl_s, idle_s;             /* defaults; 0: none */
    uint32_t pool_size;                 /* empty boxes of the default kind that are kept ready; 0: none */
    struct config_quota quota;          /* of each identity */
    uint32_t n_roots;
    char     root_name[CONFIG_ROOTS][64];
    char     root_path[CONFIG_ROOTS][256];
    uint32_t n_networks;
    struct config_network network[CONFIG_NETWORKS];
    struct net_policy network_deny;     /* rules that deny, for every box */
    enum network_ask network_ask;
    uint32_t network_connections;       /* of one box at a time */
    uint64_t network_bandwidth;         /* bytes in a second, of one box; 0: no bound */
    uint32_t n_origins;
    char     origin[CONFIG_ORIGINS][256];   /* browsers may come from these pages */
    char     log_level[16];
    char     guest[256];                /* directory of what runs in boxes (guest/); "" = not found. Not a key */
    char     device_kinds[512];         /* comma list: kinds of devices that boxes may have (devices/cdi.h); "": none */
    uint32_t n_templates;               /* at least one, "python" */
    struct config_template template[CONFIG_TEMPLATES];
    uint32_t n_sections;                /* that doors have brought; see config_section_values() */
    struct {
        const struct config_section *about;
        size_t                       offset;
    } section[CONFIG_SECTIONS];
    _Alignas(16) unsigned char section_bytes[8192];
};

void           config_defaults(struct config *c, bool is_root);
/* Errors name file and line. A missing file is no error unless must_exist. */
MUST_CHECK int config_load(struct config *c, const char *path, bool must_exist, struct err *e);
/* One "key=value" as in the file, for flags. */
MUST_CHECK int config_set(struct config *c, const char *key, const char *value, struct err *e);
/* The same in one text. */
MUST_CHECK int config_set_line(struct config *c, const char *line, struct err *e);
MUST_CHECK int config_check(const struct config *c, struct err *e);

/* By its number, from 1; NULL if there is none. */
const struct config_template *config_template(const struct config *c, uint32_t number);
/* Gives this interpreter to the templates that name none. */
void           config_template_fill(struct config *c, const char *python);
/* Its number; 0: there is none. */
uint32_t       config_template_find(const struct config *c, const char *name);
/* Whether a command of its interpreter failed because that is yet to be made, by 'carrel setup'. */
bool           config_awaits_setup(const struct config *c, uint32_t number, const struct err *failure);
/* The PATH of what runs in a box with the template's directories: its interpreter comes first. 0: with none's. */
enum { CONFIG_PATH_SIZE = 384 };
const char    *config_template_path(const struct config *c, uint32_t number, char room[CONFIG_PATH_SIZE]);

#endif
