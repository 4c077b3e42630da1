/* Data that outlives the front: boxes, execs, tokens, events, services, volumes, in one SQLite database with one
 * connection. A box's or exec's body is the JSON object of the API; the columns beside it are for searches. No create
 * waits for the disk (WAL, synchronous=NORMAL); a crash of the machine may lose the last moments, a crash of the front
 * nothing.
 *
 * Failures: -ENOSPC (or -EDQUOT) the disk is full, -EROFS or -EACCES it cannot be written, -EIO it is damaged, -EBUSY
 * another process holds it; each with a sentence. A failed call changes nothing, and the next call may succeed. */
#ifndef CARREL_FRONT_DB_DB_H
#define CARREL_FRONT_DB_DB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct db;

struct db_box {
    uint64_t    number;             /* rowid; the keeper's token */
    const char *id, *owner, *name;  /* name NULL: none; unique per owner among living boxes */
    const char *key;                /* idempotency key or NULL; unique per owner */
    const char *phase;
    const char *body;               /* JSON */
    int64_t     created_ms;
    bool        alive;
};

struct db_exec {
    uint64_t    number;             /* rowid; the keeper's token */
    uint64_t    box;                /* number of its box */
    const char *id;
    const char *body;               /* JSON */
    bool        ended;
};

struct db_event {
    uint64_t    number;
    uint64_t    box;
    int64_t     time_ms;
    const char *type, *body;        /* JSON object or NULL */
};

struct db_token {
    const char   *id, *identity;
    const char   *scopes;                   /* "boxes:read boxes:write exec files ports admin", separated by blanks */
    unsigned char hash[32];                 /* SHA-256 of the secret */
    int64_t       created_ms, expires_ms, used_ms;      /* expires 0: never */
    bool          revoked;
};

struct db_service {
    const char *id, *owner, *name;
    uint64_t    box;                        /* number of its box */
    const char *body;                       /* JSON */
};

struct db_volume {
    uint64_t    number;                     /* the keeper's */
    const char *id, *owner, *name;
    const char *body;                       /* JSON */
};

struct db_grant {
    const char *id, *owner, *service;       /* service: its id */
    uint64_t    box;                        /* number of the box that has the grant; 0: a token */
    const char *body;                       /* JSON */
    uint64_t    used;
};

/* Opens or makes <state>/state.db; refuses a database of a newer version with a clear error. */
MUST_CHECK int  db_open(const char *state, struct db **ret, struct err *e);
void            db_close(struct db *db);

/* Moves the log into the database, with fsync: for idle moments, every few seconds if something changed. */
MUST_CHECK int  db_maintain(struct db *db, struct err *e);

/* Changes between these two are written together: one lock, one write to the log, all or none. Not nested; reads in
 * between see them. */
void            db_begin(struct db *db);
MUST_CHECK int  db_end(struct db *db, struct err *e);
void            db_undo(struct db *db);    /* rolls back instead */

/* Strings passed to a callback live during the call. A callback that returns non-zero stops the listing. */
/* Sets number. -EEXIST: name or key taken. */
MUST_CHECK int  db_box_insert(struct db *db, struct db_box *box, struct err *e);
/* By number: phase, body, name, alive. -ENOENT, -EEXIST. The box's end is the first update with alive false. */
MUST_CHECK int  db_box_update(struct db *db, const struct db_box *box, struct err *e);
/* With its execs and events. -ENOENT. */
MUST_CHECK int  db_box_delete(struct db *db, uint64_t number, struct err *e);
/* -ENOENT. Also finds dead boxes, as long as they are not pruned. */
MUST_CHECK int db_box_by_key(struct db *db, const char *owner, const char *key, uint64_t *ret_number,
                                struct err *e);
MUST_CHECK int  db_boxes(struct db *db, bool alive_only, int (*each)(const struct db_box *, void *), void *arg,
                            struct err *e);
/* Deletes boxes that ended before this time, with their execs and events. */
MUST_CHECK int  db_prune(struct db *db, int64_t before_ms, struct err *e);

/* Sets number. -ENOENT: no such box. */
MUST_CHECK int  db_exec_insert(struct db *db, struct db_exec *exec, struct err *e);
MUST_CHECK int  db_exec_update(struct db *db, const struct db_exec *exec, struct err *e);
MUST_CHECK int  db_exec_delete(struct db *db, uint64_t number, struct err *e);     /* -ENOENT */
/* The oldest first. */
MUST_CHECK int  db_execs(struct db *db, uint64_t box, int (*each)(const struct db_exec *, void *), void *arg,
                            struct err *e);

/* Sets number. box 0: an event of the server. */
MUST_CHECK int  db_event_insert(struct db *db, struct db_event *event, struct err *e);
/* Of one box (0: all), with number > after, at most limit. */
MUST_CHECK int  db_events(struct db *db, uint64_t box, uint64_t after, unsigned limit,
                             int (*each)(const struct db_event *, void *), void *arg, struct err *e);

MUST_CHECK int  db_token_insert(struct db *db, const struct db_token *token, struct err *e);
/* If it is not found, each is not called; that is no error. */
MUST_CHECK int  db_token_by_hash(struct db *db, const unsigned char hash[32],
                                    int (*each)(const struct db_token *, void *), void *arg, struct err *e);
MUST_CHECK int  db_token_revoke(struct db *db, const char *id, struct err *e);     /* -ENOENT */
MUST_CHECK int  db_token_used(struct db *db, const char *id, int64_t used_ms, struct err *e);  /* -ENOENT */
/* Deletes tokens of grants that were revoked or have expired. */
MUST_CHECK int  db_tokens_sweep(struct db *db, int64_t now_ms, struct err *e);
MUST_CHECK int  db_tokens(struct db *db, int (*each)(const struct db_token *, void *), void *arg,
                             struct err *e);

/* Inserts it, or changes its body. -ENOENT: no such box. Deleting a box deletes its services; deleting a service
 * deletes its grants. */
MUST_CHECK int  db_service_put(struct db *db, const struct db_service *service, struct err *e);
MUST_CHECK int  db_service_delete(struct db *db, const char *id, struct err *e);   /* -ENOENT */
MUST_CHECK int  db_services(struct db *db, int (*each)(const struct db_service *, void *), void *arg,
                               struct err *e);
/* Inserts it, or changes its body. -EEXIST: name taken. */
MUST_CHECK int  db_volume_put(struct db *db, const struct db_volume *volume, struct err *e);
MUST_CHECK int  db_volume_delete(struct db *db, uint64_t number, struct err *e);   /* -ENOENT */
MUST_CHECK int  db_volumes(struct db *db, int (*each)(const struct db_volume *, void *), void *arg, struct err *e);

MUST_CHECK int  db_grant_insert(struct db *db, const struct db_grant *grant, struct err *e);
MUST_CHECK int  db_grant_used(struct db *db, const char *id, int64_t used, struct err *e);     /* -ENOENT */
MUST_CHECK int  db_grant_delete(struct db *db, const char *id, struct err *e);     /* -ENOENT */
MUST_CHECK int  db_grants(struct db *db, int (*each)(const struct db_grant *, void *), void *arg,
                             struct err *e);

#endif
