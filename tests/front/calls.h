/* Those who have services made and call their functions. */
#ifndef CARREL_TESTS_FRONT_CALLS_H
#define CARREL_TESTS_FRONT_CALLS_H

#include "front/request/admitted.h"
#include "front/services/grants.h"
#include "front/services/services.h"
#include "front/stage.h"

struct call {
    struct wish         *wish;
    struct service_call *call;          /* until it is over */
    int                  refused;       /* why it was at once; 0: it was not */
    enum call_outcome    outcome;
    char                 printed[64], result[128];
};

struct service_wish {
    const char *code;           /* what is loaded: see fake_worker.c; NULL: "good" */
    bool        has_secrets;
    bool        own_box;
};

/* The service "tools", as long as there is one. */
struct service *tools(void);
/* Makes it and waits until it is ready or dead: 0 or EPIPE, or why it was refused. */
int             make_tools(const char *box, const struct service_wish *w);
/* Until it is ready or dead. */
int             await_tools(void);
int             restart_tools(void);
void            delete_tools(void);

/* grant NULL: it is the owner who calls. args: JSON, or NULL. timeout_ms 0: enough for all that goes well. */
struct call    *begin_call(const char *grant, const char *function, const char *args, uint64_t timeout_ms);
/* Until it has printed something. False: it will not. */
bool            until_it_works(struct call *c);
/* 0 if it ended so, and in a scene that nothing disturbs it must have; one that went well gives this result. */
int             end_call(struct call *c, enum call_outcome outcome, const char *result);
int             make_call(const char *function, const char *args, enum call_outcome outcome, const char *result);
void            abandon_call(struct call *c);

/* For is_quiet and check_more. */
bool services_are_quiet(void);
void check_services(void);

#endif
