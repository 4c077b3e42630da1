/* Shared by the client's commands: options, requests with JSON, messages, tables. A command returns its exit status. */
#ifndef CARREL_CLIENT_CLIENT_H
#define CARREL_CLIENT_CLIENT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/broker.h"
#include "base/buf.h"
#include "base/err.h"
#include "client/wire/exchange.h"
#include "proto/ending.h"

enum { EXIT_CLIENT = EXIT_CARREL };

struct client {
    const char   *name;         /* the command's name */
    const char   *usage;
    const char   *url;          /* --url, or NULL */
    bool          json;         /* --json */
    bool          may_lack_server;      /* the command finds or starts a server itself */
    bool          operand_ends;         /* words after the first operand are not ours: py */
    struct server_address server;
};

/* --- options.c --- */
struct flag {
    const char *name;           /* "memory" */
    char        letter;         /* 0: none */
    bool        takes_value;
    int       (*take)(void *into, const char *value, struct err *e);
};

/* The operands of a command. */
struct words {
    int    n;
    char **at;
};

/* Reads options and finds the server. --url, --json and --help are accepted by every command. With stops, the first
 * operand may be followed by options and then, with or without "--", by words that are not ours (exec). Returns -1, or
 * the exit status if there is nothing more to do. */
MUST_CHECK int client_begin(struct client *c, int argc, char **argv, const struct flag *flags, size_t n_flags,
                            void *into, bool stops, struct words *ret);
/* "carrel: exec: …; 'carrel exec --help' tells more". Returns EXIT_CLIENT. */
int            client_misused(const struct client *c, const char *format, ...) PRINTF_LIKE(2, 3);

/* --- words.c --- */
/* A message of the server's, with options in the place of fields: "limits.memory" is "--memory". */
void           client_words(const char *text, struct buf *out);

/* Readers for struct flag: bool, const char * and the types of base/parse.h; into is the command's own struct, so each
 * command has small wrappers. */
int take_size(const char *name, const char *value, json_t *object, const char *key, struct err *e);
int take_cpus(const char *name, const char *value, json_t *object, const char *key, struct err *e);
int take_count(const char *name, const char *value, json_t *object, const char *key, struct err *e);
int take_duration(const char *name, const char *value, json_t *object, const char *key, struct err *e);
/* --net, --allow and --deny, into the member "net" of a body. */
int take_net(const char *option, const char *value, json_t *body, struct err *e);
#define NET_FLAGS(net, allow, deny) { "net", 0, true, net }, { "allow", 0, true, allow }, { "deny", 0, true, deny },
/* --packages and --requirements, into the member "packages"; --python into "python". */
int take_packages(const char *option, const char *value, json_t *body, struct err *e);
int take_python(const char *value, json_t *body, struct err *e);
#define PACKAGE_FLAGS(packages, requirements) \
    { "packages", 0, true, packages }, { "requirements", 0, true, requirements },
/* --volume, into the member "volumes". */
int take_volume(const char *option, const char *value, json_t *body, struct err *e);
/* --key, into the member "keys": the notation of `carrel run --key`, but SECRET is the name of a secret. */
int take_key(const char *option, const char *value, json_t *body, struct err *e);
/* For a server of this process alone, which has no secrets yet: takes the values of a body's keys from the variables of
 * the same names, which are overwritten, because processes of boxes would inherit them; then gives them to the server.
 * Zeroed: none. */
struct own_keys {
    size_t      n;
    const char *secret[BROKER_KEYS];        /* borrowed from the body */
    char       *value[BROKER_KEYS];         /* owned */
};
MUST_CHECK int own_keys_take(json_t *body, struct own_keys *ret, struct err *e);
MUST_CHECK int own_keys_give(struct own_keys *keys, const struct client *c, struct err *e);
void           own_keys_done(struct own_keys *keys);
/* Stores a secret, or replaces it. */
MUST_CHECK int secret_give(const struct client *c, const char *name, const char *text, struct err *e);
/* --secret, into the member "secrets". */
int take_secret(const char *option, const char *value, json_t *body, struct err *e);
int take_pair(const char *name, const char *value, json_t *object, struct err *e);      /* NAME=VALUE */

/* --- request.c --- */
/* "carrel: …" on standard error, once. Returns EXIT_CLIENT. */
int            client_complain(const struct err *e);
/* Reports an error answer and its remedy. Returns EXIT_CLIENT. */
int            client_refused(int status, json_t *answer);
/* The rest of the answer as JSON; a new reference, NULL if it is no JSON. */
json_t        *client_read_json(struct exchange *x);
/* The HTTP status, or -errno with e. body is taken over, NULL: none. *ret is a new reference or NULL. */
MUST_CHECK int client_ask(const struct client *c, const char *method, const char *target, json_t *body, json_t **ret,
                          struct err *e);
/* Like client_ask(), but reports everything except success and returns -1. ret may be NULL. */
MUST_CHECK int client_call(const struct client *c, const char *method, const char *target, json_t *body, json_t **ret);

/* --- handover.c: directories and files that this process opens, for a box of a server on this machine --- */
struct handover {
    json_t *list;                   /* owned: the mounts in the API's form */
    int     fd[EXCHANGE_FDS];       /* owned: each in an envelope (keeper/envelope.h) */
    size_t  n;
};
void           handover_init(struct handover *h);
void           handover_done(struct handover *h);
/* Opens source with the rights of this process. what: its name in messages. */
MUST_CHECK int handover_add(struct handover *h, const char *what, const char *source, const char *target,
                            bool writable, struct err *e);
/* The same for a mount that a box had before. Other boxes may have changed the path since then, and one that may write
 * above it can have put a link there. So no link is followed. */
MUST_CHECK int handover_add_again(struct handover *h, const char *what, const char *source, const char *target,
                                  bool writable, struct err *e);

/* Like client_ask and client_call, with further header lines (each with its CRLF; NULL: none) and descriptors to hand
 * over (NULL: none). */
MUST_CHECK int client_ask_with(const struct client *c, const char *method, const char *target, const char *fields,
                               json_t *body, const struct handover *h, json_t **ret, struct err *e);
MUST_CHECK int client_call_with(const struct client *c, const char *method, const char *target, const char *fields,
                                json_t *body, const struct handover *h, json_t **ret);

/* Adds to a URL: literal pieces, and values with everything escaped but letters, digits and -._~ (and / in a path). */
void           target_add(struct buf *target, const char *literal, const char *value);
void           target_add_path(struct buf *target, const char *path);
/* "/v1/boxes/ID", and a literal after it. Valid until the next call. */
const char    *target_box(const char *box, const char *rest);

/* Text of a member; "" if there is none. */
const char    *text_of(const json_t *object, const char *key);
/* One JSON value on standard output, laid out for people too. */
void           print_json(const json_t *value);
void           print_json_line(const json_t *value);

/* --- table.c --- */
enum { TABLE_COLUMNS = 12 };
struct table {
    unsigned     columns;
    const char  *title[TABLE_COLUMNS];
    uint32_t     right;         /* bit per column that is aligned to the right */
    size_t       n, room;
    char       **cell;          /* owned, row by row */
};
void        table_init(struct table *t, const char *const *titles, uint32_t right);     /* titles end with NULL */
/* As many cells as columns. Removes characters from a cell that a terminal would obey. */
void        table_add(struct table *t, ...);
/* Prints and forgets the rows. */
void        table_print(struct table *t);
void        table_done(struct table *t);

/* Texts in a small ring: valid for a dozen further calls. */
const char *show_bytes(uint64_t bytes);             /* "1.5G" */
const char *show_age(const char *time);             /* "3m" since a time of the API; "-" if there is none */
const char *show_number(uint64_t number);
const char *show_format(const char *format, ...) PRINTF_LIKE(1, 2);
/* A foreign text, made safe for a terminal. */
const char *show_text(const char *text);
bool        show_colours(int fd);
/* The terminal's colour codes for a phase or an outcome; "" without colours. */
const char *colour_of(const char *word, int fd);
const char *colour_off(int fd);

#endif
