/* Shared by the parts of the MCP door. An admitted JSON-RPC request is a struct mcp_call; it lives in the HTTP
 * request's arena. */
#ifndef CARREL_DOORS_MCP_DOOR_H
#define CARREL_DOORS_MCP_DOOR_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "doors/mcp/envelope.h"
#include "front/front.h"
#include "front/request/admitted.h"
#include "http/server.h"

/* Twelve digits: 0.64 stays 0.64. */
#define MCP_DUMP (JSON_COMPACT | JSON_REAL_PRECISION(12))

enum {
    MCP_TICK_MS = 15000,
    MCP_FRESH_MS = 60000,
    MCP_BODY_MOST = 16 << 20,
    MCP_TEXT_MOST = 4 << 20,
    MCP_ANSWER_MOST = 96 << 20
};

/* The name under which run_code's requests appear to other listeners of a kernel. */
#define MCP_SESSION "mcp"

struct kernel;
struct mcp_tool;
struct service;

struct mcp {
    struct mcp_call *calls;                 /* all running calls */
};

struct mcp_call {
    struct mcp          *mcp;
    struct mcp_call     *next, **back;      /* in the list of running calls */
    EMBED_ADMITTED;
    const char          *service;           /* of /mcp/services/NAME; NULL: Carrel's own tools */
    const char          *box;               /* of /mcp/boxes/NAME: the tools work in this box only; NULL: in any box */
    const char          *only;              /* comma-separated names of the tools to offer; NULL: all */
    json_t              *net;               /* owned: the network of boxes that it makes; NULL: none was given */
    const char          *session;           /* of a client that had a handshake; "": none */
    struct mcp_envelope  m;                 /* owned: the message */
    size_t               weight;            /* charged to the caller for the message as a tree */
    size_t               kept;              /* charged for the result, see mcp_keep() */
    uint64_t             progress;
    bool                 takes_stream, is_streaming;
    struct loop_timer    tick;
    struct buf           pending;           /* of a stream: bytes that the client has not taken yet */
    bool                 is_over;           /* the answer is complete, but perhaps not sent */
    void                *work;              /* owned by the tool */
    void (*then)(struct mcp_call *c, struct box *box);      /* box.c: continues when the box is ready */
    uint64_t             making;            /* number of the box being made; 0: none */
    bool                 is_new_box;        /* it was made for this call */
    bool                 has_lost_box;      /* and the session's previous box is gone */
    void (*on_gone)(struct mcp_call *c);    /* the client is gone or cancels, so the tool must stop; NULL: no tool
                                             * runs */
};

/* --- mcp.c --- */
/* Takes the call off the list of running ones, and frees what it owns. */
void mcp_call_done(struct mcp_call *c);

/* Reports how many bytes the tool or the answer keeps in memory. False: over the caller's budget, and nothing was
 * changed. */
bool mcp_keep(struct mcp_call *c, size_t bytes);

/* --- rpc.c: answers; each but mcp_progress ends the call --- */
/* members: the text between the braces of the result, JSON; may be empty. */
void mcp_result(struct mcp_call *c, const char *members, size_t size);
void mcp_result_json(struct mcp_call *c, json_t *object);           /* taken over */
void mcp_error(struct mcp_call *c, int code, const char *format, ...) PRINTF_LIKE(3, 4);
void mcp_error_data(struct mcp_call *c, int code, const char *message, json_t *data);   /* taken over; may be NULL */
/* For a request that is no call (yet). id may be NULL. */
void mcp_refuse(struct http_request *r, int status, int code, const char *message, json_t *id);
/* Sends progress, if the caller wants it and takes a stream; text is a JSON string with its quotes. */
void mcp_progress(struct mcp_call *c, const char *text, size_t size);
void mcp_on_writable(struct http_request *r);
void mcp_on_tick(struct loop_timer *t);

/* --- a tool's result --- */
/* One text, and as structured content an object (taken over; NULL: none). */
void mcp_tool_result(struct mcp_call *c, const char *text, json_t *structured, bool is_error);
void mcp_tool_text(struct mcp_call *c, json_t *text, json_t *structured, bool is_error);     /* both taken over */
void mcp_tool_fail(struct mcp_call *c, const char *format, ...) PRINTF_LIKE(2, 3);
void mcp_tool_err(struct mcp_call *c, const struct err *e);

/* --- modern.c: envelope.h's checks; false: answered --- */
bool mcp_check(struct mcp_call *c);
bool mcp_modern_arguments(struct mcp_call *c, const char *schema, const json_t *arguments);
json_t *mcp_versions_json(void);
/* Whether the client has declared this capability. False: answered. */
bool mcp_needs(struct mcp_call *c, const char *capability);

/* --- tools.c --- */
typedef void mcp_tool_handler(struct mcp_call *c, json_t *arguments);
struct mcp_tool {
    const char       *name, *title, *description;
    const char       *input, *output;       /* JSON Schemas; output may be NULL */
    unsigned          scopes;
    unsigned          hints;                /* enum mcp_hint */
    mcp_tool_handler *call;
};
enum mcp_hint {
    MCP_READ_ONLY = 1, MCP_DESTRUCTIVE = 2, MCP_IDEMPOTENT = 4, MCP_OPEN_WORLD = 8, MCP_IN_BOX = 16,
    MCP_RUNS = 32,              /* runs the model's code: its description says which network that has */
};

/* Answers with a list under its name, and with how long a client may cache it; taken over. */
void mcp_list_result(struct mcp_call *c, const char *name, json_t *list);
void mcp_tools_list(struct mcp_call *c);
void mcp_tools_call(struct mcp_call *c);
/* Whether every name in c->only is an existing tool; false: answered. */
bool mcp_only_check(struct mcp_call *c);
/* Tools of a test server only; elsewhere the symbol is missing. */
extern const struct mcp_tool mcp_test_tools[] __attribute__((weak));

/* --- box.c --- */
/* The box that the argument `box` names; without it the session's own, or a new one, which becomes the session's and is
 * deleted after it was idle for a while. then may be called before this returns; it is not called if the call ends
 * first or was answered with an error. */
void mcp_with_box(struct mcp_call *c, json_t *arguments, void (*then)(struct mcp_call *c, struct box *box));
/* Like mcp_with_box() for a tool that makes no box. NULL: there is none, and the call was answered. */
struct box *mcp_find_box(struct mcp_call *c, json_t *arguments);
/* Ends the session: its box is deleted. */
void mcp_end_session(struct mcp_call *c);
/* Adds the last line of a text: the box and the duration. Plain ASCII without quotes. Adds nothing at an address with
 * one box only. */
#define MCP_UNTIMED UINT64_MAX
void mcp_add_place(struct buf *out, const struct mcp_call *c, const char *box_id, uint64_t wall_ms);
/* At /mcp/boxes/NAME: whether the caller has such a box; false: answered. */
bool mcp_box_check(struct mcp_call *c);
/* At /mcp/boxes/NAME tools work in the directory of the box's default kernel; NULL: there is no such kernel, or it has
 * the box's own directory. */
const struct kernel *mcp_kernel_of(const struct mcp_call *c, struct box *box);

mcp_tool_handler mcp_run_code, mcp_run_command, mcp_read_file, mcp_write_file, mcp_list_files, mcp_create_box,
    mcp_list_boxes, mcp_delete_box;

/* --- net.c --- */
/* Reads ?net=, ?allow=, ?deny=; false: answered. */
bool mcp_net_read(struct mcp_call *c);
/* "No network.", or the rules for a box of this client. */
void mcp_add_reach(struct buf *out, const struct mcp_call *c);
/* Adds a line about a refused connection of the box, and how the user can allow it; refused NULL: adds nothing. */
void mcp_add_refused(struct buf *out, const struct mcp_call *c, const char *box_id, const json_t *refused);

/* --- service.c: /mcp/services/NAME --- */
/* Whether the caller owns the service or holds a grant for it; false: answered. */
bool mcp_service_check(struct mcp_call *c);
void mcp_service_list(struct mcp_call *c);
void mcp_service_call(struct mcp_call *c, const char *function, json_t *arguments);

#endif
