/* The cache's form of the cluster's objects: only members that a reconciler reads. Each object is one allocation: the
 * struct, then the bytes of its strings. Missing strings are NULL. */
#ifndef CARREL_CLUSTER_OBJECT_H
#define CARREL_CLUSTER_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/jsonscan.h"

/* A SandboxClaim is a "boxclaim" here, because a volume claim is a "claim". */
enum kind { KIND_SANDBOX, KIND_KERNEL, KIND_POD, KIND_SERVICE, KIND_CLAIM, KIND_TEMPLATE, KIND_POOL, KIND_BOXCLAIM,
            KIND_NETPOLICY, KINDS };

struct kind_info {
    const char *name, *plural, *api_version;
    const char *prefix, *path;      /* of the group, and of the whole collection: "/api/v1", "/api/v1/pods" */
};
extern const struct kind_info kind_info[KINDS];

#define LABEL_HASH          "agents.x-k8s.io/sandbox-name-hash"
#define LABEL_ADOPTABLE     "agents.x-k8s.io/adoptable"
#define LABEL_CREATED_BY    "agents.x-k8s.io/created-by"
#define LABEL_LAUNCH        "agents.x-k8s.io/launch-type"
#define LABEL_POOL          "agents.x-k8s.io/warm-pool-sandbox"
#define LABEL_TEMPLATE      "agents.x-k8s.io/sandbox-template-ref-hash"
#define LABEL_CLAIM_ID      "agents.x-k8s.io/claim-uid"
#define LABEL_BLUEPRINT     "agents.x-k8s.io/sandbox-template-hash"
#define LABEL_POD_TEMPLATE  "agents.x-k8s.io/sandbox-pod-template-hash"     /* deprecated by the one above */
#define NOTE_POD_NAME       "agents.x-k8s.io/pod-name"
#define NOTE_TEMPLATE       "agents.x-k8s.io/sandbox-template-ref"
#define NOTE_LABELS         "agents.x-k8s.io/propagated-labels"
#define NOTE_NOTES          "agents.x-k8s.io/propagated-annotations"
/* Ours. */
#define NOTE_RETAIN         "carrel.dev/retain-volumes"
#define NOTE_RECREATE       "carrel.dev/recreate-on-change"
#define NOTE_RELEASE        "carrel.dev/release-volumes"
#define NOTE_SECURE         "carrel.dev/secure-defaults"
#define NOTE_SPEC_HASH      "carrel.dev/template-hash"
#define NOTE_SCALED         "carrel.dev/suspended-by-scale"
#define NOTE_TROUBLE        "carrel.dev/last-trouble"
#define NOTE_WAITING        "carrel.dev/waiting"
#define LABEL_KERNEL        "jupyter.org/kernel-name"

enum truth { UNSET, NO, YES };

struct object {
    struct object *next;            /* in the bucket of its name */
    struct object *next_owned;      /* in the bucket of its owner */
    const char    *namespace, *name, *uid;
    const char    *owner_uid, *owner_kind, *owner_name, *owner_group;   /* of the controller */
    const char    *owners;          /* all owner references, if they are not just the controller's */
    const char    *name_hash;       /* the label */
    const char    *owned_key;       /* the key for cache_first_owned(); NULL: not in that index */
    uint64_t       version;
    uint32_t       hash, generation_of_list;
    uint8_t        kind;
    bool           deleting, adoptable;
};

enum condition_kind { COND_READY, COND_SUSPENDED, COND_SCHEDULED, COND_FINISHED, CONDITIONS };
enum condition_status { COND_ABSENT, COND_FALSE, COND_TRUE, COND_UNKNOWN };

struct condition {
    const char *reason, *message;
    int64_t     since;              /* seconds; lastTransitionTime */
    int64_t     generation;
    uint8_t     status;             /* enum condition_status */
};

enum pod_phase { POD_NO_PHASE, POD_PENDING, POD_RUNNING, POD_SUCCEEDED, POD_FAILED, POD_UNKNOWN };

struct pod {
    struct object o;
    const char *node, *ips;         /* ips: separated by commas */
    const char *scheduled_reason, *scheduled_message;
    const char *labels, *notes;     /* JSON objects; only of Pods that may be ours */
    const char *conditions, *state; /* JSON in normal form; a Kernel's only */
    const char *trouble;            /* why it died or does not start, as a sentence; NULL: no problem */
    int64_t     scheduled_since;    /* seconds */
    uint8_t phase, ready, scheduled;                /* the last two: enum condition_status */
};

struct service {
    struct object o;
    const char *cluster_ip;
    const char *selector;           /* JSON; only if it differs from ours */
    uint64_t    ports_hash;         /* of the normal form, see ports_write() */
    bool        selects;            /* its selector is the name hash label and nothing else */
};

struct claim {
    struct object o;
};

enum { CLAIMS_MAX = 64 };

/* A volume claim that a Sandbox uses; in the index from claims to Sandboxes. */
struct claim_ref {
    struct claim_ref *next;
    struct sandbox   *box;
    const char       *name;
    bool              is_template;  /* from volumeClaimTemplates */
};

struct sandbox {
    struct object o;
    const char *pod_name;           /* annotation */
    const char *created_by, *launch, *template_ref, *pool, *template_hash_label, *claim_id, *blueprint_label;
    const char *trouble, *waiting;  /* annotations */
    const char *labels, *notes;     /* of the Pod template: JSON objects */
    char       *pod_spec, *claim_templates;     /* JSON; allocations of their own; NULL: dropped, fetch it */
    struct claim_ref *claims;
    int64_t     generation, created, shutdown;  /* seconds; shutdown 0: none */
    uint64_t    seen_ms;            /* when it was first seen; 0: it is older than this process */
    uint64_t    spec_hash, ports_hash;
    uint64_t    blueprint;          /* hash of its template's values, in normal form; 0: in no pool */
    uint16_t    n_claims;
    uint8_t     service;            /* enum truth */
    uint8_t     retain, recreate, release, secure;  /* enum truth: annotations */
    int8_t      replicas;           /* -1: not given */
    bool        suspended;          /* operatingMode */
    bool        has_spec, scaled;   /* scaled: we wrote operatingMode because of replicas */
    bool        deletes_at_shutdown, too_many_claims;
    bool        is_reserved;        /* a boxclaim is about to adopt it; not in the API */
    /* status */
    struct condition condition[CONDITIONS];
    const char *foreign;            /* conditions of others: JSON, separated by commas */
    const char *status_service, *status_fqdn, *status_selector, *status_ips, *status_node;
    int8_t      status_replicas;    /* -1: none */
};

struct kernel {
    struct object o;
    const char *kernel_id, *connection;         /* annotations */
    const char *labels, *notes;     /* of the Pod template: JSON objects */
    const char *conditions, *state; /* of the status, in normal form: JSON */
    char       *pod_spec;           /* JSON; may be dropped */
    int64_t     generation, created;
    uint8_t     ready;              /* enum condition_status */
    bool        has_spec, has_replicas;
};

/* Decodes an object of the API server. The result is the caller's; NULL with *e set if it is no such object (a name or
 * uid is missing, a member has the wrong type). */
struct object *object_decode(enum kind kind, struct jsonslice text, struct err *e);
void           object_free(struct object *o);

/* Frees the large parts that are needed only for creations. */
void object_drop_template(struct object *o);

bool object_is_owned_by(const struct object *o, const struct object *owner);

/* FNV-1a; the first gives the label's eight digits. */
void     hash_name(const char *name, char text[static 9]);
uint64_t hash_bytes(uint64_t seed, const void *data, size_t size);
#define HASH_SEED UINT64_C(0xcbf29ce484222325)

/* "2026-01-02T03:04:05.678+01:00" as seconds, or microseconds, since 1970. */
bool time_parse(const char *text, int64_t *ret);
bool time_parse_us(const char *text, int64_t *ret);
void time_write(int64_t seconds, char text[static 24]);
void time_write_us(int64_t us, char text[static 32]);

/* A Pod's or a Kernel's conditions with a Kernel's members, in a fixed order, as a JSON array. */
struct buf;
void conditions_write(struct jsonslice conditions, struct buf *out);

/* The ports of a Service for this Pod spec, or of an existing Service (services_own), sorted and named, as a JSON
 * array. */
void ports_write(struct jsonslice pod_spec, struct buf *out);
void ports_write_own(struct jsonslice ports, struct buf *out);

#endif
