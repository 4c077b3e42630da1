/* spec + facts about the host -> plan: all parts of a box, in order, as plain data. Making a plan touches nothing, so
 * it can be printed (`carrel plan`) and tested; tree.c and init.c execute it. */
#ifndef CARREL_BOX_PLAN_H
#define CARREL_BOX_PLAN_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/err.h"
#include "box/spec.h"
#include "sys/landlock.h"

enum { PLAN_ENTRIES = 384, PLAN_MOUNTS = 160, PLAN_RULES = 80, PLAN_TEXT = 32768, FACTS_TREES = 64,
       FACTS_ETC = 96, FACTS_TEXT = 65536, FACTS_ACCOUNTS = 6144 };


/* The folder of the scratch, or the tmpfs, that is BOX_SECRETS in the box. */
#define PLAN_SECRETS "secrets"

/* A top-level name of the box's root. */
struct facts_tree {
    char name[64];
    char link[128];         /* its target, if it is a symbolic link; else "" */
    bool is_file;
};

/* An entry of the host's /etc that boxes on the host's root may see. */
struct facts_etc {
    char        name[56];   /* below /etc */
    char        link[128];  /* its target, if it is a symbolic link; else "" */
    const char *text;       /* the file's contents; NULL: it is bound */
    bool        is_dir;
    bool        for_network;    /* only in boxes with network */
};

/* The plan's input besides the spec. */
struct host_facts {
    int  landlock_abi;
    bool can_mknod;         /* else the host's nodes are bound */
    bool can_map_ids;       /* idmapped mounts */
    bool is_rootless;       /* the box's user is the caller */
    enum { LEAF_UNSEEN, LEAF_V1, LEAF_V2 } leaf;    /* how a box sees its own cgroup */
    char zone[96];          /* the target of /etc/localtime, or "" */
    const char *certificates;           /* a file of CA certificates that boxes have, too; NULL: none */
    const char *pip;                    /* for boxes with network: lines of a pip.conf; NULL: none */
    unsigned index_secrets;             /* number of package addresses that were dropped because they may hold a
                                         * secret */
    uint64_t etc_read_us;   /* when the host's /etc was read; 0: never */
    bool etc_has_network;   /* also what only boxes with network have */
    size_t n_trees, n_etc, etc_text_used;
    /* Only their first entries are written (box_host_open). */
    struct facts_tree tree[FACTS_TREES];
    struct facts_etc etc[FACTS_ETC];
    char etc_text[FACTS_TEXT];
    char accounts[2][FACTS_ACCOUNTS];   /* passwd and group of a root of its own; "": none, or too large */
};

enum leaf_view { LEAF_VIEW_MEMORY, LEAF_VIEW_PIDS, LEAF_VIEW_CPU, LEAF_VIEW_V2 };

/* Entries on the root's own tmpfs, or on the scratch tmpfs, made before any foreign tree is attached. */
enum plan_kind { PLAN_DIR, PLAN_LINK, PLAN_FILE, PLAN_NODE };

/* The keeper's own user is unknown in the box, so no process in the box can change its files, whatever capabilities it
 * has there. */
enum plan_owner { OWNER_KEEPER, OWNER_BOX_ROOT, OWNER_BOX_USER };

struct plan_entry {
    enum plan_kind  kind;
    enum plan_owner owner;
    bool            on_scratch;
    const char     *path;       /* without the leading slash */
    const char     *text;       /* a link's target, or a file's contents */
    size_t          size;       /* of contents that may have NULs in them; 0: they end with NUL */
    mode_t          mode;
    dev_t           device;     /* of a node, whose mode includes its type */
};

enum plan_source {
    FROM_HOST,      /* path in the root directory or on the host */
    FROM_DEVICE,    /* a device node of the host's own /dev */
    FROM_CALLER,    /* the tree that fd is open on */
    FROM_LAYER,     /* likewise, of the host's own */
    FROM_NODE,      /* likewise, a device node of the host's */
    FROM_SCRATCH,   /* a folder of the scratch tmpfs, or of the store that replaces it */
    FROM_VOLUME,    /* the mount that fd is, which only this box has */
    FROM_MEMORY,    /* a tmpfs of its own, where the scratch is a store */
    FROM_ROOT,      /* a file or folder of the new root itself, mounted over a part of /proc */
    FROM_OVERLAY,   /* path of the lower tree on the host; upper on scratch */
    FROM_PROC,
    FROM_DEVPTS,
    FROM_LEAF,      /* the box's own cgroup; fd is an enum leaf_view. It exists later than the other trees */
};

struct plan_mount {
    enum plan_source source;
    const char      *path;      /* in that source */
    const char      *target;    /* without the leading slash */
    unsigned         flags;     /* TREE_* */
    int              fd;        /* borrowed; of FROM_CALLER, FROM_LAYER, FROM_NODE and FROM_VOLUME */
    bool             recursive;
    bool             optional;  /* a missing target or source, or missing terminals, are no error */
    bool             fills_gap; /* skipped unless the target is an empty directory */
};

struct plan_rule {
    const char          *path;
    enum landlock_rights rights;
};

struct plan {
    enum profile      profile;
    struct limits     limits;
    const char       *hostname;
    const char       *root;         /* directory that FROM_HOST paths are below; "/" for the host */
    uid_t             uid;
    gid_t             gid;
    bool              writable_root, terminal, no_proc, has_network;
    bool              on_store;
    int               store;        /* borrowed: the mounted tree of store.h; -1: none, or not yet mounted */
    int               landlock_abi;
    size_t            trust_bytes;  /* of large files in the root */
    size_t            n_entries, n_mounts, n_rules;
    struct plan_entry entry[PLAN_ENTRIES];
    struct plan_mount mount[PLAN_MOUNTS];
    struct plan_rule  rule[PLAN_RULES];
    size_t            text_used;
    char              text[PLAN_TEXT];
};

/* Reads the facts for a root (NULL: the host's own). for_network: also what only boxes with network have.
 * box_host_open fills the keeper's part (can_*, landlock_abi). */
MUST_CHECK int facts_read_root(struct host_facts *facts, const char *root, bool for_network, struct err *e);

/* accounts.c: whether this text of passwd or group has an account of this name, or (name NULL) of this number. */
bool           accounts_have(const char *text, const char *name, unsigned number);

/* etc.c: the part of the host's /etc that boxes may see; read again after a while. */
void           facts_read_etc(struct host_facts *facts, bool for_network);
/* Part of it: package indexes (box/indexes.h). etc: /etc. */
void           facts_read_indexes(struct host_facts *facts, int etc);

/* plan_trust.c: files of certificates, and mounts of them over the root's. */
MUST_CHECK int plan_add_trust(struct plan *plan, const struct box_trust *trust, struct err *e);

/* spec and facts must outlive plan. */
MUST_CHECK int plan_make(const struct box_spec *spec, const struct host_facts *facts, struct plan *ret, struct err *e);

/* Prints the steps for a person, one per line, in their order. */
void plan_print(const struct plan *plan, FILE *out);

#endif
