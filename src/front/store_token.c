/* Tokens. The database has the hashes of the secrets only. */
#include <errno.h>
#include <string.h>

#include "front/store_private.h"

int store_token_insert(struct store *s, const struct store_token *token, struct err *e)
{
    return store_change(s, QUERY_TOKEN_INSERT, e, "shssiiii", token->id, token->hash, token->identity, token->scopes,
                        token->created_ms, token->expires_ms, token->used_ms, (int64_t)token->revoked);
}

struct token_listing {
    int (*each)(const struct store_token *, void *);
    void *arg;
};

static int give_token(sqlite3_stmt *q, void *arg)
{
    const struct token_listing *l = arg;
    struct store_token token = {
        .id = store_text(q, 0),
        .identity = store_text(q, 2),
        .scopes = store_text(q, 3),
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

int store_token_by_hash(struct store *s, const unsigned char hash[32], int (*each)(const struct store_token *, void *),
                        void *arg, struct err *e)
{
    return store_each(s, QUERY_TOKEN_BY_HASH, give_token, &(struct token_listing){ each, arg }, e, "h", hash);
}

int store_tokens(struct store *s, int (*each)(const struct store_token *, void *), void *arg, struct err *e)
{
    return store_each(s, QUERY_TOKENS, give_token, &(struct token_listing){ each, arg }, e, "");
}

int store_token_revoke(struct store *s, const char *id, struct err *e)
{
    return store_change(s, QUERY_TOKEN_REVOKE, e, "s", id);
}

int store_tokens_sweep(struct store *s, int64_t now_ms, struct err *e)
{
    int r = store_change(s, QUERY_TOKENS_SWEEP, e, "i", now_ms);

    return r == -ENOENT ? 0 : r;
}

int store_token_used(struct store *s, const char *id, int64_t used_ms, struct err *e)
{
    return store_change(s, QUERY_TOKEN_USED, e, "si", id, used_ms);
}
