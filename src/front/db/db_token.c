/* Tokens. The database only has the hashes of the secrets. */
#include <errno.h>
#include <string.h>

#include "front/db/db_private.h"

int db_token_insert(struct db *db, const struct db_token *token, struct err *e)
{
    return db_change(db, QUERY_TOKEN_INSERT, e, "shssiiii", token->id, token->hash, token->identity, token->scopes,
                        token->created_ms, token->expires_ms, token->used_ms, (int64_t)token->revoked);
}

struct token_listing {
    int (*each)(const struct db_token *, void *);
    void *arg;
};

static int give_token(sqlite3_stmt *q, void *arg)
{
    const struct token_listing *l = arg;
    struct db_token token = {
        .id = db_text(q, 0),
        .identity = db_text(q, 2),
        .scopes = db_text(q, 3),
        .created_ms = sqlite3_column_int64(q, 4),
        .expires_ms = sqlite3_column_int64(q, 5),
        .used_ms = sqlite3_column_int64(q, 6),
        .revoked = sqlite3_column_int(q, 7) != 0,
    };

    if (sqlite3_column_bytes(q, 1) == (int)sizeof token.hash)
        memcpy(token.hash, sqlite3_column_blob(q, 1), sizeof token.hash);
    else
        token.revoked = true;   /* no secret has such a hash */
    return l->each(&token, l->arg);
}

int db_token_by_hash(struct db *db, const unsigned char hash[32], int (*each)(const struct db_token *, void *),
                        void *arg, struct err *e)
{
    return db_each(db, QUERY_TOKEN_BY_HASH, give_token, &(struct token_listing){ each, arg }, e, "h", hash);
}

int db_tokens(struct db *db, int (*each)(const struct db_token *, void *), void *arg, struct err *e)
{
    return db_each(db, QUERY_TOKENS, give_token, &(struct token_listing){ each, arg }, e, "");
}

int db_token_revoke(struct db *db, const char *id, struct err *e)
{
    return db_change(db, QUERY_TOKEN_REVOKE, e, "s", id);
}

int db_tokens_sweep(struct db *db, int64_t now_ms, struct err *e)
{
    int r = db_change(db, QUERY_TOKENS_SWEEP, e, "i", now_ms);

    return r == -ENOENT ? 0 : r;
}

int db_token_used(struct db *db, const char *id, int64_t used_ms, struct err *e)
{
    return db_change(db, QUERY_TOKEN_USED, e, "si", id, used_ms);
}
