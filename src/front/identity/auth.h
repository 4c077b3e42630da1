/* Identities of callers. A unix-socket peer is "uid:N", a TCP caller has the identity of its bearer token. An identity
 * sees only its own boxes; an admin (root, the user who runs the server, or a token with the scope "admin") sees
 * all. */
#ifndef CARREL_FRONT_IDENTITY_AUTH_H
#define CARREL_FRONT_IDENTITY_AUTH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct db;
struct config;
struct http_request;

enum scope {
    SCOPE_READ = 1, SCOPE_WRITE = 2, SCOPE_EXEC = 4, SCOPE_FILES = 8, SCOPE_PORTS = 16, SCOPE_ADMIN = 32,
    SCOPE_GRANT = 64,       /* of a grant's token, alone: only the operations of grants.h, on no other path */
    SCOPE_ALL = 31,         /* all but admin and grant; an admin has all */
};

struct identity {
    char     name[80];      /* "uid:1000", "ci-bot", "grant:gabc" */
    unsigned scopes;        /* enum scope */
    uid_t    uid;           /* of a unix peer; (uid_t)-1 for a token */
    gid_t    gid;
};

struct auth;

/* store must outlive it; config is not kept. */
MUST_CHECK int  auth_new(struct db *db, const struct config *config, uid_t server_uid, struct auth **ret,
                         struct err *e);
void            auth_free(struct auth *a);

/* 0, or the HTTP status of a refusal with its reason in *ret_why: 401 (no or unknown token), 403 (Host or Origin of a
 * browser attack, expired, revoked), 500 (the database fails). Tokens are looked up by their hash, compared in constant
 * time; Authorization: Bearer T, or `token T`, or ?token=T. Reads only the request's head and peer. */
int             auth_request(struct auth *a, const struct http_request *r, struct identity *ret, const char **ret_why);

/* Makes a token and returns its secret ("carrel_" + 43 characters) once. scopes as in the database; expires_ms since
 * 1970, 0: never. ret_id has TOKEN_ID_SIZE bytes, ret_secret has size, TOKEN_SECRET_SIZE at least (token.h). An
 * identity "uid:N" is that of the unix user: the caller decides who may request it. */
MUST_CHECK int auth_token_create(struct auth *a, const char *identity, const char *scopes, int64_t expires_ms,
                                 char *ret_id, char *ret_secret, size_t size, struct err *e);
MUST_CHECK int  auth_scopes_parse(const char *text, unsigned *ret, struct err *e);

#endif
