/* The process at the other end of a link: a kernel or a service's worker that does what its cells and calls say. The
 * first message tells which of the two it is. It says or hears one message in a turn, and nothing of its own accord. */
#ifndef CARREL_TESTS_FRONT_FAKE_GUEST_H
#define CARREL_TESTS_FRONT_FAKE_GUEST_H

#include <stdbool.h>
#include <stddef.h>

enum { GUEST_QUEUE = 1024, GUEST_WAITING = 32, GUEST_TASKS = 8 };

enum guest_kind { GUEST_NEW, GUEST_KERNEL, GUEST_WORKER };

/* What stops a cell or a call. */
enum guest_temper {
    TEMPER_MILD,            /* the first signal, or a word */
    TEMPER_STUBBORN,        /* not a signal, but a word (a kernel); not a word, but a signal (a worker) */
    TEMPER_DEAF,            /* it goes on; SIGTERM ends the process */
    TEMPER_IRON,            /* only SIGKILL ends the process */
};

struct guest_text {
    char  *data;            /* owned */
    size_t size;
    bool   is_printed;      /* to its standard output, and not said */
};

struct guest_task {
    bool               is_there;
    unsigned long long id;          /* of a call */
    enum guest_temper  temper;
};

struct fake_guest {
    int               link, out;    /* owned; -1: closed */
    enum guest_kind   kind;
    bool              hangs;        /* it neither hears nor says anything more */
    bool              goes;         /* it ends when it has said what there is to say */
    bool              is_over;      /* its process has ended, so: */
    int               signal, code;
    struct guest_text partial;      /* of what it hears; size: how much is there */
    struct guest_text say[GUEST_QUEUE];
    size_t            first, n;
    struct guest_text waiting[GUEST_WAITING];   /* cells and calls that came while another was at work */
    size_t            n_waiting;
    struct guest_task task[GUEST_TASKS];        /* a kernel has one, a worker's first is the synchronous one */
    char             *parent;       /* owned: header of the cell that runs, JSON */
    bool              asks;         /* that cell waits for input */
    unsigned          n_said, n_cells;
};

/* Takes both descriptors. */
struct fake_guest *guest_new(int link, int out);
void               guest_free(struct fake_guest *g);
/* Whether there is something to say that the front can take, or to hear. */
bool               guest_has_work(const struct fake_guest *g);
/* The next is a message out. */
bool               guest_will_say(const struct fake_guest *g);
/* One message in or out; times 0: it is lost, 2: it comes twice. */
void               guest_turn(struct fake_guest *g, unsigned times);
void               guest_signal(struct fake_guest *g, int signal);
/* An illegal packet. */
void               guest_lie(struct fake_guest *g);
void               guest_close_link(struct fake_guest *g);

/* ---- for fake_kernel.c and fake_worker.c ---- */

void guest_say(struct fake_guest *g, const char *data, size_t size);
/* When all that was said before is on its way. */
void guest_print(struct fake_guest *g, const char *text);
void guest_exit(struct fake_guest *g, int code, int signal);
/* Keeps what came for later. */
void guest_put_off(struct fake_guest *g, const char *data, size_t size);

void kernel_hear(struct fake_guest *g, const char *data, size_t size);
void kernel_feel(struct fake_guest *g, int signal);
void worker_hear(struct fake_guest *g, const char *data, size_t size);
void worker_feel(struct fake_guest *g, int signal);

#endif
