/* The front's loop and the keeper take turns, one frame at a time, in one thread. */
#define _GNU_SOURCE
#include "front/layers/layers.h"
#include "front/volumes/volumes.h"
#include "front/boxes/families.h"
#include "front/boxes/pool.h"
#include "front/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "front/clock.h"
#include "front/db/db.h"
#include "front/keeper_link.h"
#include "front/net/net.h"
#include "front/services/grants.h"
#include "front/services/services.h"
#include "unit/unit.h"

enum { QUIET_TURNS = 6, IDLE_TURNS = 2, STEPS_MOST = 8, STUCK_MS = 300000, TURNS_MOST = 200000 };

struct fake_keeper keeper;
struct front front;
char state_path[64];
unsigned generation;
const char *playing;
struct wish wishes[64];
unsigned n_wishes;
bool (*is_quiet)(void);

static struct wish *waiting;    /* the one that the scene waits for */

/* ---- the front ---- */

static void on_event(const union event *event, int *fds, size_t n_fds, void *arg)
{
    boxes_on_keeper_event(arg, event, fds, n_fds);
}

static void on_synced(void *arg)
{
    boxes_on_synced(arg);
}

static void on_lost(void *arg)
{
    boxes_on_lost(arg);
}

static bool keeps_ahead(void)
{
    return strcmp(playing, "ahead") == 0;
}

unsigned boxes_ahead(void)
{
    return front.config.pool_size + (keeps_ahead() ? pool_slots(&front.boxes) : 0);
}

void open_front(void)
{
    const struct keeper_handlers handlers = {
        .on_event = on_event, .on_synced = on_synced, .on_lost = on_lost, .arg = &front
    };
    struct err e = { 0 };
    char path[80];

    front = (struct front){ .started_ms = front_now_ms(), .owner_uid = geteuid() };
    config_defaults(&front.config, true);
    snprintf(front.config.state, sizeof front.config.state, "%s", state_path);
    snprintf(front.config.guest, sizeof front.config.guest, "/usr/nonexistent");
    assert_int_equal(config_set(&front.config, "pool.size", strcmp(playing, "pool") == 0 ? "1" : "off", &e), 0);
    assert_int_equal(config_set(&front.config, "templates.python.pool", keeps_ahead() ? "1" : "0", &e), 0);
    assert_int_equal(config_set(&front.config, "defaults.disk", "64M", &e), 0);
    front.config.host_memory_bytes = UINT64_C(1) << 40;
    front.config.host_cpu_milli = 1000000;
    snprintf(path, sizeof path, "%s/execs", state_path);
    assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
    front.execs_dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(front.execs_dir >= 0);
    assert_int_equal(db_open(state_path, &front.db, &e), 0);
    assert_int_equal(loop_new(&front.loop), 0);
    front.memory.most = front.partials.most = UINT64_C(1) << 30;
    front_init_parts(&front);
    layers_init(&front);
    boxes_init(&front);
    net_init(&front);
    volumes_init(&front);
    assert_int_equal(volumes_load(&front, &e), 0);
    assert_int_equal(boxes_load(&front, &e), 0);
    assert_int_equal(services_load(&front, &e), 0);
    assert_int_equal(grants_load(&front, &e), 0);
    int r = keeper_link_new(front.loop, fake_dial(&keeper), "fake", geteuid(), &handlers, &front.keeper, &e);
    assert_int_equal(r, 0);
    generation++;
}

void close_front(void)
{
    keeper_link_free(front.keeper);
    grants_free(&front);
    services_free(&front);
    boxes_free(&front);
    layers_free(&front);
    volumes_free(&front);
    net_free(&front);
    /* Kernels and services that were forgotten in the last turn; nothing else may be left to do. */
    assert_int_equal(loop_turn(front.loop, 0), 0);
    assert_true(budgets_are_empty(&front.memory) && budgets_are_empty(&front.partials));
    db_close(front.db);
    loop_free(front.loop);
    fd_close(front.execs_dir);
}

/* ---- time ---- */

static void strike(void)
{
    if (keeper.fault == FAULT_CLIENT_GOES && waiting && !waiting->is_gone && !waiting->answers) {
        waiting->is_gone = true;
        if (waiting->leave)
            waiting->leave(waiting);
        else
            boxes_cancel(&front, waiting);
    }
    if (keeper.fault == FAULT_FRONT_DIES) {
        keeper.struck = false;
        close_front();
        open_front();
    }
}

/* Time goes in steps that grow: a limit of minutes is soon reached, and what takes milliseconds is not overtaken. */
bool turn(void)
{
    static unsigned idle;
    bool did = fake_turn(&keeper);

    if (keeper.struck)
        strike();
    assert_int_equal(loop_turn(front.loop, 0), 0);
    idle = did ? 0 : idle + 1;
    if (idle > IDLE_TURNS)
        clock_wind(UINT64_C(1) << (idle - IDLE_TURNS < STEPS_MOST ? idle - IDLE_TURNS : STEPS_MOST));
    return did;
}

struct patience {
    uint64_t end_ms;
    unsigned turns;
};

static struct patience patience(void)
{
    return (struct patience){ .end_ms = loop_now_ms() + STUCK_MS };
}

static void wait_turn(struct patience *p, const char *what)
{
    (void)turn();
    if (loop_now_ms() > p->end_ms || ++p->turns > TURNS_MOST)
        fail_msg("%s: %s is stuck after fault %d at frame %u", playing, what, keeper.fault, keeper.fault_at);
}

static bool is_over(const struct wish *w)
{
    return w->answers || w->is_gone || w->generation != generation;
}

bool until(struct wish *w, bool (*is_so)(void *arg), void *arg, const char *what)
{
    struct patience p = patience();

    waiting = w;
    if (w)
        w->is_asked = true;
    while (!is_over(w) && !is_so(arg))
        wait_turn(&p, what);
    waiting = NULL;
    return !is_over(w);
}

static bool is_calm(void)
{
    unsigned n = boxes_ahead();

    if (!front.ready || fake_has_work(&keeper))
        return false;
    for (const struct box *b = front.boxes.first; b; b = b->next) {
        if (b->phase == PHASE_CREATING || b->phase == PHASE_STARTING || b->phase == PHASE_STOPPING ||
            b->phase == PHASE_DELETING || box_has_calls(b))
            return false;
        n += b->phase == PHASE_RUNNING || b->phase == PHASE_PAUSED;
    }
    return fake_count_boxes(&keeper) == n && (!is_quiet || is_quiet());     /* the pool is filled by and by */
}

void settle(void)
{
    struct patience p = patience();

    for (unsigned quiet = 0; quiet < QUIET_TURNS;) {
        unsigned frames = keeper.frames;
        wait_turn(&p, "the stage");
        quiet = keeper.frames != frames || !is_calm() ? 0 : quiet + 1;
    }
}

int await(struct wish *w)
{
    struct patience p = patience();

    waiting = w;
    w->is_asked = true;
    while (!is_over(w))
        wait_turn(&p, "an answer");
    waiting = NULL;
    if (w->answers)
        return w->code;
    settle();
    return ECANCELED;
}

void answer_wish(struct wish *w, int code)
{
    assert_false(w->is_gone);
    assert_int_equal(w->generation, generation);
    assert_int_equal(++w->answers, 1);
    w->code = code;
}

static void on_answer(struct box *b, const struct err *e, void *arg)
{
    (void)b;
    answer_wish(arg, e ? e->code : 0);
}

int refusal(int r, const struct err *e)
{
    char text[256];

    if (r < 0 && keeper.fault == FAULT_NONE) {
        err_text(e, text, sizeof text);
        print_message("front: %s: %s\n", playing, text);
    }
    return r < 0 ? -r : 0;
}

/* ---- what scenes do ---- */

struct wish *wish(void)
{
    assert_true(n_wishes < COUNT(wishes));
    wishes[n_wishes] = (struct wish){ .generation = generation };
    return &wishes[n_wishes++];
}

struct box *find(const char *id)
{
    return id[0] ? boxes_find(&front, NULL, id) : NULL;
}

void await_front(void)
{
    struct patience p = patience();

    while (!front.ready)
        wait_turn(&p, "the keeper");
}

/* Does not wait for the answer. */
static int ask_create(char id[16], bool on_disk, uint32_t template, struct wish *w)
{
    struct box_settings s;
    struct err e = { 0 };
    struct box *b;
    bool existed;

    id[0] = '\0';
    await_front();
    w->generation = generation;
    box_settings_init(&s);
    box_mounts_set_disk(&s.mounts, on_disk);
    box_mounts_set(&s.mounts, MOUNT_LAYER, template, false);
    int r = boxes_create(&front, "uid:0", 0, 0, NULL, NULL, &s, on_answer, w, &b, &existed, &e);
    if (r < 0)
        return refusal(r, &e);
    w->is_asked = true;
    snprintf(id, 16, "%s", b->id);
    return 0;
}

int create(char id[16], bool on_disk, uint32_t template)
{
    struct wish *w = wish();
    int r = ask_create(id, on_disk, template, w);

    return r ? r : await(w);
}

int create_together(char (*id)[16], unsigned n, uint32_t template)
{
    struct wish *w[8];
    int r = 0, refused[8];

    assert_true(n <= COUNT(w));
    for (unsigned i = 0; i < n; i++) {
        w[i] = wish();
        refused[i] = ask_create(id[i], false, template, w[i]);
    }
    for (unsigned i = 0; i < n; i++) {
        int its = refused[i] ? refused[i] : await(w[i]);
        r = r ? r : its;
    }
    return r;
}

int act_pause(struct box *b, struct wish *w, struct err *e)
{
    return box_pause(b, true, on_answer, w, e);
}

int act_resume(struct box *b, struct wish *w, struct err *e)
{
    return box_pause(b, false, on_answer, w, e);
}

int act_stop(struct box *b, struct wish *w, struct err *e)
{
    return box_stop(b, BOX_REASON_ASKED, on_answer, w, e);
}

int act_start(struct box *b, struct wish *w, struct err *e)
{
    struct box_mounts none = { 0 };

    return box_start(b, &none, on_answer, w, e);
}

int act_delete(struct box *b, struct wish *w, struct err *e)
{
    return box_delete(b, BOX_REASON_ASKED, on_answer, w, e);
}

int act_limits(struct box *b, struct wish *w, struct err *e)
{
    const struct limits limits = { .memory_bytes = UINT64_C(1) << 30 };
    return box_update(b, &limits, NULL, NULL, NULL, on_answer, w, e);
}

int doing(act *what, const char *id)
{
    struct wish *w = wish();
    struct box *b = find(id);
    struct err e = { 0 };

    if (!b)
        return ENOENT;
    int r = what(b, w, &e);
    return r < 0 ? refusal(r, &e) : await(w);
}

int command(const char *id, bool fork)
{
    char *argv[] = { "/bin/echo", "hi", NULL }, *env[] = { "A=b", NULL };
    struct exec_options o = { .argv = argv, .env = env, .background = true, .fork = fork };
    struct box *b = find(id);
    struct exec *x;
    struct err e = { 0 };
    unsigned born = generation;
    struct patience p = patience();
    char name[16];

    if (!b)
        return ENOENT;
    o.fork = fork && family_can_fork(b);
    int r = exec_start(b, &o, &x, &e);
    if (r < 0)
        return refusal(r, &e);
    snprintf(name, sizeof name, "%s", x->id);
    for (;;) {
        if (generation != born && (!(b = find(id)) || !(x = exec_find(b, name))))
            return ENOENT;
        born = generation;
        if (x->state == EXEC_ENDED || (keeper.endless && x->state == EXEC_RUNNING))
            break;
        wait_turn(&p, "a command");
    }
    if (x->state != EXEC_ENDED)
        return 0;
    return x->failure.code ? x->failure.code : x->outcome == OUTCOME_OK ? 0 : EINTR;
}

int kill_all(const char *id)
{
    struct box *b = find(id);
    struct err e = { 0 };
    int r = ENOENT;

    for (struct exec *x = b ? b->execs : NULL; x; x = x->next)
        r = x->state == EXEC_ENDED ? 0 : -exec_signal(x, SIGKILL, &e);
    settle();
    return r;
}
