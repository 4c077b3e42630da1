/* Checks a claim's labels and annotations for its Pod, environment and volumes, with the original's messages. Chooses
 * the pool's member for it. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "cluster/body.h"
#include "cluster/boxclaim.h"
#include "cluster/pool.h"

enum { KEY_SIZE = 320, VALUE_SIZE = 1024, NODES_MAX = 1024 };

#define NAME_RULE                                                                                                      \
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character " \
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "                                      \
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
#define DOMAIN_RULE                                                                                                    \
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "   \
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "                        \
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
#define VALUE_RULE                                                                                                     \
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "    \
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "  \
    "is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"

/* ---- keys and values ---- */

static bool is_name(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && (i == 0 || i == n - 1 || !strchr("-_.", s[i])))
            return false;
    return n > 0;
}

static bool is_domain(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool inner = i > 0 && i < n - 1 && s[i - 1] != '.';
        bool fits = islower((unsigned char)s[i]) || isdigit((unsigned char)s[i]);
        if (!fits && !(inner && s[i] == '-' && s[i + 1] != '.') && !(inner && s[i] == '.' && s[i - 1] != '-'))
            return false;
    }
    return n > 0;
}

/* NULL: it is a valid key. */
static const char *key_fault(const char *key)
{
    const char *slash = strchr(key, '/'), *name = slash ? slash + 1 : key;

    if (slash && strchr(slash + 1, '/'))
        return "a valid label key " NAME_RULE
               " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
    if (slash && slash == key)
        return "prefix part must be non-empty";
    if (slash && slash - key > 253)
        return "prefix part must be no more than 253 bytes";
    if (slash && !is_domain(key, (size_t)(slash - key)))
        return "prefix part " DOMAIN_RULE;
    if (!*name)
        return "name part must be non-empty; name part " NAME_RULE;
    if (strlen(name) > 63)
        return "name part must be no more than 63 bytes";
    return is_name(name, strlen(name)) ? NULL : "name part " NAME_RULE;
}

/* Whether a domain is in the list, or below a domain in it. */
static bool is_below(const char *domain, size_t size, const char *list)
{
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ","), skip = strspn(at, " \t\r\n");
        size_t own = n - skip;
        while (own > 0 && isspace((unsigned char)at[skip + own - 1]))
            own--;
        if (n > skip && own > 0 && size >= own && strncasecmp(domain + size - own, at + skip, own) == 0 &&
            (size == own || domain[size - own - 1] == '.'))
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}

static const char *label_fault(struct texts *t, const char *key, const char *value, const char *domains)
{
    const char *fault = key_fault(key), *slash = strchr(key, '/');

    if (fault)
        return texts_add(t, "invalid label key: \"%s\": %s", key, fault);
    if (strcasecmp(key, "app") == 0 && strcasecmp(value, "sandbox-router") == 0)
        return texts_add(t, "restricted system label value: \"%s\"=\"%s\" is not allowed in AdditionalPodMetadata", key,
                         value);
    if (!slash)
        return texts_add(t, "label \"%s\" must have a domain prefix (e.g. 'sandbox.users.io/my-label') to prevent "
                         "opting into unintended policy domains", key);
    if (!is_below(key, (size_t)(slash - key), domains && *domains ? domains : "sandbox.users.io"))
        return texts_add(t, "label domain \"%.*s\" is not in the allowlist (configure the allowed-label-domains key of "
                         "the agent-sandbox-config ConfigMap in the controller namespace; default: sandbox.users.io)",
                         (int)(slash - key), key);
    if (strlen(value) > 63)
        return texts_add(t, "invalid label value: \"%s\" does not match allowed pattern: must be no more than 63 bytes",
                         value);
    if (*value && !is_name(value, strlen(value)))
        return texts_add(t, "invalid label value: \"%s\" does not match allowed pattern: " VALUE_RULE, value);
    return NULL;
}

static const char *note_fault(struct texts *t, const char *key)
{
    const char *fault = key_fault(key), *slash = strchr(key, '/');

    if (fault)
        return texts_add(t, "invalid annotation key: \"%s\": %s", key, fault);
    if (slash && is_below(key, (size_t)(slash - key), "kubernetes.io,k8s.io,agents.x-k8s.io") &&
        strcmp(key, NOTE_EVICT) != 0)
        return texts_add(t, "restricted system domain: \"%s\" is not allowed in AdditionalPodMetadata", key);
    return NULL;
}

bool boxclaim_check_metadata(const struct boxclaim *c, const char *domains, struct texts *texts, const char **ret_text)
{
    struct jsonwalk w = jsonscan_walk(body_slice(c->labels));
    char key[KEY_SIZE], value[VALUE_SIZE];
    const char *fault;

    while (jsonscan_next(&w)) {
        if (!jsonscan_text(w.key, key, sizeof key) || !jsonscan_text(w.value, value, sizeof value)) {
            *ret_text = "failed to validate a label: it is too long or no text";
            return false;
        }
        if ((fault = label_fault(texts, key, value, domains))) {
            *ret_text = texts_add(texts, "failed to validate label \"%s\": %s", key, fault);
            return false;
        }
    }
    w = jsonscan_walk(body_slice(c->notes));
    while (jsonscan_next(&w)) {
        if (!jsonscan_text(w.key, key, sizeof key)) {
            *ret_text = "failed to validate an annotation: its key is too long";
            return false;
        }
        if ((fault = note_fault(texts, key))) {
            *ret_text = texts_add(texts, "failed to validate annotation \"%s\": %s", key, fault);
            return false;
        }
    }
    return true;
}

/* ---- conflicts with the template ---- */

static const char *override_fault(struct texts *t, const char *noun, const char *wanted, const char *template)
{
    struct jsonwalk w = jsonscan_walk(body_slice(wanted));
    char key[KEY_SIZE], value[VALUE_SIZE], there[VALUE_SIZE];

    while (jsonscan_next(&w)) {
        if (!jsonscan_text(w.key, key, sizeof key) || !jsonscan_text(w.value, value, sizeof value))
            continue;
        struct jsonslice now = jsonscan_find(body_slice(template), key);
        if (now.data && jsonscan_text(now, there, sizeof there) && strcmp(there, value) != 0)
            return texts_add(t, "metadata override conflict: %s \"%s\" is defined in template with value \"%s\", but "
                             "claim requests \"%s\"", noun, key, there, value);
    }
    return NULL;
}

bool boxclaim_check_merge(const struct boxclaim_view *v, struct texts *texts, const char **ret_text)
{
    *ret_text = override_fault(texts, "label", v->claim->labels, v->template->labels);
    if (!*ret_text)
        *ret_text = override_fault(texts, "annotation", v->claim->notes, v->template->notes);
    return !*ret_text;
}

static bool has_named(struct jsonslice list, const char *name, bool in_metadata)
{
    struct jsonwalk w = jsonscan_walk(list);

    while (jsonscan_next(&w))
        if (jsonscan_is(jsonscan_find(in_metadata ? jsonscan_find(w.value, "metadata") : w.value, "name"), name))
            return true;
    return false;
}

/* Checks names of volume claim templates: each has one, and they differ. */
static const char *volume_fault(struct texts *t, const char *whose, const char *list)
{
    struct jsonwalk w = jsonscan_walk(body_slice(list));
    char name[KEY_SIZE], other[KEY_SIZE];

    for (size_t i = 0; jsonscan_next(&w); i++) {
        struct jsonslice own = jsonscan_find(jsonscan_find(w.value, "metadata"), "name");
        if (jsonscan_inside(own).size == 0 || !jsonscan_text(own, name, sizeof name))
            return texts_add(t, "%s: invalid volume claim templates: name at index %zu is empty", whose, i);
        struct jsonwalk before = jsonscan_walk(body_slice(list));
        for (size_t k = 0; k < i && jsonscan_next(&before); k++)
            if (jsonscan_text(jsonscan_find(jsonscan_find(before.value, "metadata"), "name"), other, sizeof other) &&
                strcmp(name, other) == 0)
                return texts_add(t, "%s: invalid volume claim templates: duplicate name \"%s\"", whose, name);
    }
    return NULL;
}

static const char *volumes_fault(const struct boxclaim_view *v, struct texts *t)
{
    const char *wanted = v->claim->claim_templates, *there = v->template->claim_templates;
    const char *fault = volume_fault(t, wanted ? "failed to merge volume claim templates: template"
                                               : "invalid volume claim templates in template", there);
    struct jsonwalk w = jsonscan_walk(body_slice(wanted));
    char name[KEY_SIZE];

    if (fault || !wanted)
        return fault;
    if ((fault = volume_fault(t, "failed to merge volume claim templates: claim", wanted)))
        return fault;
    if (v->template->volumes == ADD_NOTHING)
        return "failed to merge volume claim templates: volume claim templates are disallowed by the template";
    while (v->template->volumes == ADD_NEW && jsonscan_next(&w))
        if (jsonscan_text(jsonscan_find(jsonscan_find(w.value, "metadata"), "name"), name, sizeof name) &&
            has_named(body_slice(there), name, true))
            return texts_add(t, "failed to merge volume claim templates: overriding volume claim templates is "
                             "forbidden by the template: cannot override template volume \"%s\"", name);
    return NULL;
}

/* ---- environment ---- */

/* The template's container for a variable: the one that it names, or the first. */
static struct jsonslice container_for(struct jsonslice spec, struct jsonslice variable)
{
    static const char *const lists[] = { "initContainers", "containers" };
    struct jsonslice target = jsonscan_find(variable, "containerName");
    char name[KEY_SIZE] = "";

    (void)jsonscan_text(target, name, sizeof name);
    for (size_t i = name[0] ? 0 : 1; i < 2; i++) {
        struct jsonwalk w = jsonscan_walk(jsonscan_find(spec, lists[i]));
        while (jsonscan_next(&w))
            if (!name[0] || jsonscan_is(jsonscan_find(w.value, "name"), name))
                return w.value;
    }
    return (struct jsonslice){ 0 };
}

static const char *env_fault(const struct boxclaim_view *v, struct texts *t, const char **ret_reason)
{
    struct jsonslice spec = body_slice(v->template->pod_spec);
    struct jsonwalk w = jsonscan_walk(body_slice(v->claim->env));
    char name[KEY_SIZE] = "", box[KEY_SIZE] = "";

    *ret_reason = "EnvVarsInjectionRejected";
    if (!v->claim->env)
        return NULL;
    if (v->template->env == ADD_NOTHING)
        return "environment variable injection rejected: environment variable injection is not allowed by the template "
               "policy";
    while (jsonscan_next(&w)) {
        struct jsonslice container = container_for(spec, w.value);
        (void)jsonscan_text(jsonscan_find(w.value, "name"), name, sizeof name);
        (void)jsonscan_text(jsonscan_find(container.data ? container : w.value, container.data ? "name"
                                                                                              : "containerName"),
                            box, sizeof box);
        if (!container.data) {
            *ret_reason = "ReconcilerError";
            return texts_add(t, "target container \"%s\" not found in template for environment variable \"%s\"", box,
                             name);
        }
        if (v->template->env == ADD_ANY)
            continue;
        struct jsonwalk from = jsonscan_walk(jsonscan_find(container, "envFrom"));
        if (jsonscan_next(&from))
            return texts_add(t, "environment variable injection rejected: container \"%s\" uses EnvFrom sources; "
                             "Allowed policy cannot safely prevent overriding EnvFrom-provided variables", box);
        if (has_named(jsonscan_find(container, "env"), name, false)) {
            *ret_reason = "ReconcilerError";
            return texts_add(t, "environment variable override is not allowed by the template policy for variable "
                             "\"%s\"", name);
        }
    }
    return NULL;
}

bool boxclaim_check_cold(const struct boxclaim_view *v, struct texts *texts, const char **ret_reason,
                         const char **ret_text)
{
    *ret_reason = "ReconcilerError";
    if (!v->template->pod_spec) {
        *ret_text = "the template has no podTemplate.spec; nothing can be started from it";
        return false;
    }
    *ret_reason = "VolumeClaimTemplatesError";
    if ((*ret_text = volumes_fault(v, texts)))
        return false;
    *ret_reason = "ReconcilerError";
    if (!boxclaim_check_merge(v, texts, ret_text))
        return false;
    return !(*ret_text = env_fault(v, texts, ret_reason));
}

/* ---- the choice of a member ---- */

struct node_count {
    const char *name;
    unsigned    n;
};

static struct node_count *count_of(struct node_count *all, const char *node)
{
    size_t at = hash_bytes(HASH_SEED, node, strlen(node)) % NODES_MAX;

    for (size_t i = 0; i < NODES_MAX; i++, at = (at + 1) % NODES_MAX)
        if (!all[at].name || strcmp(all[at].name, node) == 0) {
            all[at].name = node;
            return &all[at];
        }
    return NULL;
}

/* 0: not available; 1: it has no address yet; 2: it is not Ready; 3: it is. */
static int worth(const struct boxclaim_view *v, const struct sandbox *s)
{
    if (s->is_reserved || !pool_may_give(v->pool, s))
        return 0;
    if (v->pool->recreates && (!v->template || pool_is_stale(s, v->template)))
        return 0;
    if (!s->status_ips)
        return 1;
    return s->condition[COND_READY].status == COND_TRUE ? 3 : 2;
}

static bool is_older(const struct sandbox *a, const struct sandbox *b)
{
    return a->created != b->created ? a->created < b->created : strcmp(a->o.name, b->o.name) < 0;
}

const struct sandbox *boxclaim_pick(const struct boxclaim_view *v, size_t *ret_pending)
{
    static struct node_count nodes[NODES_MAX];      /* large; one thread */
    const struct sandbox *best = NULL;
    unsigned best_count = 0;
    int most = 0;

    *ret_pending = 0;
    for (size_t i = 0; i < v->n_members; i++) {
        int w = worth(v, v->member[i]);
        *ret_pending += w == 1;
        most = w > most ? w : most;
    }
    if (most < 2)
        return NULL;
    memset(nodes, 0, sizeof nodes);
    for (size_t i = 0; i < v->n_members; i++) {
        const struct sandbox *s = v->member[i];
        struct node_count *c = s->status_node && worth(v, s) == most ? count_of(nodes, s->status_node) : NULL;
        if (c)
            c->n++;
    }
    for (size_t i = 0; i < v->n_members; i++) {
        const struct sandbox *s = v->member[i];
        if (worth(v, s) != most)
            continue;
        struct node_count *c = s->status_node ? count_of(nodes, s->status_node) : NULL;
        unsigned n = c ? c->n : 0;
        if (!best || n > best_count || (n == best_count && is_older(s, best))) {
            best = s;
            best_count = n;
        }
    }
    return best;
}
