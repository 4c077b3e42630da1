/* What the parts of the MCP door share. A JSON-RPC request that has been let in is a struct mcp_call; it lives in the
 * HTTP request's arena. */
#ifndef CARREL_DOORS_MCP_DOOR_H
#define CARREL_DOORS_MCP_DOOR_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "doors/mcp/envelope.h"
#include "front/front.h"
#include "front/identity/auth.h"
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

/* What the requests of run_code are known by to others who listen to a kernel. */
#define MCP_SESSION "mcp"

struct kernel;
struct mcp_tool;
struct service;

struct mcp {
    struct mcp_call *calls;                 /* all that run */
};

struct mcp_call {
    struct mcp          *mcp;
    struct mcp_call     *next, **back;      /* all that run */
    struct front        *front;
    struct http_request *r;
    struct identity      who;
    struct box          *holder;            /* the box whose inlet it came over; NULL: another way */
    const char          *service;           /* of /mcp/services/NAME; NULL: Carrel's own tools */
    const char          *box;               /* of /mcp/boxes/NAME: its tools, and no other box's; NULL: any box's */
    const char          *only;              /* names of tools with commas: the others are not there; NULL: all are */
    const char          *session;           /* of a client that had a handshake; "": none */
    struct mcp_envelope  m;                 /* owned: the message */
    size_t               weight;            /* charged to the caller for the message as a tree */
    size_t               kept;              /* and for what mcp_keep() was told */
    uint64_t             progress;
    bool                 takes_stream, is_streaming;
    struct loop_timer    tick;
    struct buf           pending;           /* of a stream: what the client does not take yet */
    bool                 is_over;           /* the answer is complete, but perhaps not out */
    void                *work;              /* the tool's own */
    void (*then)(struct mcp_call *c, struct box *box);      /* box.c: what waits for a box */
    uint64_t             making;            /* number of the box that is being made; 0: none */
    bool                 is_new_box;        /* it was made for this call */
    bool                 has_lost_box;      /* and the session had another one before, which is gone */
    void (*on_gone)(struct mcp_call *c);    /* nobody waits any more, or the tool is to stop; NULL: nothing runs */
};

/* --- mcp.c --- */
/* Takes the call off the list of those that run, and frees what it owns. */
void mcp_call_done(struct mcp_call *c);

/* What the tool, or the answer, keeps in memory now. False: the caller may not have more, and nothing has changed. */
bool mcp_keep(struct mcp_call *c, size_t bytes);

/* --- rpc.c: answers; each but mcp_progress ends the call --- */
/* members: what is between the braces of the result, JSON; may be empty. */
void mcp_result(struct mcp_call *c, const char *members, size_t size);
void mcp_result_json(struct mcp_call *c, json_t *object);           /* taken over */
void mcp_error(struct mcp_call *c, int code, const char *format, ...) PRINTF_LIKE(3, 4);
void mcp_error_data(struct mcp_call *c, int code, const char *message, json_t *data);   /* taken over; may be NULL */
/* A request that is no call (yet). id may be NULL. */
void mcp_refuse(struct http_request *r, int status, int code, const char *message, json_t *id);
/* Tells of progress, if the caller asked for it and takes a stream; text is a JSON string with its quotes. */
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
/* Whether the client said that it can do this. False: answered. */
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
enum mcp_hint { MCP_READ_ONLY = 1, MCP_DESTRUCTIVE = 2, MCP_IDEMPOTENT = 4, MCP_OPEN_WORLD = 8, MCP_IN_BOX = 16 };

/* A list under its name, with how long a client may keep it; taken over. */
void mcp_list_result(struct mcp_call *c, const char *name, json_t *list);
void mcp_tools_list(struct mcp_call *c);
void mcp_tools_call(struct mcp_call *c);
/* Whether every name in c->only is a tool's that is there; false: answered. */
bool mcp_only_check(struct mcp_call *c);
/* Tools that only a test server has; the symbol is not there otherwise. */
extern const struct mcp_tool mcp_test_tools[] __attribute__((weak));

/* --- box.c --- */
/* The box that the argument `box` names; without it the session's own, or a new one, which is the session's from then
 * on and is deleted when it was idle for a while. then may come before this returns; not if the call ends before, or
 * was answered with an error. */
void mcp_with_box(struct mcp_call *c, json_t *arguments, void (*then)(struct mcp_call *c, struct box *box));
/* The same for a tool that makes none. NULL: there is none, and that was answered. */
struct box *mcp_find_box(struct mcp_call *c, json_t *arguments);
/* Ends the session: its box is deleted. */
void mcp_end_session(struct mcp_call *c);
/* The last line of a text: in which box it was, and how long it took. Plain ASCII without quotes. Nothing where there
 * is one box only. */
#define MCP_UNTIMED UINT64_MAX
/* A line about what the box was refused on the network, with the command by which its user can allow it; NULL: none. */
void mcp_add_refused(struct buf *out, const char *box_id, const json_t *refused);
void mcp_add_place(struct buf *out, const struct mcp_call *c, const char *box_id, uint64_t wall_ms);
/* Of /mcp/boxes/NAME: whether the caller has such a box; false: answered. */
bool mcp_box_check(struct mcp_call *c);
/* At /mcp/boxes/NAME tools work where the box's default kernel does: its directory; NULL: there is none, or it was
 * told no other than the box's own. */
const struct kernel *mcp_kernel_of(const struct mcp_call *c, struct box *box);

mcp_tool_handler mcp_run_code, mcp_run_command, mcp_read_file, mcp_write_file, mcp_list_files, mcp_create_box,
    mcp_list_boxes, mcp_delete_box;

/* --- service.c: /mcp/services/NAME --- */
/* Whether the caller has anything to do with the service; false: answered. */
bool mcp_service_check(struct mcp_call *c);
void mcp_service_list(struct mcp_call *c);
void mcp_service_call(struct mcp_call *c, const char *function, json_t *arguments);

#endif
