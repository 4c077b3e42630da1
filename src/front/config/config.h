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
    uint64_t disk_bytes;        /* volumes and boxes on disk */
    struct limits requests;     /* that its boxes may have in all; only those with LIMIT_REQUEST */
};

enum {
    CONFIG_ROOTS = 64, CONFIG_NETWORKS = 16, CONFIG_ORIGINS = 16, CONFIG_POOL = 128, CONFIG_BLANK = 256,
    CONFIG_TEMPLATES = 32, CONFIG_SECTIONS = 8, CONFIG_PYTHONS = 32, CONFIG_PYTHON_PATH = 280, CONFIG_KEYS_SIZE = 2048
};

/* The base of kernels: an interpreter, and the modules that it imports ahead. The keeper's templates have the same
 * numbers: 1 is the first. */
struct config_template {
    char     name[64];
    char     python[256];               /* path of the interpreter, the same on the host and in a box; before
                                         * config_template_fill() perhaps the name of one of pythons */
    char     packages[2048];            /* of its boxes, if they name none: sorted lines; "": none */
    bool     python_is_default;         /* not set by the user; it may be missing before 'carrel setup' */
    char     imports[512];              /* comma-separated; modules that are not installed are left out */
    char     startup[256];              /* directory of startup files; "" = none */
    char     layers[768];               /* further directories that boxes see read-only, separated by colons */
    /* Parked kernels that are kept ready; 0: none, they are forked on request. */
    uint32_t pool;
    bool     no_zygote;                 /* every kernel is exec'd */
    bool     zygote_late;               /* it is started with the first kernel, and not with the server or a box */
    char     kernel[512];               /* command of a stock kernel, words separated by spaces; "": our own */
    bool     interrupt_by_message;      /* that kernel wants a message instead of a signal */
    char     language[32];              /* of the kernel, as reported to Jupyter's programs */
    char     volumes[512];              /* of its boxes, if they name none: words NAME:/PATH[:ro]; "": none */
    char     secrets[512];              /* of its boxes: words NAME=VARIABLE or NAME=/run/secrets/FILE; "": none */
    char     net[64];                   /* the network of its boxes, if they set none; "": none */
    char     keys[CONFIG_KEYS_SIZE];    /* of its boxes, if they set none, with ; between them; "": none */
    struct limits requests;             /* of its boxes, if they set none; 0: the configuration's */
};

/* A policy that boxes may use by its name. */
struct config_network {
    char              name[64];
    struct net_policy policy;
};

/* Which networks boxes may request. */
enum network_ask { NETWORK_ANY, NETWORK_NAMED, NETWORK_NONE };

struct config {
    char     listen[128];               /* "127.0.0.1:7070"; "" = no TCP */
    char     socket[108];               /* unix socket of the API */
    char     state[256];                /* directory of the database and the logs */
    char     run[256];                  /* directory of the keeper's socket */
    char     user[64];                  /* the user that the front becomes when started as root; "": an id of its own */
    bool     allow_anonymous;           /* TCP without a token, on loopback only */
    bool     owner_only;                /* unix peers must be the server's user or root, also if the server is root's */
    uint64_t output_kept_bytes;         /* of a command without an output limit; the limit of a cell */
    uint64_t max_output_bytes;          /* the largest limit that a command or a cell may request */
    struct limits defaults, most;       /* defaults of a box, and the most that any may have; 0: none */
    struct limits default_requests;     /* of a box; only those with LIMIT_REQUEST. 0: none */
    uint32_t host_overcommit;           /* how often limits.memory of all boxes may be host_memory_bytes; 0: any */
    bool     host_memory_measured;      /* host_memory_bytes was not set by the configuration */
    uint64_t host_memory_bytes;         /* what boxes may request in all; 0: the host's memory less an eighth */
    uint32_t host_cpu_milli;            /* 0: all processors */
    uint32_t ttl_s, idle_s;             /* defaults; 0: none */
    uint32_t pool_size;                 /* empty boxes of the default kind that are kept ready; 0: none */
    uint32_t pool_blank;                /* boxes of families without a kernel that may be kept ready; 0: none */
    struct config_quota quota;          /* of each identity */
    uint32_t n_roots;
    char     root_name[CONFIG_ROOTS][64];
    char     root_path[CONFIG_ROOTS][256];
    uint32_t n_pythons;
    struct {
        char name[64];                  /* "3.12", or any name */
        char path[256];                 /* the interpreter, or the prefix that has it */
    } python[CONFIG_PYTHONS];
    uint32_t n_networks;
    struct config_network network[CONFIG_NETWORKS];
    struct net_policy network_deny;     /* rules that deny, for every box */
    enum network_ask network_ask;
    uint32_t network_connections;       /* of one box at a time */
    uint64_t network_bandwidth;         /* bytes per second, of one box; 0: unbounded */
    uint32_t n_origins;
    char     origin[CONFIG_ORIGINS][256];   /* pages of these origins may call */
    char     log_level[16];
    const char *certificates;           /* CA certificates for boxes with network (proto/certificates.h). Not a key */
    char     guest[256];                /* directory of the files that run in boxes (guest/); "": not found. Not a
                                         * key */
    char     device_kinds[512];         /* comma-separated: kinds of devices that boxes may have (devices/cdi.h); "":
                                         * none */
    char     credentials[512];          /* of systemd, and who may use them: words NAME=IDENTITY */
    uint32_t n_templates;               /* at least one, "python" */
    struct config_template template[CONFIG_TEMPLATES];
    uint32_t n_sections;                /* sections of doors; see config_section_values() */
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
/* Sets this interpreter for the templates that name none, and the path for those that name one of pythons. */
MUST_CHECK int config_template_fill(struct config *c, const char *python, struct err *e);
/* Its number; 0: no such template. */
uint32_t       config_template_find(const struct config *c, const char *name);
/* The number of one of pythons, by its name, or the newest of a version; 0: there is none. */
uint32_t       config_python_find(const struct config *c, const char *wanted);
/* "3.10, 3.12" */
void           config_python_names(const struct config *c, char *ret, size_t size);
/* -EINVAL, with the names that there are. name: the caller's word for the value. */
MUST_CHECK int config_python_refuse(const struct config *c, const char *name, const char *wanted, struct err *e);
/* The interpreter of a listed one, which may be a prefix. */
const char    *config_python_path(const struct config *c, uint32_t number, char room[CONFIG_PYTHON_PATH]);
/* Whether a command of its interpreter failed because 'carrel setup' has not made the interpreter yet. */
bool           config_awaits_setup(const struct config *c, uint32_t number, const struct err *failure);
/* The PATH of programs in a box with the template's directories: its interpreter comes first. number 0: without one. */
enum { CONFIG_PATH_SIZE = 384 };
const char    *config_template_path(const struct config *c, uint32_t number, char room[CONFIG_PATH_SIZE]);

#endif
