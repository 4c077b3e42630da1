/* Every setting is a row of a table: of the one here, or of a door's own section. The file (config_file.c) and the
 * flags both end in config_set(), so that they cannot differ. Checks of a single value are made there; checks of
 * several values in config_check(). */
#include "front/config/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"
#include "devices/cdi.h"
#include "front/config/config_private.h"
#include "front/identity/auth_host.h"
#include "proto/places.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

#define AT(member) CONFIG_AT(struct config, member)
#define DEFAULT_KEY(field, type, name, kind, least, most, run, server, server_most, flags, ...) \
    { "defaults." name, KIND_##kind, AT(defaults.field), least, most, (flags) & LIMIT_AUTO ? "auto" : NULL },
#define MOST_KEY(field, type, name, kind, least, most_of_all, ...) \
    { "limits." name, KIND_##kind, AT(most.field), least, most_of_all, "none" },
static const struct config_key keys[] = {
    { "listen", KIND_LISTEN, AT(listen), 0, 0, NULL },
    { "socket", KIND_PATH, AT(socket), 0, 0, NULL },
    { "state", KIND_PATH, AT(state), 0, 0, NULL },
    { "run", KIND_PATH, AT(run), 0, 0, NULL },
    { "user", KIND_USER, AT(user), 0, 0, NULL },
    { "allow_anonymous", KIND_BOOL, AT(allow_anonymous), 0, 0, NULL },
    { "owner_only", KIND_BOOL, AT(owner_only), 0, 0, NULL },
    { "log_level", KIND_LEVEL, AT(log_level), 0, 0, NULL },
    { "origins", KIND_ORIGINS, 0, 0, 0, 0, NULL },
    { "roots", KIND_ROOTS, 0, 0, 0, 0, NULL },
    { "pythons", KIND_PYTHONS, 0, 0, 0, 0, NULL },
    { "networks", KIND_NETWORKS, 0, 0, 0, 0, NULL },
    { "network.ask", KIND_ASK, AT(network_ask), 0, 0, NULL },
    { "network.deny", KIND_DENY, AT(network_deny), 0, 0, NULL },
    { "network.connections", KIND_COUNT, AT(network_connections), 1, 65536, NULL },
    { "network.bandwidth", KIND_SIZE, AT(network_bandwidth), 1 * KIB, 0, "none" },
    LIMIT_ROWS(DEFAULT_KEY)
    LIMIT_ROWS(MOST_KEY)
    { "defaults.request_memory", KIND_SIZE, AT(default_requests.memory_bytes), 1 * MIB, 0, "none" },
    { "defaults.request_cpus", KIND_CPUS, AT(default_requests.cpu_milli), 0, 0, "none" },
    { "defaults.output", KIND_SIZE, AT(output_kept_bytes), 1 * KIB, 0, NULL },
    { "defaults.ttl", KIND_SECONDS, AT(ttl_s), 0, 0, "none" },
    { "defaults.idle", KIND_SECONDS, AT(idle_s), 0, 0, "none" },
    { "limits.output", KIND_SIZE, AT(max_output_bytes), 1 * KIB, 0, NULL },
    { "host.memory", KIND_SIZE, AT(host_memory_bytes), 16 * MIB, 0, "auto" },
    { "host.cpus", KIND_CPUS, AT(host_cpu_milli), 0, 0, "auto" },
    { "host.overcommit", KIND_COUNT, AT(host_overcommit), 1, 1000, "none" },
    { "pool.size", KIND_COUNT, AT(pool_size), 1, CONFIG_POOL, "off" },
    { "pool.blank", KIND_COUNT, AT(pool_blank), 1, CONFIG_BLANK, "off" },
    { "quota.boxes", KIND_COUNT, AT(quota.boxes), 1, 1000000, "none" },
    { "quota.memory", KIND_SIZE, AT(quota.memory_bytes), 1 * MIB, 0, "none" },
    { "quota.cpus", KIND_CPUS, AT(quota.cpu_milli), 0, 0, "none" },
    { "quota.disk", KIND_SIZE, AT(quota.disk_bytes), 16 * MIB, 0, "none" },
    { "quota.request_memory", KIND_SIZE, AT(quota.requests.memory_bytes), 1 * MIB, 0, "none" },
    { "quota.request_cpus", KIND_CPUS, AT(quota.requests.cpu_milli), 0, 0, "none" },
    { "quota.buffers", KIND_SIZE, AT(quota.buffer_bytes), 1 * MIB, 0, "none" },
    { "devices.allow", KIND_DEVICES, AT(device_kinds), 0, 0, NULL },
    { "secrets.credentials", KIND_CREDENTIALS, AT(credentials), 0, 0, NULL },
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };
static const char *const sections[] = { "defaults", "limits", "host", "pool", "quota", "devices", "network", "secrets",
                                         "templates" };
enum { N_SECTIONS = sizeof sections / sizeof sections[0] };
static const char roots_prefix[] = "roots.", networks_prefix[] = "networks.", pythons_prefix[] = "pythons.";

/* ---- keys ---- */

/* *ret_base: the struct that its offset is in. */
static const struct config_key *find_key(const struct config *c, const char *name, size_t *ret_base)
{
    for (size_t i = 0; i < N_KEYS; i++)
        if (!strcmp(keys[i].name, name)) {
            *ret_base = 0;
            return &keys[i];
        }
    for (uint32_t i = 0; i < c->n_sections; i++) {
        const struct config_section *s = c->section[i].about;
        for (size_t k = 0; k < s->n_keys; k++)
            if (!strcmp(s->keys[k].name, name)) {
                *ret_base = offsetof(struct config, section_bytes) + c->section[i].offset;
                return &s->keys[k];
            }
    }
    return NULL;
}

static bool is_section(const struct config *c, const char *name)
{
    for (size_t i = 0; i < N_SECTIONS; i++)
        if (!strcmp(sections[i], name))
            return true;
    for (uint32_t i = 0; i < c->n_sections; i++)
        if (!strcmp(c->section[i].about->name, name))
            return true;
    return false;
}

int config_add_section(struct config *c, const struct config_section *section, struct err *e)
{
    const size_t last = c->n_sections ? c->n_sections - 1 : 0;
    size_t offset = c->n_sections ? c->section[last].offset + c->section[last].about->size : 0;

    offset = (offset + 15) & ~(size_t)15;
    if (is_section(c, section->name))
        return err_set(e, EEXIST, STEP_USAGE, "there are two sections '%s' of settings", section->name);
    if (c->n_sections == CONFIG_SECTIONS || offset + section->size > sizeof c->section_bytes)
        return err_set(e, ENOSPC, STEP_USAGE, "there is no room for the settings of '%s'", section->name);
    memcpy(c->section_bytes + offset, section->defaults, section->size);
    c->section[c->n_sections].about = section;
    c->section[c->n_sections++].offset = offset;
    return 0;
}

const void *config_section_values(const struct config *c, const struct config_section *section)
{
    for (uint32_t i = 0; i < c->n_sections; i++)
        if (c->section[i].about == section)
            return c->section_bytes + c->section[i].offset;
    return NULL;
}

enum config_shape config_shape(const struct config *c, const char *name)
{
    size_t base;
    const struct config_key *key = find_key(c, name, &base);

    if (config_template_owns(name))
        return config_template_shape(name);
    if (is_section(c, name))
        return CONFIG_SECTION;
    if (!key)
        return CONFIG_UNKNOWN;
    switch (key->kind) {
    case KIND_ORIGINS:
    case KIND_NAMES:
    case KIND_DEVICES:
        return CONFIG_LIST;
    case KIND_ROOTS:
    case KIND_NETWORKS:
    case KIND_PYTHONS:
        return CONFIG_MAP;
    case KIND_BOOL:
        return CONFIG_BOOL;
    default:
        return CONFIG_SCALAR;
    }
}

/* The number of insertions, deletions and replacements that turn a into b; words longer than the table count as far
 * away. */
static unsigned distance(const char *a, const char *b)
{
    enum { LONGEST = 32 };
    unsigned row[LONGEST + 1];
    size_t n = strlen(a), m = strlen(b);

    if (n > LONGEST || m > LONGEST)
        return LONGEST;
    for (unsigned j = 0; j <= m; j++)
        row[j] = j;
    for (unsigned i = 1; i <= n; i++) {
        unsigned diagonal = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= m; j++) {
            unsigned replace = diagonal + (tolower((unsigned char)a[i - 1]) != b[j - 1]);
            unsigned insert = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replace < insert ? replace : insert;
        }
    }
    return row[m];
}

static void consider(const char *word, const char *candidate, const char *answer, unsigned *best, const char **ret)
{
    unsigned d = distance(word, candidate);

    if (d < *best) {
        *best = d;
        *ret = answer;
    }
}

struct suggestion {
    const char *name, *word, *nearest;
    unsigned    best;
};

static void consider_keys(struct suggestion *s, const struct config_key *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *dot = strrchr(list[i].name, '.');
        consider(s->name, list[i].name, list[i].name, &s->best, &s->nearest);
        if (dot)    /* the user may know the word but not its section; the full name wins a tie */
            consider(s->word, dot + 1, list[i].name, &s->best, &s->nearest);
    }
}

const char *config_suggest(const struct config *c, const char *name, char *text, size_t size)
{
    struct suggestion s = { .name = name, .word = strrchr(name, '.') ? strrchr(name, '.') + 1 : name };

    s.best = (unsigned)strlen(s.word) / 3 + 2;      /* must be nearer than that */
    consider_keys(&s, keys, N_KEYS);
    for (uint32_t i = 0; i < c->n_sections; i++)
        consider_keys(&s, c->section[i].about->keys, c->section[i].about->n_keys);
    for (size_t i = 0; i < N_SECTIONS; i++)
        consider(name, sections[i], sections[i], &s.best, &s.nearest);
    for (uint32_t i = 0; i < c->n_sections; i++)
        consider(name, c->section[i].about->name, c->section[i].about->name, &s.best, &s.nearest);
    snprintf(text, size, s.nearest ? "; did you mean '%s'?" : "%s", s.nearest ? s.nearest : "");
    return text;
}

/* ---- values ---- */

static int set_text(const struct config_key *key, const char *value, char *to, struct err *e)
{
    size_t length = strlen(value);

    if (length >= key->size)
        return err_set(e, EINVAL, STEP_USAGE, "%s is too long; the most is %zu bytes", key->name, key->size - 1);
    memset(to, 0, key->size);
    memcpy(to, value, length);
    return 0;
}

int config_check_path(const char *name, const char *value, struct err *e)
{
    if (value[0] != '/')
        return err_set(e, EINVAL, STEP_USAGE, "%s '%s' is not an absolute path", name, parse_quote(value).text);
    for (const char *p = value; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return err_set(e, EINVAL, STEP_USAGE, "%s has a control character in it", name);
    for (const char *p = strstr(value, "/.."); p; p = strstr(p + 1, "/.."))
        if (p[3] == '/' || p[3] == 0)
            return err_set(e, EINVAL, STEP_USAGE, "%s '%s' must not contain '..'", name, parse_quote(value).text);
    return 0;
}

static int check_listen(const char *value, struct host *ret, struct err *e)
{
    if (host_parse((struct http_text){ value, strlen(value) }, ret) < 0 || ret->port < 0 ||
        (ret->kind == HOST_NAME && strcmp(ret->name, "localhost") != 0))
        return err_set(e, EINVAL, STEP_USAGE,
                       "listen '%s' is not ADDRESS:PORT; use for example 127.0.0.1:7070 or [::1]:7070",
                       parse_quote(value).text);
    return 0;
}

static int check_user(const char *value, struct err *e)
{
    for (const char *p = value; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("._-", *p))
            return err_set(e, EINVAL, STEP_USAGE, "user '%s' is not a user's name", parse_quote(value).text);
    return value[0] == '-' ? err_set(e, EINVAL, STEP_USAGE, "user must not begin with '-'") : 0;
}

static int set_bool(const struct config_key *key, const char *value, bool *to, struct err *e)
{
    if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
        return err_set(e, EINVAL, STEP_USAGE, "%s '%s' must be true or false", key->name, parse_quote(value).text);
    *to = value[0] == 't';
    return 0;
}

static int check_level(const char *value, struct err *e)
{
    static const char *const levels[] = { "error", "warning", "info", "debug" };

    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (!strcmp(levels[i], value))
            return 0;
    return err_set(e, EINVAL, STEP_USAGE, "log_level '%s' must be error, warning, info or debug",
                   parse_quote(value).text);
}

/* to is a uint64_t for a size, else a uint32_t. */
static int set_number(const struct config_key *key, const char *value, void *to, struct err *e)
{
    uint64_t bytes = 0, ms = 0;
    uint32_t number = 0;
    int r = 0;

    if (!key->zero || (strcmp(value, key->zero) != 0 && strcmp(value, "0") != 0)) {
        if (key->kind == KIND_SIZE)
            r = parse_size(key->name, value, key->least, &bytes, e);
        else if (key->kind == KIND_CPUS)
            r = parse_cpus(key->name, value, &number, e);
        else if (key->kind == KIND_COUNT)
            r = parse_count(key->name, value, (uint32_t)key->least, (uint32_t)key->most, &number, e);
        else
            r = parse_duration(key->name, value, &ms, e);
    }
    if (r < 0)
        return r;
    if (key->kind == KIND_SECONDS)
        number = (uint32_t)((ms + 999) / 1000);
    if (key->kind == KIND_SIZE)
        memcpy(to, &bytes, sizeof bytes);
    else
        memcpy(to, &number, sizeof number);
    return 0;
}

static int add_origin(struct config *c, const char *value, struct err *e)
{
    struct origin origin;
    char text[sizeof c->origin[0] + 32];

    if (origin_parse((struct http_text){ value, strlen(value) }, &origin) < 0)
        return err_set(e, EINVAL, STEP_USAGE, "origins: '%s' is not an origin; use scheme, host and port only, "
                       "for example https://example.org or http://localhost:3000", parse_quote(value).text);
    origin_format(&origin, text, sizeof text);
    if (strlen(text) >= sizeof c->origin[0])
        return err_set(e, EINVAL, STEP_USAGE, "origins: '%s' is too long", parse_quote(value).text);
    for (uint32_t i = 0; i < c->n_origins; i++)
        if (!strcmp(c->origin[i], text))
            return 0;
    if (c->n_origins == CONFIG_ORIGINS)
        return err_set(e, EINVAL, STEP_USAGE, "origins: there are more than %d", CONFIG_ORIGINS);
    memcpy(c->origin[c->n_origins++], text, strlen(text) + 1);
    return 0;
}

int config_check_name(const char *section, const char *name, struct err *e)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-");

    if (!length || name[length] || length > 63 || !isalnum((unsigned char)name[0]))
        return err_set(e, EINVAL, STEP_USAGE,
                       "%s: '%s' is not a name; use up to 63 of a-z, 0-9, '.', '_' and '-', a letter or "
                       "digit first",
                       section, parse_quote(name).text);
    return 0;
}

static int add_word(const struct config_key *key, const char *value, char *to, struct err *e)
{
    size_t n = strlen(to), length = strlen(value);

    if (n + length + 2 > key->size)
        return err_set(e, EINVAL, STEP_USAGE, "%s is too long; the most is %zu bytes", key->name, key->size - 1);
    snprintf(to + n, key->size - n, "%s%s", n ? "," : "", value);
    return 0;
}

/* A kind of device, or one of any vendor's. */
static int add_kind(const struct config_key *key, const char *value, char *to, struct err *e)
{
    char as_kind[256];

    snprintf(as_kind, sizeof as_kind, "%s%s", value[0] == '*' ? "any.vendor" : "", value[0] == '*' ? value + 1 : value);
    if (strcmp(value, "*") != 0 && !cdi_kind_is_valid(as_kind, strlen(as_kind)))
        return err_set(e, EINVAL, STEP_USAGE, "%s: '%s' is not a kind of device; use vendor.com/class, */class or *",
                       key->name, parse_quote(value).text);
    return add_word(key, value, to, e);
}

/* Names of variables, separated by commas. */
static int add_name(const struct config_key *key, const char *value, char *to, struct err *e)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    size_t length = strlen(value);

    if (!length || (strcmp(value, "*") != 0 && strspn(value, letters) != length))
        return err_set(e, EINVAL, STEP_USAGE, "%s: '%s' is not the name of a variable", key->name,
                       parse_quote(value).text);
    return add_word(key, value, to, e);
}

/* An existing name gets the new path: a flag overrides the file. */
static int set_root(struct config *c, const char *name, const char *path, struct err *e)
{
    char key[80];
    uint32_t i = 0;
    int r = config_check_name("roots", name, e);

    if (r < 0)
        return r;
    snprintf(key, sizeof key, "%s%s", roots_prefix, name);
    r = config_check_path(key, path, e);
    if (r < 0)
        return r;
    if (strlen(path) >= sizeof c->root_path[0])
        return err_set(e, EINVAL, STEP_USAGE, "%s is too long; the most is %zu bytes", key, sizeof c->root_path[0] - 1);
    while (i < c->n_roots && strcmp(c->root_name[i], name) != 0)
        i++;
    if (i == CONFIG_ROOTS)
        return err_set(e, EINVAL, STEP_USAGE, "roots: there are more than %d", CONFIG_ROOTS);
    snprintf(c->root_name[i], sizeof c->root_name[i], "%s", name);
    snprintf(c->root_path[i], sizeof c->root_path[i], "%s", path);
    if (i == c->n_roots)
        c->n_roots++;
    return 0;
}

int config_set(struct config *c, const char *name, const char *value, struct err *e)
{
    size_t base = 0;
    const struct config_key *key = find_key(c, name, &base);
    struct host host;
    char hint[80], address[300];
    int r = 0;

    if (!strncmp(name, roots_prefix, sizeof roots_prefix - 1))
        return set_root(c, name + sizeof roots_prefix - 1, value, e);
    if (!strncmp(name, networks_prefix, sizeof networks_prefix - 1))
        return config_network_set(c, name + sizeof networks_prefix - 1, value, e);
    if (!strncmp(name, pythons_prefix, sizeof pythons_prefix - 1))
        return config_python_set(c, name + sizeof pythons_prefix - 1, value, e);
    if (config_template_owns(name))
        return config_template_set(c, name, value, e);
    if (!key)
        return err_set(e, EINVAL, STEP_USAGE, "unknown setting '%s'%s", parse_quote(name).text,
                       config_suggest(c, name, hint, sizeof hint));
    void *to = (char *)c + base + key->offset;
    switch (key->kind) {
    case KIND_ROOTS:
        return err_set(e, EINVAL, STEP_USAGE, "roots needs a name, as in roots.NAME=/path");
    case KIND_NETWORKS:
        return err_set(e, EINVAL, STEP_USAGE, "networks needs a name, as in networks.NAME=index.example.org");
    case KIND_PYTHONS:
        return err_set(e, EINVAL, STEP_USAGE, "pythons needs a name, as in pythons.3.12=/opt/python/bin/python3.12");
    case KIND_ASK:
        return config_network_ask(key->name, value, to, e);
    case KIND_DENY:
        return config_network_deny(key->name, value, to, e);
    case KIND_ORIGINS:
        return add_origin(c, value, e);
    case KIND_NAMES:
        return add_name(key, value, to, e);
    case KIND_DEVICES:
        return add_kind(key, value, to, e);
    case KIND_BOOL:
        return set_bool(key, value, to, e);
    case KIND_LISTEN: /* "" means: no TCP */
        r = value[0] ? check_listen(value, &host, e) : 0;
        if (r == 0 && value[0]) { /* as an address, so that no resolver is needed to bind */
            bool is_name = host.kind == HOST_NAME, is_v6 = host.kind == HOST_IPV6;
            snprintf(address, sizeof address, "%s%s%s:%d", is_v6 ? "[" : "", is_name ? "127.0.0.1" : host.name,
                     is_v6 ? "]" : "", host.port);
            value = address;
        }
        break;
    case KIND_PATH:
        r = config_check_path(key->name, value, e);
        break;
    case KIND_USER:
        r = check_user(value, e);
        break;
    case KIND_CREDENTIALS:
        r = config_check_pairs(key->name, value, "hf=uid:1000 hf=ci-bot", e);
        break;
    case KIND_LEVEL:
        r = check_level(value, e);
        break;
    default:
        return set_number(key, value, to, e);
    }
    return r < 0 ? r : set_text(key, value, to, e);
}

int config_set_line(struct config *c, const char *line, struct err *e)
{
    const char *equals = strchr(line, '=');
    char key[128];      /* longer than a section, a name of 63 letters and a word */

    if (!equals || (size_t)(equals - line) >= sizeof key)
        return err_set(e, EINVAL, STEP_USAGE, "--set wants KEY=VALUE, not '%s'", parse_quote(line).text);
    snprintf(key, sizeof key, "%.*s", (int)(equals - line), line);
    return config_set(c, key, equals + 1, e);
}

/* ---- the whole ---- */

/* An absolute path of the environment, or NULL. */
static const char *environment_path(const char *name)
{
    const char *value = secure_getenv(name);

    return value && value[0] == '/' ? value : NULL;
}

static void put_path(char *to, size_t size, const char *directory, const char *rest)
{
    if (snprintf(to, size, "%s%s", directory, rest) >= (int)size)
        to[0] = 0;      /* config_check() asks the user to set it */
}

void config_defaults(struct config *c, bool is_root)
{
    const char *state = environment_path("XDG_STATE_HOME");
    const char *home = environment_path("HOME");

    *c = (struct config){
        .output_kept_bytes = 10 * MIB,
        .max_output_bytes = 4 * GIB,
        .quota.buffer_bytes = 256 * MIB,
        .pool_size = 2,
        .pool_blank = 128,
        .host_overcommit = 8,
        .network_connections = 1024,
        .log_level = "info",
    };
    for (size_t i = 0; i < LIMITS; i++) {
        limit_set(&c->defaults, &limit_table[i], limit_table[i].server_usual);
        limit_set(&c->most, &limit_table[i], limit_table[i].server_most);
    }
    config_template_defaults(c);
    if (!places_run(is_root, environment_path("XDG_RUNTIME_DIR"), c->run, sizeof c->run))
        c->run[0] = 0;          /* config_check() asks the user to set it */
    if (is_root) {
        put_path(c->state, sizeof c->state, PLACES_MACHINE_STATE, "");
    } else {
        if (state)
            put_path(c->state, sizeof c->state, state, "/carrel");
        else if (home)
            put_path(c->state, sizeof c->state, home, "/.local/state/carrel");
    }
    put_path(c->socket, sizeof c->socket, c->run, "/" PLACES_SOCKET_NAME);
}

static int check_bounds(const struct config *c, struct err *e)
{
    for (size_t i = 0; i < LIMITS; i++) {
        const struct limit *limit = &limit_table[i];
        uint64_t most = limit_get(&c->most, limit);
        if (most && limit_get(&c->defaults, limit) > most)
            return err_set(e, EINVAL, STEP_USAGE, "defaults.%s is more than limits.%s", limit->name, limit->name);
    }
    if (c->output_kept_bytes > c->max_output_bytes)
        return err_set(e, EINVAL, STEP_USAGE, "defaults.output is more than limits.output");
    if (c->quota.memory_bytes && c->defaults.memory_bytes > c->quota.memory_bytes)
        return err_set(e, EINVAL, STEP_USAGE, "defaults.memory is more than quota.memory: no box could be made");
    if (c->quota.cpu_milli && c->defaults.cpu_milli > c->quota.cpu_milli)
        return err_set(e, EINVAL, STEP_USAGE, "defaults.cpus is more than quota.cpus: no box could be made");
    if (c->host_memory_bytes && c->defaults.memory_bytes > c->host_memory_bytes)
        return err_set(e, EINVAL, STEP_USAGE, "defaults.memory is more than host.memory: no box could be made");
    if (c->host_cpu_milli && c->defaults.cpu_milli > c->host_cpu_milli)
        return err_set(e, EINVAL, STEP_USAGE, "defaults.cpus is more than host.cpus: no box could be made");
    return config_check_requests(c, e);
}

int config_check(const struct config *c, struct err *e)
{
    enum { NAME_ROOM = 22 };    /* for a socket's name after the directory, within the 108 bytes of a sockaddr_un */
    const char *const paths[][2] = { { "socket", c->socket }, { "state", c->state }, { "run", c->run } };
    struct host host;
    int r;

    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        if (!paths[i][1][0])
            return err_set(e, EINVAL, STEP_USAGE,
                           "%s is not known (HOME or XDG_RUNTIME_DIR is missing or too long); set it", paths[i][0]);
        r = config_check_path(paths[i][0], paths[i][1], e);
        if (r < 0)
            return r;
    }
    if (strlen(c->run) + NAME_ROOM >= sizeof c->socket)
        return err_set(e, EINVAL, STEP_USAGE, "run is too long for a socket in it; the most is %zu bytes",
                       sizeof c->socket - NAME_ROOM - 1);
    if (c->socket[strlen(c->socket) - 1] == '/')
        return err_set(e, EINVAL, STEP_USAGE, "socket '%s' is a directory, not a file", parse_quote(c->socket).text);
    if (c->owner_only && c->allow_anonymous)
        return err_set(e, EINVAL, STEP_USAGE,
                       "owner_only and allow_anonymous contradict each other: every user of this machine is anonymous "
                       "over TCP; use tokens");
    if (c->listen[0]) {
        r = check_listen(c->listen, &host, e);
        if (r < 0)
            return r;
        if (c->allow_anonymous && !host_is_loopback(&host))
            return err_set(e, EINVAL, STEP_USAGE,
                           "allow_anonymous is not possible with listen '%s', which other machines can reach; "
                           "use 127.0.0.1 or tokens",
                           c->listen);
    }
    return check_bounds(c, e);
}
