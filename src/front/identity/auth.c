/* A request passes three checks, in this order: was it made by a foreign page (auth_host.c), where does it come from,
 * whose token has it. The kernel identifies a unix peer; a token on a unix socket is ignored. Over TCP a token is
 * hashed and the hash looked up, so that the time of the lookup reveals nothing about a secret; the found row is
 * compared again in constant time. Hashes that were not found are cached for a moment, in a table of fixed size, so
 * that guessing tokens does not cost a database query for each repetition. Found ones are not cached: a revoked token
 * ends at once. */
#include "front/identity/auth.h"

#include <errno.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/parse.h"
#include "front/config/config.h"
#include "front/db/db.h"
#include "front/identity/auth_host.h"
#include "front/identity/token.h"
#include "http/server.h"

enum {
    UNKNOWN_COUNT = 1024,
    UNKNOWN_MS = 10000,
    USED_MS = 60000,        /* precision of a token's last use */
};

struct unknown {
    unsigned char hash[32];
    uint64_t      until_ms;     /* monotonic; 0: empty */
};

struct auth {
    struct db     *db;
    struct auth_rules rules;
    bool              allow_anonymous, owner_only;
    uid_t             server_uid;
    uint64_t          used_retry_ms;    /* monotonic; after a failed write of used_ms, not before */
    struct unknown    unknown[UNKNOWN_COUNT];
};

static const struct {
    const char *name;
    unsigned    bit;
} scope_names[] = {
    { "boxes:read", SCOPE_READ }, { "boxes:write", SCOPE_WRITE }, { "exec", SCOPE_EXEC },
    { "files", SCOPE_FILES },     { "ports", SCOPE_PORTS },       { "admin", SCOPE_ADMIN },
    { "grant", SCOPE_GRANT },
};
enum { N_SCOPES = sizeof scope_names / sizeof scope_names[0] };

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int auth_new(struct db *db, const struct config *config, uid_t server_uid, struct auth **ret, struct err *e)
{
    struct auth *a = calloc(1, sizeof *a);

    if (!a)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "auth");
    a->db = db;
    a->allow_anonymous = config->allow_anonymous;
    a->owner_only = config->owner_only;
    a->server_uid = server_uid;
    int r = auth_rules_init(&a->rules, config, e);
    if (r < 0) {
        free(a);
        return r;
    }
    *ret = a;
    return 0;
}

void auth_free(struct auth *a)
{
    free(a);
}

/* ---- scopes ---- */

int auth_scopes_parse(const char *text, unsigned *ret, struct err *e)
{
    static const char blanks[] = " \t,";
    unsigned scopes = 0;

    for (const char *p = text + strspn(text, blanks); *p; p += strspn(p, blanks)) {
        size_t n = strcspn(p, blanks), i = 0;
        while (i < N_SCOPES && (strlen(scope_names[i].name) != n || memcmp(scope_names[i].name, p, n) != 0))
            i++;
        if (i == N_SCOPES) {
            char word[40];
            snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), p);
            return err_set(e, EINVAL, STEP_USAGE,
                           "unknown scope '%s'; use boxes:read, boxes:write, exec, files, ports or admin",
                           parse_quote(word).text);
        }
        scopes |= scope_names[i].bit;
        p += n;
    }
    if (!scopes)
        return err_set(e, EINVAL, STEP_USAGE,
                       "a token needs at least one scope: boxes:read, boxes:write, exec, files, ports, admin");
    *ret = scopes & SCOPE_ADMIN ? scopes | SCOPE_ALL : scopes;
    return 0;
}

/* In a fixed order; room for all of them is less than 64 bytes. */
static void scopes_format(unsigned scopes, char *text, size_t size)
{
    size_t n = 0;

    text[0] = 0;
    for (size_t i = 0; i < N_SCOPES && n < size; i++)
        if (scopes & scope_names[i].bit)
            n += (size_t)snprintf(text + n, size - n, "%s%s", n ? " " : "", scope_names[i].name);
}

/* ---- tokens ---- */

/* "ci-bot", or "uid:1000" for a user's own token. "anonymous" is reserved. */
static int check_identity(const char *identity, struct err *e)
{
    static const char uid[] = "uid:", grant[] = "grant:";
    const char *rest = identity;
    const char *allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@-";

    if (!strncmp(identity, uid, sizeof uid - 1)) {
        rest += sizeof uid - 1;
        allowed = "0123456789";
    } else if (!strncmp(identity, grant, sizeof grant - 1)) {
        rest += sizeof grant - 1;
    }
    size_t n = strspn(rest, allowed);
    if (n == 0 || rest[n] || n > 63 || !strcmp(identity, "anonymous"))
        return err_set(e, EINVAL, STEP_USAGE,
                       "'%s' cannot be the identity of a token; use up to 63 letters, digits, '.', '_', '@' "
                       "and '-', or uid:N",
                       parse_quote(identity).text);
    return 0;
}

int auth_token_create(struct auth *a, const char *identity, const char *scopes, int64_t expires_ms, char *ret_id,
                      char *ret_secret, size_t size, struct err *e)
{
    char id[TOKEN_ID_SIZE], secret[TOKEN_SECRET_SIZE], names[64];
    struct db_token token = {
        .id = id, .identity = identity, .scopes = names, .created_ms = now_ms(), .expires_ms = expires_ms
    };
    unsigned bits = 0;
    int r = check_identity(identity, e);

    if (r == 0)
        r = auth_scopes_parse(scopes, &bits, e);
    if (r < 0)
        return r;
    bool is_grant = strncmp(identity, "grant:", 6) == 0;
    if (is_grant != !!(bits & SCOPE_GRANT) || (is_grant && bits != SCOPE_GRANT))
        return err_set(e, EINVAL, STEP_USAGE, "the scope grant is for grants alone; POST /v1/grants makes them");
    if (expires_ms < 0 || (expires_ms && expires_ms <= token.created_ms))
        return err_set(e, EINVAL, STEP_USAGE, "the token would be expired already");
    if (size < sizeof secret)
        return err_set(e, ENOBUFS, STEP_NONE, "the token's secret");
    scopes_format(bits, names, sizeof names);
    r = token_make_id(id);
    if (r == 0)
        r = token_make_secret(secret);
    if (r == 0)
        r = token_hash((struct http_text){ secret, sizeof secret - 1 }, token.hash);
    r = r < 0 ? err_set(e, -r, STEP_NONE, "cannot make a token") : db_token_insert(a->db, &token, e);
    if (r == 0) {
        memcpy(ret_id, id, sizeof id);
        memcpy(ret_secret, secret, sizeof secret);
    }
    OPENSSL_cleanse(secret, sizeof secret);
    return r;
}

static struct unknown *unknown_slot(struct auth *a, const unsigned char hash[32])
{
    return &a->unknown[(hash[0] | hash[1] << 8) % UNKNOWN_COUNT];
}

static bool is_unknown(struct auth *a, const unsigned char hash[32])
{
    struct unknown *u = unknown_slot(a, hash);

    return u->until_ms > clock_monotonic_us() / 1000 && !CRYPTO_memcmp(u->hash, hash, sizeof u->hash);
}

static void remember_unknown(struct auth *a, const unsigned char hash[32])
{
    struct unknown *u = unknown_slot(a, hash);

    memcpy(u->hash, hash, sizeof u->hash);
    u->until_ms = clock_monotonic_us() / 1000 + UNKNOWN_MS;
}

/* The parts of a found row that are needed after its strings are gone. */
struct found {
    unsigned char   hash[32];
    bool            is_found, is_revoked, is_expired, is_stale;     /* stale: used_ms must be written */
    int64_t         now_ms;
    char            id[32];
    struct identity identity;
};

static int take_token(const struct db_token *token, void *arg)
{
    struct found *f = arg;

    if (CRYPTO_memcmp(token->hash, f->hash, sizeof f->hash) != 0)
        return 0;
    f->is_found = true;
    f->is_revoked = token->revoked || auth_scopes_parse(token->scopes, &f->identity.scopes, NULL) < 0;
    f->is_expired = token->expires_ms && token->expires_ms <= f->now_ms;
    /* A clock that was set back must not stop the updates for long. */
    f->is_stale = f->now_ms - token->used_ms >= USED_MS || token->used_ms > f->now_ms + USED_MS;
    snprintf(f->id, sizeof f->id, "%s", token->id);
    snprintf(f->identity.name, sizeof f->identity.name, "%s", token->identity);
    return 1;
}

static int refuse(int status, const char *why, const char **ret_why)
{
    *ret_why = why;
    return status;
}

/* The request is valid whether or not this can be written. */
static void note_use(struct auth *a, const struct found *f)
{
    uint64_t now = clock_monotonic_us() / 1000;
    struct err ignored;

    if (f->is_stale && now >= a->used_retry_ms && db_token_used(a->db, f->id, f->now_ms, &ignored) < 0)
        a->used_retry_ms = now + USED_MS;
}

static int check_token(struct auth *a, struct http_text secret, struct identity *ret, const char **ret_why)
{
    static const char unknown[] = "this token is not known";
    struct found f = { .now_ms = now_ms(), .identity = { .uid = (uid_t)-1, .gid = (gid_t)-1 } };
    struct err ignored;

    if (!token_is_sound(secret))
        return refuse(401, unknown, ret_why);
    if (token_hash(secret, f.hash) < 0)
        return refuse(500, "the token cannot be checked", ret_why);
    if (is_unknown(a, f.hash))
        return refuse(401, unknown, ret_why);
    if (db_token_by_hash(a->db, f.hash, take_token, &f, &ignored) < 0)
        return refuse(500, "the token cannot be checked: the database does not answer", ret_why);
    if (!f.is_found) {
        remember_unknown(a, f.hash);
        return refuse(401, unknown, ret_why);
    }
    if (f.is_revoked)
        return refuse(403, "this token was revoked", ret_why);
    if (f.is_expired)
        return refuse(403, "this token has expired", ret_why);
    note_use(a, &f);
    *ret = f.identity;
    return 0;
}

/* ---- requests ---- */

static unsigned count_fields(const struct http_head *h, const char *name)
{
    struct http_text n, v;
    unsigned count = 0;

    for (unsigned i = 0; i < h->n_fields; i++) {
        http_head_field(h, i, &n, &v);
        count += http_text_is_nocase(n, name);
    }
    return count;
}

static bool peer_is_loopback(const struct http_peer *peer)
{
    struct sockaddr_in v4;

    if (peer->family == AF_INET) {
        memcpy(&v4, &peer->address, sizeof v4);
        return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    }
    const struct in6_addr *v6 = &peer->address.sin6_addr;
    return peer->family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == 127));
}

static int unix_identity(const struct auth *a, const struct http_peer *peer, struct identity *ret, const char **ret_why)
{
    uid_t uid = peer->credentials.uid;

    if (uid == (uid_t)-1)
        return refuse(401, "the kernel does not report the user of this connection", ret_why);
    bool is_owner = uid == 0 || uid == a->server_uid;
    if (a->owner_only && !is_owner)
        return refuse(403, "this server serves only the user who started it; start your own with 'carrel serve'",
                      ret_why);
    /* If the server is not root's, a box has the rights of the server's user; no other user may have those. */
    if (a->server_uid != 0 && !is_owner)
        return refuse(403,
                      "this server was started by another user, and without root it serves no other user; start your "
                      "own with 'carrel serve'",
                      ret_why);
    *ret = (struct identity){ .uid = uid, .gid = peer->credentials.gid, .scopes = SCOPE_ALL };
    if (is_owner)
        ret->scopes |= SCOPE_ADMIN;
    snprintf(ret->name, sizeof ret->name, "uid:%u", (unsigned)uid);
    return 0;
}

/* /v1/boxes/BOX/ports/...: requests of a box's own page to its server. */
static bool is_of_a_port(struct http_text path)
{
    static const char boxes[] = "/v1/boxes/", ports[] = "/ports/";
    const char *end = path.data + path.size, *at = path.data + sizeof boxes - 1;

    if (path.size < sizeof boxes - 1 || memcmp(path.data, boxes, sizeof boxes - 1) != 0)
        return false;
    while (at < end && *at != '/')
        at++;
    return (size_t)(end - at) >= sizeof ports - 1 && memcmp(at, ports, sizeof ports - 1) == 0;
}

/* The only paths that accept a grant's token. */
static bool is_of_a_grant(struct http_text path)
{
    static const char mcp[] = "/mcp/services/";

    return http_text_is(path, "/v1/grant") || http_text_is(path, "/v1/grant/call") ||
           (path.size > sizeof mcp - 1 && memcmp(path.data, mcp, sizeof mcp - 1) == 0);
}

static int tcp_identity(struct auth *a, const struct http_request *r, const struct auth_source *source,
                        struct identity *ret, const char **ret_why)
{
    char storage[TOKEN_SECRET_SIZE];
    struct http_text field = http_head_get(&r->head, "authorization"), token;
    int found = field.data ? token_from_field(field, &token) : -ENOENT;
    bool in_field = found != -ENOENT;

    if (!in_field)
        found = token_from_query(r->head.query, storage, &token);
    if (count_fields(&r->head, "authorization") > 1)
        return refuse(401, "the request has more than one Authorization", ret_why);
    if (found == 0)
        return check_token(a, token, ret, ret_why);
    if (found != -ENOENT)
        return refuse(401, in_field ? "Authorization must be 'Bearer TOKEN'" : "token= has no token in it", ret_why);
    if (!a->allow_anonymous)
        return refuse(401, "a token is needed: Authorization: Bearer TOKEN", ret_why);
    if (!peer_is_loopback(r->peer))
        return refuse(401, "a token is needed from another machine: Authorization: Bearer TOKEN", ret_why);
    /* A caller with a token must send it; otherwise a page of a hostile box would have this identity without one. */
    if (auth_source_is_page(&a->rules, source) && !is_of_a_port(r->head.path))
        return refuse(403, "a page may not use this server without a token; add its origin to 'origins'", ret_why);
    *ret = (struct identity){ .name = "anonymous", .scopes = SCOPE_ALL, .uid = (uid_t)-1, .gid = (gid_t)-1 };
    return 0;
}

int auth_request(struct auth *a, const struct http_request *r, struct identity *ret, const char **ret_why)
{
    const struct http_head *h = &r->head;
    struct auth_source source = {
        .is_unix = r->peer->family == AF_UNIX,
        .is_get = http_text_is(h->method, "GET") || http_text_is(h->method, "HEAD"),
        .many_origins = count_fields(h, "origin") > 1,
        .host = h->host,
        .origin = http_head_get(h, "origin"),
        .site = http_head_get(h, "sec-fetch-site"),
        .mode = http_head_get(h, "sec-fetch-mode"),
        .dest = http_head_get(h, "sec-fetch-dest"),
        .agent = http_head_get(h, "user-agent"),
    };
    int status = auth_source_check(&a->rules, &source, ret_why);

    if (status)
        return status;
    struct identity who = { 0 };
    status = source.is_unix ? unix_identity(a, r->peer, &who, ret_why) : tcp_identity(a, r, &source, &who, ret_why);
    /* Over the unix socket the peer normally decides; on a grant's paths the token counts, too. */
    if (status == 0 && source.is_unix && is_of_a_grant(h->path) && http_head_get(h, "authorization").data)
        status = tcp_identity(a, r, &source, &who, ret_why);
    if (status == 0 && who.scopes & SCOPE_GRANT && !is_of_a_grant(h->path))
        return refuse(403, "a grant's token is for calling the functions that it names, and for nothing else", ret_why);
    if (status == 0)
        *ret = who;
    return status;
}
