/* spec + facts about the host -> plan: everything that a box is made of, in order, as plain data. Making a plan touches
 * nothing, so it can be printed (`carrel plan`) and tested; tree.c and init.c carry it out. */
#ifndef CARREL_BOX_PLAN_H
#define CARREL_BOX_PLAN_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/err.h"
#include "box/spec.h"
#include "sys/landlock.h"

enum { PLAN_ENTRIES = 384, PLAN_MOUNTS = 160, PLAN_RULES = 80, PLAN_TEXT = 32768, FACTS_TREES = 64,
       FACTS_ETC = 96, FACTS_TEXT = 65536 };


/* A top-level name of the root that the box is made from. */
struct facts_tree {
    char name[64];
    char link[128];         /* where it points, if it is a symbolic link; else "" */
    bool is_file;
};

/* Something of the host's /etc that boxes on the host's root may see. */
struct facts_etc {
    char        name[56];   /* below /etc */
    char        link[128];  /* where it points, if it is a symbolic link; else "" */
    const char *text;       /* what the file holds; NULL: it is bound */
    bool        is_dir;
};

/* What the plan depends on besides the spec. */
struct host_facts {
    int  landlock_abi;
    bool can_mknod;         /* real device nodes; else the host's are bound */
    bool can_map_ids;       /* idmapped mounts */
    bool is_rootless;       /* the box's user is the caller */
    char zone[96];          /* where /etc/localtime points, or "" */
    size_t n_trees;
    struct facts_tree tree[FACTS_TREES];
    uint64_t etc_read_us;   /* when the host's /etc was looked at; 0: never */
    size_t n_etc, etc_text_used;
    struct facts_etc etc[FACTS_ETC];
    char etc_text[FACTS_TEXT];
};

/* What is made on the root's own tmpfs, or on the scratch tmpfs, before anything foreign is attached. */
enum plan_kind { PLAN_DIR, PLAN_LINK, PLAN_FILE, PLAN_NODE };

/* The keeper's own user is unknown in the box, so what it owns nobody in the box can change, whatever capabilities it
 * has there. */
enum plan_owner { OWNER_KEEPER, OWNER_BOX_ROOT, OWNER_BOX_USER };

struct plan_entry {
    enum plan_kind  kind;
    enum plan_owner owner;
    bool            on_scratch;
    const char     *path;       /* without the leading slash */
    const char     *text;       /* where a link points, or what a file holds */
    mode_t          mode;
    dev_t           device;     /* of a node, whose mode has its type in it */
};

enum plan_source {
    FROM_HOST,      /* path in the root directory or on the host */
    FROM_DEVICE,    /* a device node of the host's own /dev */
    FROM_CALLER,    /* what fd is open on */
    FROM_LAYER,     /* likewise, of the host's own */
    FROM_NODE,      /* likewise, a device node of the host's */
    FROM_SCRATCH,   /* a folder of the scratch tmpfs, or of the store that takes its place */
    FROM_MEMORY,    /* a tmpfs of its own, where the scratch is none */
    FROM_ROOT,      /* a file or folder of the new root itself, put over something in /proc */
    FROM_OVERLAY,   /* path of the lower tree on the host; upper on scratch */
    FROM_PROC,
    FROM_DEVPTS,
};

struct plan_mount {
    enum plan_source source;
    const char      *path;      /* in that source */
    const char      *target;    /* without the leading slash */
    unsigned         flags;     /* TREE_* */
    int              fd;        /* borrowed; of FROM_CALLER, FROM_LAYER and FROM_NODE */
    bool             recursive;
    bool             optional;  /* a target or source that does not exist, or no terminals, is no error */
    bool             fills_gap; /* left out unless the target is an empty directory */
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
    bool              needs_ids;    /* init looks for mount points in trees whose owners it knows by id maps alone */
    bool              on_store;
    int               store;        /* borrowed: the mounted tree of store.h; -1: none, or not yet there */
    int               landlock_abi;
    size_t            n_entries, n_mounts, n_rules;
    struct plan_entry entry[PLAN_ENTRIES];
    struct plan_mount mount[PLAN_MOUNTS];
    struct plan_rule  rule[PLAN_RULES];
    size_t            text_used;
    char              text[PLAN_TEXT];
};

/* Reads the facts for a root (NULL: the host's own). The keeper's part (can_*, landlock_abi) is filled by
 * box_host_open. */
MUST_CHECK int facts_read_root(struct host_facts *facts, const char *root, struct err *e);

/* etc.c: what of the host's /etc boxes may see; looked at anew after a while. */
void           facts_read_etc(struct host_facts *facts);

/* spec and facts must outlive plan. */
MUST_CHECK int plan_make(const struct box_spec *spec, const struct host_facts *facts, struct plan *ret, struct err *e);

/* The steps for a person, one per line, in the order in which they happen. */
void plan_print(const struct plan *plan, FILE *out);

#endif
