/* The cache's form of SandboxTemplates, SandboxWarmPools, SandboxClaims and NetworkPolicies; see object.h. */
#ifndef CARREL_CLUSTER_EXTENSION_H
#define CARREL_CLUSTER_EXTENSION_H

#include "cluster/object.h"

#define EXTENSION_GROUP     "extensions.agents.x-k8s.io"
#define NOTE_BOX_NAME       "agents.x-k8s.io/sandbox-name"      /* on a claim; once it was a label */
#define NOTE_OBSERVED       "agents.x-k8s.io/controller-first-observed-at"
#define NOTE_FIRST_READY    "agents.x-k8s.io/claim-first-ready-at"
#define NOTE_REQUESTED      "agents.x-k8s.io/client-first-requested-at"
#define NOTE_WEBHOOK        "agents.x-k8s.io/webhook-first-observed-at"
#define NOTE_TRACE          "opentelemetry.io/trace-context"
#define NOTE_EVICT          "cluster-autoscaler.kubernetes.io/safe-to-evict"

/* Whether claims may add to a template's values, or also change them. */
enum addition { ADD_NOTHING, ADD_NEW, ADD_ANY };

/* Templates are few, so their whole spec is kept. */
struct template {
    struct object o;
    const char *hash_label;             /* LABEL_TEMPLATE, as it is */
    const char *labels, *notes;         /* of the Pod template: JSON objects */
    const char *pod_spec;               /* JSON, with the secure defaults; NULL: there is none */
    const char *claim_templates;        /* JSON array */
    const char *policy_spec;            /* of the wanted NetworkPolicy: JSON; NULL: it wants none */
    int64_t     generation;
    uint64_t    blueprint, policy_hash; /* of the normal forms */
    char        blueprint_label[9], pod_label[9];
    uint8_t     service;                /* enum truth */
    uint8_t     env, volumes;           /* enum addition */
};

struct netpolicy {
    struct object o;
    uint64_t      spec_hash;            /* of the normal form */
};

/* What the controller remembers of a pool between two runs; not in the API. */
struct pool_memory {
    uint64_t hold_until_ms;             /* no replacement before then */
    uint64_t yielding_ms;               /* since when it lets claims go first; 0: it does not */
    uint64_t paced_at_ms;               /* the time that tokens refers to; 0: never */
    double   tokens;
    unsigned members;                   /* at the last run, with the ones created then */
    unsigned batch;                     /* how many may be created at once: doubled after each success */
    bool     is_known, is_stuck;        /* is_stuck: an event has reported that it makes no progress */
};

struct pool {
    struct object o;
    const char *template_name;
    const char *status_selector;
    int64_t     generation, replicas;
    int64_t     status_generation, status_replicas, status_ready;   /* -1: none */
    bool        recreates;              /* updateStrategy */
    struct pool_memory memory;
};

enum shutdown_policy { SHUTDOWN_RETAIN, SHUTDOWN_DELETE, SHUTDOWN_FOREGROUND };

struct boxclaim {
    struct object o;
    const char *pool_name;              /* NULL: of v1alpha1, which names a template */
    const char *template_name, *warmth; /* v1alpha1: sandboxTemplateRef, and warmpool: none, default or a name */
    const char *assigned, *assigned_label;      /* the Sandbox, by annotation or (long ago) by label */
    const char *observed, *first_ready, *requested, *webhook, *trace, *trouble;     /* annotations */
    const char *created_by;
    const char *labels, *notes;         /* additionalPodMetadata: JSON objects */
    const char *env, *claim_templates;  /* JSON arrays; NULL: none */
    int64_t     generation, created, shutdown, ttl;     /* seconds; shutdown 0: none; ttl -1: none */
    int64_t     seen_us;                /* since 1970, when it was first seen; 0: it is older than this process */
    uint8_t     policy;                 /* enum shutdown_policy */
    struct condition ready, finished;
    const char *foreign;                /* conditions of others: JSON, separated by commas */
    const char *box_name, *box_ips, *box_fqdn;  /* of the status */
};

/* Equal values give equal texts: with another order, with or without empty members, or with quantities in another unit.
 * NORMAL_RULES: for a NetworkPolicy, where an empty object has a meaning and a port is TCP by default. */
enum normal_form { NORMAL_POD, NORMAL_RULES };
void     normal_write(struct jsonslice value, enum normal_form form, struct buf *out);
uint64_t normal_hash(struct jsonslice value, enum normal_form form);
/* A hash of the parts of a Sandbox or template that make a pool's member stale. */
uint64_t blueprint_hash(struct jsonslice pod_spec, struct jsonslice claim_templates, uint8_t service);

#endif
