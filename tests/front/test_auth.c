/* Tokens, and whole requests as the parser gives them. */
#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "front/config/config.h"
#include "front/db/db_private.h"
#include "front/identity/auth.h"
#include "front/identity/token.h"
#include "front/scratch.h"
#include "http/server.h"

static struct db *db;
static struct auth *auth;
static struct config config;
static struct err e;
static struct identity who;
static const char *why;

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int open_all(void **state)
{
    if (scratch_make(state) < 0 || db_open(((struct scratch *)*state)->path, &db, &e) < 0)
        return -1;
    config_defaults(&config, true);
    return config_set(&config, "listen", "127.0.0.1:7070", &e) < 0 || auth_new(db, &config, 500, &auth, &e) < 0 ? -1
                                                                                                                   : 0;
}

static int close_all(void **state)
{
    auth_free(auth);
    db_close(db);
    return scratch_remove(state);
}

static void restart(bool allow_anonymous)
{
    auth_free(auth);
    config.allow_anonymous = allow_anonymous;
    assert_int_equal(auth_new(db, &config, 500, &auth, &e), 0);
}

static void serve_as(uid_t uid)
{
    auth_free(auth);
    assert_int_equal(auth_new(db, &config, uid, &auth, &e), 0);
}

/* Parses a head and asks. address NULL: a unix peer with this uid. */
static int ask(const char *address, uid_t uid, const char *head)
{
    struct http_peer peer = { .family = AF_UNIX, .credentials = { .pid = 1, .uid = uid, .gid = uid } };
    struct http_request r = { .peer = &peer };
    size_t size = strlen(head);

    if (address && strchr(address, ':')) {
        peer.family = AF_INET6;
        assert_int_equal(inet_pton(AF_INET6, address, &peer.address.sin6_addr), 1);
    } else if (address) {
        peer.family = AF_INET;
        assert_int_equal(inet_pton(AF_INET, address, &((struct sockaddr_in *)(void *)&peer.address)->sin_addr), 1);
    }
    http_head_init(&r.head, false);
    assert_int_equal(http_head_parse(&r.head, head, size), size);
    memset(&who, 0, sizeof who);
    why = NULL;
    int status = auth_request(auth, &r, &who, &why);
    assert_int_equal(why != NULL, status != 0);
    assert_int_equal(who.name[0] != 0, status == 0);
    return status;
}

#define HOST "Host: localhost:7070\r\n"

static int ask_field(const char *field, const char *value)
{
    char head[300];

    snprintf(head, sizeof head, "GET / HTTP/1.1\r\n" HOST "%s: %s\r\n\r\n", field, value);
    return ask("127.0.0.1", 0, head);
}

static int ask_bearer(const char *secret)
{
    char value[200];

    snprintf(value, sizeof value, "Bearer %s", secret);
    return ask_field("Authorization", value);
}

static int ask_query(const char *query)
{
    char head[300];

    snprintf(head, sizeof head, "GET /?%s HTTP/1.1\r\n" HOST "\r\n", query);
    return ask("127.0.0.1", 0, head);
}

static void create(const char *identity, const char *scopes, int64_t expires_ms, char *id, char *secret)
{
    if (auth_token_create(auth, identity, scopes, expires_ms, id, secret, TOKEN_SECRET_SIZE, &e) < 0)
        fail_msg("%s", e.what);
}

static void test_unix_peers_are_whom_the_kernel_says(void **state)
{
    (void)state;
    serve_as(0);
    assert_int_equal(ask(NULL, 1000, "GET / HTTP/1.1\r\nHost: anything\r\n\r\n"), 0);
    assert_string_equal(who.name, "uid:1000");
    assert_int_equal(who.uid, 1000);
    assert_int_equal(who.scopes, SCOPE_ALL);
    assert_int_equal(ask(NULL, 0, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 0);
    assert_int_equal(who.scopes, SCOPE_ALL | SCOPE_ADMIN);
    assert_int_equal(ask(NULL, 4294967294U, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 0);
    assert_string_equal(who.name, "uid:4294967294");
    assert_int_equal(ask(NULL, (uid_t)-1, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 401);
    assert_int_equal(ask(NULL, 1000, "GET / HTTP/1.1\r\nHost: x\r\nOrigin: http://evil.example\r\n\r\n"), 403);
}

static void test_a_server_that_is_not_roots_is_for_its_user_only(void **state)
{
    (void)state;
    serve_as(500);
    assert_int_equal(ask(NULL, 500, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 0);
    assert_int_equal(who.scopes, SCOPE_ALL | SCOPE_ADMIN);
    assert_int_equal(ask(NULL, 0, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 0);
    assert_int_equal(who.scopes, SCOPE_ALL | SCOPE_ADMIN);
    assert_int_equal(ask(NULL, 1000, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 403);
    assert_int_equal(ask(NULL, 4294967294U, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 403);
    assert_int_equal(ask(NULL, (uid_t)-1, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 401);
}

static void test_a_private_server_of_roots_is_for_root_only(void **state)
{
    char id[TOKEN_ID_SIZE], secret[TOKEN_SECRET_SIZE];
    (void)state;

    config.owner_only = true;
    serve_as(0);
    config.owner_only = false;
    assert_int_equal(ask(NULL, 0, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 0);
    assert_int_equal(who.scopes, SCOPE_ALL | SCOPE_ADMIN);
    assert_int_equal(ask(NULL, 1000, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 403);
    assert_non_null(strstr(why, "only the user who started it"));
    assert_int_equal(ask(NULL, 65534, "POST /v1/boxes HTTP/1.1\r\nHost: x\r\n\r\n"), 403);
    assert_int_equal(ask(NULL, (uid_t)-1, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 401);
    create("ci-bot", "exec boxes:read", 0, id, secret);
    assert_int_equal(ask_bearer(secret), 0);        /* the holder that the owner gave it to */
}

static void test_tcp_needs_a_token(void **state)
{
    char id[TOKEN_ID_SIZE], secret[TOKEN_SECRET_SIZE], value[200];
    (void)state;

    assert_int_equal(ask("127.0.0.1", 0, "GET / HTTP/1.1\r\n" HOST "\r\n"), 401);
    create("ci-bot", "exec boxes:read", 0, id, secret);
    assert_int_equal(strlen(secret), 50);
    assert_int_equal(ask_bearer(secret), 0);
    assert_string_equal(who.name, "ci-bot");
    assert_int_equal(who.scopes, SCOPE_EXEC | SCOPE_READ);
    assert_true(who.uid == (uid_t)-1);
    snprintf(value, sizeof value, "token %s", secret);
    assert_int_equal(ask_field("authorization", value), 0);
    snprintf(value, sizeof value, "BEARER   %s", secret);
    assert_int_equal(ask_field("AUTHORIZATION", value), 0);
    snprintf(value, sizeof value, "a=b&token=%s", secret);
    assert_int_equal(ask_query(value), 0);
    snprintf(value, sizeof value, "token=c%%61rrel%%5F%s", secret + 7);
    assert_int_equal(ask_query(value), 0);
    assert_int_equal(ask("192.0.2.7", 0, "GET / HTTP/1.1\r\n" HOST "\r\n"), 401);
}

static void test_bad_tokens(void **state)
{
    char id[TOKEN_ID_SIZE], secret[TOKEN_SECRET_SIZE], value[400], long_value[200];
    (void)state;

    create("x", "exec", 0, id, secret);
    memset(long_value, 'a', sizeof long_value - 1);
    long_value[sizeof long_value - 1] = 0;
    assert_int_equal(ask_bearer(long_value), 401);
    assert_int_equal(ask_bearer("carrel_"), 401);
    assert_int_equal(ask_bearer(id), 401);
    assert_int_equal(ask_field("Authorization", "Bearer"), 401);
    assert_int_equal(ask_field("Authorization", ""), 401);
    assert_int_equal(ask_field("Authorization", "Basic dTpw"), 401);
    assert_int_equal(ask_field("Authorization", secret), 401);
    snprintf(value, sizeof value, "Bearer %s x", secret);
    assert_int_equal(ask_field("Authorization", value), 401);
    snprintf(value, sizeof value, "Bearer %s\r\nAuthorization: Bearer %s", secret, secret);
    assert_int_equal(ask_field("Authorization", value), 401);
    snprintf(value, sizeof value, "token=%s&token=%s", secret, secret);
    assert_int_equal(ask_query(value), 401);
    snprintf(value, sizeof value, "token=%s%%00", secret);
    assert_int_equal(ask_query(value), 401);
    assert_int_equal(ask_query("token="), 401);
    assert_int_equal(ask_query("token=%41"), 401);
    for (size_t i = 0; i < strlen(secret); i++) {   /* every character counts, also the last one's unused bits */
        char other[TOKEN_SECRET_SIZE];
        memcpy(other, secret, sizeof other);
        other[i] = other[i] == 'A' ? 'B' : 'A';
        assert_int_equal(ask_bearer(other), 401);
    }
    assert_int_equal(ask_bearer(secret), 0);
}

static void test_a_grants_token_is_good_at_two_paths_only(void **state)
{
    static const char *const good[] = { "/v1/grant", "/v1/grant/call", "/mcp/services/x" };
    static const char *const bad[] = { "/",          "/v1/boxes",      "/v1/grants",       "/v1/grant/",
                                       "/v1/me",     "/v1/grant/x",    "/v1/grant%2fcall", "/healthz",
                                       "/api/kernels", "/mcp",         "/mcp/services/",   "/v1/services/x/call" };
    char id[TOKEN_ID_SIZE], secret[TOKEN_SECRET_SIZE], other[TOKEN_SECRET_SIZE], head[300];
    (void)state;

    create("grant:gabc", "grant", 0, id, secret);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(head, sizeof head, "GET %s HTTP/1.1\r\n" HOST "Authorization: Bearer %s\r\n\r\n", good[i], secret);
        assert_int_equal(ask("127.0.0.1", 0, head), 0);
        assert_string_equal(who.name, "grant:gabc");
        assert_int_equal(who.scopes, SCOPE_GRANT);
        assert_int_equal(ask(NULL, 500, head), 0);      /* over the unix socket it is no more than that */
        assert_int_equal(who.scopes, SCOPE_GRANT);
        assert_int_equal(ask(NULL, 1000, head), 403);   /* and no way in for others */
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(head, sizeof head, "GET %s HTTP/1.1\r\n" HOST "Authorization: Bearer %s\r\n\r\n", bad[i], secret);
        assert_int_equal(ask("127.0.0.1", 0, head), 403);
    }
    assert_int_equal(auth_token_create(auth, "x", "grant", 0, id, other, sizeof other, &e), -EINVAL);
    assert_int_equal(auth_token_create(auth, "gx", "grant", 0, id, other, sizeof other, &e), -EINVAL);
    assert_int_equal(auth_token_create(auth, "x", "exec grant", 0, id, other, sizeof other, &e), -EINVAL);
    assert_int_equal(auth_token_create(auth, "grant:gabc", "exec", 0, id, other, sizeof other, &e), -EINVAL);
    assert_int_equal(auth_token_create(auth, "grant:gabc", "admin grant", 0, id, other, sizeof other, &e), -EINVAL);
}

static void test_expired_and_revoked_tokens(void **state)
{
    char id[TOKEN_ID_SIZE], secret[TOKEN_SECRET_SIZE];
    char sql[200];
    (void)state;

    create("x", "exec", now_ms() + 3600000, id, secret);
    assert_int_equal(ask_bearer(secret), 0);
    snprintf(sql, sizeof sql, "UPDATE tokens SET expires_ms = %lld", (long long)now_ms() - 1);
    assert_int_equal(sqlite3_exec(db->sqlite, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(ask_bearer(secret), 403);
    assert_non_null(strstr(why, "expired"));
    create("y", "admin", 0, id, secret);
    assert_int_equal(ask_bearer(secret), 0);
    assert_int_equal(who.scopes, SCOPE_ALL | SCOPE_ADMIN);
    assert_int_equal(db_token_revoke(db, id, &e), 0);
    assert_int_equal(ask_bearer(secret), 403);      /* at once */
    assert_non_null(strstr(why, "revoked"));
}

static void test_anonymous_is_for_this_machine_only(void **state)
{
    static const struct { const char *address; int status;
    } cases[] = {
        { "127.0.0.1", 0 },          { "127.9.9.9", 0 },   { "::1", 0 },
        { "::ffff:127.0.0.1", 0 },   { "192.0.2.1", 401 }, { "2001:db8::1", 401 },
        { "::ffff:192.0.2.1", 401 }, { "0.0.0.0", 401 },   { "::", 401 },
        { "128.0.0.1", 401 },
    };
    (void)state;

    restart(true);
    for (size_t i = 0; i < COUNT(cases); i++)
        if (ask(cases[i].address, 0, "GET / HTTP/1.1\r\n" HOST "\r\n") != cases[i].status)
            fail_msg("%s", cases[i].address);
    assert_int_equal(ask("127.0.0.1", 0, "GET / HTTP/1.1\r\n" HOST "\r\n"), 0);
    assert_string_equal(who.name, "anonymous");
    assert_int_equal(who.scopes, SCOPE_ALL);
    assert_int_equal(ask_bearer("wrong"), 401);     /* who gives a token means it */
    assert_int_equal(ask_query("token="), 401);
    /* Jupyter's gateway client sends the scheme also when it has no token. */
    assert_int_equal(ask("127.0.0.1", 0, "GET / HTTP/1.1\r\n" HOST "Authorization: token \r\n\r\n"), 0);
    assert_string_equal(who.name, "anonymous");
    assert_int_equal(ask("127.0.0.1", 0, "GET /?token=wrong HTTP/1.1\r\n" HOST "Authorization: token \r\n\r\n"), 401);
    assert_int_equal(ask("127.0.0.1", 0, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"), 403);
    assert_int_equal(ask("127.0.0.1", 0, "POST / HTTP/1.1\r\n" HOST "Origin: http://evil.example\r\n\r\n"), 403);
    assert_int_equal(
        ask("127.0.0.1", 0, "GET / HTTP/1.1\r\n" HOST "Origin: http://localhost:7070\r\nOrigin: http://x\r\n\r\n"),
        403);
    assert_int_equal(ask("127.0.0.1", 0, "GET / HTTP/1.1\r\n" HOST "Sec-Fetch-Site: cross-site\r\n\r\n"), 403);
    assert_int_equal(ask("127.0.0.1", 0, "POST / HTTP/1.1\r\n" HOST "Origin: http://localhost:7070\r\n\r\n"), 0);
    assert_int_equal(ask("127.0.0.1", 0, "GET / HTTP/1.0\r\n\r\n"), 403);
    restart(false);
    assert_int_equal(ask("127.0.0.1", 0, "GET / HTTP/1.1\r\n" HOST "\r\n"), 401);
}

/* A page of a box is of our own origin. */
static void test_a_page_is_not_anonymous_but_at_ports(void **state)
{
    static const struct { const char *method, *path, *fields; int status;
    } cases[] = {
        { "GET", "/v1/boxes", "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors\r\n", 403 },
        { "GET", "/v1/boxes", "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: navigate\r\n", 403 },
        { "POST", "/v1/run", "Sec-Fetch-Site: same-origin\r\nOrigin: http://localhost:7070\r\n", 403 },
        /* By way of another site into a window that the page can read. */
        { "GET", "/v1/boxes",
          "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n", 403 },
        /* A WebSocket of a browser that says nothing of its site there. */
        { "GET", "/v1/boxes/b/exec/ws", "User-Agent: Mozilla/5.0 (X11)\r\nOrigin: http://localhost:7070\r\n", 403 },
        { "GET", "/v1/boxes/b/portsmouth/x", "Sec-Fetch-Site: same-origin\r\n", 403 },
        { "GET", "/v1/boxes/b/files/ports/x", "Sec-Fetch-Site: same-origin\r\n", 403 },
        { "GET", "/v1/boxes/ports/8000/x", "Sec-Fetch-Site: same-origin\r\n", 403 },
        { "GET", "/v1/boxes/b/ports/8000/x", "Sec-Fetch-Site: same-origin\r\n", 0 },
        { "POST", "/v1/boxes/b/ports/8000/x", "Sec-Fetch-Site: same-origin\r\nOrigin: http://localhost:7070\r\n", 0 },
        /* Typed in by hand; no browser at all; a page that may. */
        { "GET", "/v1/boxes", "Sec-Fetch-Site: none\r\nUser-Agent: Mozilla/5.0\r\n", 0 },
        { "GET", "/v1/boxes/b/exec/ws", "Origin: http://localhost:7070\r\n", 0 },
        { "POST", "/v1/run", "Sec-Fetch-Site: cross-site\r\nOrigin: https://app.example\r\n", 0 },
        { "POST", "/v1/run", "Sec-Fetch-Site: cross-site\r\nOrigin: http://app.example\r\n", 403 },
    };
    char head[400];
    (void)state;

    assert_int_equal(config_set(&config, "origins", "https://app.example", &e), 0);
    restart(true);
    for (size_t i = 0; i < COUNT(cases); i++) {
        snprintf(head, sizeof head, "%s %s HTTP/1.1\r\n" HOST "%s\r\n", cases[i].method, cases[i].path,
                 cases[i].fields);
        int status = ask("127.0.0.1", 0, head);
        if (status != cases[i].status)
            fail_msg("case %zu gives %d (%s)", i, status, why ? why : "");
    }
    /* At a configured origin's own address, where browsers send no Origin with a GET. */
    assert_int_equal(
        ask("127.0.0.1", 0, "GET /v1/boxes HTTP/1.1\r\nHost: app.example\r\nSec-Fetch-Site: same-origin\r\n\r\n"), 0);
    restart(false);
}

static int64_t used_ms;

static int take_used(const struct db_token *token, void *arg)
{
    (void)arg;
    used_ms = token->used_ms;
    return 0;
}

static int64_t used(void)
{
    assert_int_equal(db_tokens(db, take_used, NULL, &e), 0);
    return used_ms;
}

static void test_use_is_noted_once_a_minute(void **state)
{
    char id[TOKEN_ID_SIZE], secret[TOKEN_SECRET_SIZE];
    (void)state;

    create("x", "exec", 0, id, secret);
    assert_int_equal(used(), 0);
    assert_int_equal(ask_bearer(secret), 0);
    assert_true(used() > now_ms() - 60000);
    int64_t recent = now_ms() - 30000;
    assert_int_equal(db_token_used(db, id, recent, &e), 0);
    assert_int_equal(ask_bearer(secret), 0);
    assert_int_equal(used(), recent);
    assert_int_equal(db_token_used(db, id, now_ms() - 61000, &e), 0);
    assert_int_equal(ask_bearer(secret), 0);
    assert_true(used() > now_ms() - 60000);
    assert_int_equal(db_token_used(db, id, now_ms() + 3600000, &e), 0);   /* the clock was set back */
    assert_int_equal(ask_bearer(secret), 0);
    assert_true(used() <= now_ms());
    assert_int_equal(db_token_used(db, id, 5, &e), 0);
    assert_int_equal(sqlite3_exec(db->sqlite, "PRAGMA query_only = ON", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(ask_bearer(secret), 0);        /* a database that cannot be written does not lock callers out */
    assert_int_equal(used(), 5);
}

static void test_tokens_of_the_database_only_are_hashes(void **state)
{
    char id[TOKEN_ID_SIZE], secret[TOKEN_SECRET_SIZE];
    static char file[400000];

    create("x", "exec", 0, id, secret);
    assert_int_equal(db_maintain(db, &e), 0);
    for (int i = 0; i < 2; i++) {
        FD fd = open(scratch_file(state, i ? "state.db-wal" : "state.db"), O_RDONLY | O_CLOEXEC);
        ssize_t n = read(fd, file, sizeof file);
        assert_true(n > 0);
        assert_null(memmem(file, (size_t)n, secret + 7, 20));
        assert_non_null(memmem(file, (size_t)n, id, strlen(id)));
    }
}

static void test_what_cannot_be_a_token(void **state)
{
    static const char *const identities[] = { "",
                                              "anonymous",
                                              "uid:",
                                              "uid:x",
                                              "uid:1x",
                                              "a b",
                                              "a:b",
                                              "a/b",
                                              "a\nb",
                                              "ä",
                                              "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };
    static const char *const scopes[] = { "", " ", "exe", "execx", "boxes", "exec;files", "Exec", "all" };
    char id[TOKEN_ID_SIZE], secret[TOKEN_SECRET_SIZE];
    unsigned bits = 0;
    (void)state;

    for (size_t i = 0; i < COUNT(identities); i++)
        assert_int_equal(auth_token_create(auth, identities[i], "exec", 0, id, secret, sizeof secret, &e), -EINVAL);
    for (size_t i = 0; i < COUNT(scopes); i++)
        assert_int_equal(auth_token_create(auth, "x", scopes[i], 0, id, secret, sizeof secret, &e), -EINVAL);
    assert_int_equal(auth_token_create(auth, "x", "exec", 1, id, secret, sizeof secret, &e), -EINVAL);
    assert_int_equal(auth_token_create(auth, "x", "exec", -1, id, secret, sizeof secret, &e), -EINVAL);
    assert_int_equal(auth_token_create(auth, "x", "exec", 0, id, secret, sizeof secret - 1, &e), -ENOBUFS);
    create("uid:1000", "files", 0, id, secret);
    assert_int_equal(ask_bearer(secret), 0);
    assert_string_equal(who.name, "uid:1000");
    assert_true(who.uid == (uid_t)-1);
    create("a.b_c@d-e", "files,ports  exec", 0, id, secret);
    assert_int_equal(auth_scopes_parse("  boxes:write\tports ", &bits, &e), 0);
    assert_int_equal(bits, SCOPE_WRITE | SCOPE_PORTS);
}

static void test_secrets_differ_and_are_well_made(void **state)
{
    char a[TOKEN_SECRET_SIZE], b[TOKEN_SECRET_SIZE], id[TOKEN_ID_SIZE];
    unsigned seen[256] = { 0 }, kinds = 0;
    (void)state;

    for (int i = 0; i < 200; i++) {
        assert_int_equal(token_make_secret(a), 0);
        assert_int_equal(token_make_secret(b), 0);
        assert_int_equal(token_make_id(id), 0);
        assert_true(strcmp(a, b) != 0);
        assert_true(token_is_sound((struct http_text){ a, strlen(a) }));
        assert_int_equal(strspn(id, "abcdefghijklmnopqrstuvwxyz234567"), 13);
        for (size_t k = 7; k < 50; k++)
            seen[(unsigned char)a[k]]++;
    }
    for (int i = 0; i < 256; i++)
        kinds += seen[i] > 0;
    assert_int_equal(kinds, 64);
}

/* Guessing tokens: no database query for one that was tried just now, and no memory that grows. */
static void test_unknown_tokens_are_remembered_for_a_moment(void **state)
{
    char secret[TOKEN_SECRET_SIZE], real[TOKEN_SECRET_SIZE], id[TOKEN_ID_SIZE];
    struct db_token token = { .id = "t1", .identity = "late", .scopes = "exec" };
    (void)state;

    assert_int_equal(token_make_secret(secret), 0);
    assert_int_equal(ask_bearer(secret), 401);
    assert_int_equal(token_hash((struct http_text){ secret, strlen(secret) }, token.hash), 0);
    assert_int_equal(db_token_insert(db, &token, &e), 0);
    assert_int_equal(ask_bearer(secret), 401);      /* remembered */
    for (int i = 0; i < 20000; i++) {
        assert_int_equal(token_make_secret(real), 0);
        assert_int_equal(ask_bearer(real), 401);
    }
    assert_int_equal(ask_bearer(secret), 0);        /* pushed out by others */
    create("x", "exec", 0, id, real);
    assert_int_equal(ask_bearer(real), 0);
    uint64_t start = clock_monotonic_us();
    for (int i = 0; i < 1000; i++)
        assert_int_equal(ask_bearer(real), 0);
    print_message("a request with a token: %u ns\n", (unsigned)(clock_monotonic_us() - start));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_all, close_all)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_unix_peers_are_whom_the_kernel_says),
        TEST(test_a_server_that_is_not_roots_is_for_its_user_only),
        TEST(test_a_private_server_of_roots_is_for_root_only),
        TEST(test_tcp_needs_a_token),
        TEST(test_bad_tokens),
        TEST(test_a_grants_token_is_good_at_two_paths_only),
        TEST(test_expired_and_revoked_tokens),
        TEST(test_anonymous_is_for_this_machine_only),
        TEST(test_a_page_is_not_anonymous_but_at_ports),
        TEST(test_use_is_noted_once_a_minute),
        TEST(test_tokens_of_the_database_only_are_hashes),
        TEST(test_what_cannot_be_a_token),
        TEST(test_secrets_differ_and_are_well_made),
        TEST(test_unknown_tokens_are_remembered_for_a_moment),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
