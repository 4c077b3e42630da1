/* Where scenes are played: a real front, a keeper that is a table, a clock that is wound when nothing else moves, and
 * what can be asked of boxes. */
#ifndef CARREL_TESTS_FRONT_STAGE_H
#define CARREL_TESTS_FRONT_STAGE_H

#include "front/boxes/box_private.h"
#include "front/execs/execs.h"
#include "front/fake_keeper.h"
#include "front/front.h"

/* A requesting client. */
struct wish {
    unsigned answers;
    int      code;              /* 0 or an errno, of the answer */
    bool     is_asked;          /* and not refused at once */
    bool     is_gone;           /* the client is gone; answering it is an error */
    unsigned generation;
    void   (*leave)(struct wish *w);    /* who asked goes; NULL: it was about a box */
    void    *what;
};

extern struct fake_keeper keeper;
extern struct front front;
extern char state_path[64];
extern unsigned generation;     /* of fronts */
extern const char *playing;     /* the scene's name; it also says which pool there is */
/* Wishes outlive their scene: an answer that comes too late, or twice, must still find who it is for. */
extern struct wish wishes[64];
extern unsigned n_wishes;

/* Whether what the scenes are about, besides boxes, is where it can stay. NULL: it is nothing else. */
extern bool (*is_quiet)(void);

void open_front(void);
/* What it knew is gone with it; what it stored stays. */
void close_front(void);
/* Boxes that the pool has, when all is quiet. */
unsigned boxes_ahead(void);
/* Until nothing has moved for a while, and all is where it can stay. */
void settle(void);

/* One frame or message at most, one turn of the loop; if nothing moves, time does. */
bool turn(void);
/* Turns until it is so, for a client that waits for more than that. False: that was answered, or the client is gone. */
bool until(struct wish *w, bool (*is_so)(void *arg), void *arg, const char *what);
/* Until there is a keeper. */
void await_front(void);

struct wish *wish(void);
/* 0 or the answered errno; ECANCELED if the client was gone. */
int          await(struct wish *w);
/* The one answer. */
void         answer_wish(struct wish *w, int code);
/* 0, or the errno of a refusal; of one in a scene that nothing disturbs, why. */
int          refusal(int r, const struct err *e);

/* A front that has died is another one now, and so is its box. NULL: there is none. */
struct box *find(const char *id);

/* Each gives 0, or the errno of a refusal or an answer; ECANCELED if the client was gone. */
typedef int act(struct box *b, struct wish *w, struct err *e);
act act_pause, act_resume, act_stop, act_start, act_delete, act_limits;
int doing(act *what, const char *id);
int create(char id[16], bool on_disk, uint32_t template);
/* All are requested before the first answer. */
int create_together(char (*id)[16], unsigned n, uint32_t template);
/* Until it has ended, or with the keeper's endless ones until it runs. */
int command(const char *id, bool fork);
int kill_all(const char *id);

#endif
