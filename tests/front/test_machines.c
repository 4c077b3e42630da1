/* Boxes, commands, families and the pool of a real front, over a keeper that is a table (fake_keeper.h).
 *
 * Each scene is played once as it should go, which counts its frames. Then it is played again for every frame and every
 * fault: the keeper dies, the connection breaks, the client goes or the front itself dies instead of that frame.
 * Whatever happened, when all is quiet again the front and the keeper must be of one mind, everybody who waited must
 * have been answered once, nothing is stuck, no descriptor is left, and a front that starts afterwards finds the same.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/list.h"
#include "front/boxes/box_private.h"
#include "front/boxes/families.h"
#include "front/boxes/pool.h"
#include "front/db/db.h"
#include "front/fake_keeper.h"
#include "front/front.h"
#include "front/keeper_link.h"
#include "front/scratch.h"
#include "front/services/grants.h"
#include "front/services/services.h"

enum { QUIET_TURNS = 6, TURN_MS = 12, STUCK_MS = 20000, IDS = 8 };

static struct fake_keeper keeper;
static struct front front;
static char state_path[64];
static unsigned generation;     /* of fronts */
static const char *playing;     /* for messages */

/* Somebody who has asked for something. */
struct wish {
    unsigned answers;
    int      code;              /* 0 or an errno, of the answer */
    bool     is_asked;          /* and not refused at once */
    bool     is_gone;           /* who asked is; nobody may answer */
    unsigned generation;
};
static struct wish *waiting;    /* the one that the scene waits for */

/* ---- the front ---- */

static void on_event(const struct event *event, int *fds, size_t n_fds, void *arg)
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

static void open_front(void)
{
    const struct keeper_handlers handlers = {
        .on_event = on_event, .on_synced = on_synced, .on_lost = on_lost, .arg = &front
    };
    struct err e = { 0 };
    char path[80];

    front = (struct front){ .started_ms = front_now_ms(), .owner_uid = geteuid() };
    config_defaults(&front.config, true);
    snprintf(front.config.state, sizeof front.config.state, "%s", state_path);
    snprintf(front.config.guest, sizeof front.config.guest, "/nonexistent");
    assert_int_equal(config_set(&front.config, "pool.size", strcmp(playing, "pool") == 0 ? "1" : "off", &e), 0);
    assert_int_equal(config_set(&front.config, "templates.python.pool", "0", &e), 0);
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
    boxes_init(&front);
    assert_int_equal(boxes_load(&front, &e), 0);
    assert_int_equal(services_load(&front, &e), 0);
    assert_int_equal(grants_load(&front, &e), 0);
    int r = keeper_link_new(front.loop, fake_dial(&keeper), "fake", geteuid(), &handlers, &front.keeper, &e);
    assert_int_equal(r, 0);
    generation++;
}

/* What it knew is gone with it; what it stored stays. */
static void close_front(void)
{
    families_free(&front);
    pool_free(&front);
    keeper_link_free(front.keeper);
    grants_free(&front);
    services_free(&front);
    boxes_free(&front);
    assert_true(budgets_are_empty(&front.memory) && budgets_are_empty(&front.partials));
    db_close(front.db);
    loop_free(front.loop);
    fd_close(front.execs_dir);
}

/* ---- time ---- */

/* True: something happened. */
static bool turn(int wait_ms)
{
    bool did = fake_turn(&keeper);

    if (keeper.struck && keeper.fault == FAULT_CLIENT_GOES && waiting && !waiting->is_gone && !waiting->answers) {
        boxes_cancel(&front, waiting);
        waiting->is_gone = true;
    }
    if (keeper.struck && keeper.fault == FAULT_FRONT_DIES) {
        keeper.struck = false;
        close_front();
        open_front();
        return true;
    }
    assert_int_equal(loop_turn(front.loop, did ? 0 : wait_ms), 0);
    return did;
}

static bool is_over(const struct wish *w)
{
    return w->answers || w->is_gone || w->generation != generation;
}

static bool is_calm(void)
{
    unsigned n = front.config.pool_size;

    if (!front.ready || fake_has_work(&keeper))
        return false;
    for (const struct box *b = front.boxes.first; b; b = b->next) {
        if (b->phase == PHASE_CREATING || b->phase == PHASE_STARTING || b->phase == PHASE_STOPPING ||
            b->phase == PHASE_DELETING || box_has_calls(b))
            return false;
        n += b->phase == PHASE_RUNNING || b->phase == PHASE_PAUSED;
    }
    return fake_count_boxes(&keeper) == n;      /* the pool is filled by and by */
}

/* Until nothing has moved for a while, and all is where it can stay. */
static void settle(void)
{
    uint64_t end = loop_now_ms() + STUCK_MS;

    for (unsigned quiet = 0; quiet < QUIET_TURNS;) {
        quiet = turn(1) || !is_calm() ? 0 : quiet + 1;
        if (loop_now_ms() > end)
            fail_msg("%s: stuck after fault %d at frame %u", playing, keeper.fault, keeper.fault_at);
    }
}

/* 0 or the errno that was answered; ECANCELED if nobody was left to be answered. */
static int await(struct wish *w)
{
    uint64_t end = loop_now_ms() + STUCK_MS;

    waiting = w;
    w->is_asked = true;
    while (!is_over(w)) {
        turn(TURN_MS);
        if (loop_now_ms() > end)
            fail_msg("%s: no answer after fault %d at frame %u", playing, keeper.fault, keeper.fault_at);
    }
    waiting = NULL;
    if (w->answers)
        return w->code;
    settle();
    return ECANCELED;
}

static void on_answer(struct box *b, const struct err *e, void *arg)
{
    struct wish *w = arg;

    (void)b;
    assert_false(w->is_gone);
    assert_int_equal(w->generation, generation);
    assert_int_equal(++w->answers, 1);
    w->code = e ? e->code : 0;
}

/* 0, or the errno of a refusal; of one in a scene that nothing disturbs, why. */
static int refusal(int r, const struct err *e)
{
    char text[256];

    if (r < 0 && keeper.fault == FAULT_NONE) {
        err_text(e, text, sizeof text);
        print_message("front: %s: %s\n", playing, text);
    }
    return r < 0 ? -r : 0;
}

/* ---- what scenes do: each gives 0, or the errno of a refusal or an answer ---- */

/* Wishes outlive their scene: an answer that comes too late, or twice, must still find who it is for. */
static struct wish wishes[64];
static unsigned n_wishes;

static struct wish *wish(void)
{
    assert_true(n_wishes < COUNT(wishes));
    wishes[n_wishes] = (struct wish){ .generation = generation };
    return &wishes[n_wishes++];
}

/* A front that has died is another one now, and so is its box. */
static struct box *find(const char *id)
{
    return id[0] ? boxes_find(&front, NULL, id) : NULL;
}

static int create(char id[16], bool on_disk, uint32_t template)
{
    struct box_settings s;
    struct err e = { 0 };
    struct box *b;
    bool existed;
    struct wish *w = wish();

    id[0] = '\0';
    while (!front.ready)
        turn(TURN_MS);
    w->generation = generation;
    box_settings_init(&s);
    s.on_disk = on_disk;
    s.template = template;
    int r = boxes_create(&front, "uid:0", 0, 0, NULL, NULL, &s, on_answer, w, &b, &existed, &e);
    if (r < 0)
        return refusal(r, &e);
    snprintf(id, 16, "%s", b->id);
    return await(w);
}

typedef int act(struct box *b, struct wish *w, struct err *e);

static int act_pause(struct box *b, struct wish *w, struct err *e)
{
    return box_pause(b, true, on_answer, w, e);
}

static int act_resume(struct box *b, struct wish *w, struct err *e)
{
    return box_pause(b, false, on_answer, w, e);
}

static int act_stop(struct box *b, struct wish *w, struct err *e)
{
    return box_stop(b, "asked", on_answer, w, e);
}

static int act_start(struct box *b, struct wish *w, struct err *e)
{
    struct box_settings none;

    box_settings_init(&none);
    return box_start(b, &none, on_answer, w, e);
}

static int act_delete(struct box *b, struct wish *w, struct err *e)
{
    return box_delete(b, "asked", on_answer, w, e);
}

static int act_limits(struct box *b, struct wish *w, struct err *e)
{
    const struct frame_limits limits = { .memory_bytes = UINT64_C(1) << 30 };
    return box_update(b, &limits, NULL, NULL, NULL, on_answer, w, e);
}

static int doing(act *what, const char *id)
{
    struct wish *w = wish();
    struct box *b = find(id);
    struct err e = { 0 };

    if (!b)
        return ENOENT;
    int r = what(b, w, &e);
    return r < 0 ? refusal(r, &e) : await(w);
}

/* Starts a command; until it has ended, or with the keeper's endless ones until it runs. */
static int command(const char *id, bool fork)
{
    char *argv[] = { "/bin/echo", "hi", NULL }, *env[] = { "A=b", NULL };
    struct exec_options o = { .argv = argv, .env = env, .background = true, .fork = fork };
    struct box *b = find(id);
    struct exec *x;
    struct err e = { 0 };
    unsigned born = generation;
    uint64_t end = loop_now_ms() + STUCK_MS;
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
        turn(TURN_MS);
        if (loop_now_ms() > end)
            fail_msg("%s: a command is stuck after fault %d at frame %u", playing, keeper.fault, keeper.fault_at);
    }
    if (x->state != EXEC_ENDED)
        return 0;
    return x->failure.code ? x->failure.code : strcmp(x->outcome, "ok") == 0 ? 0 : EINTR;
}

static int kill_all(const char *id)
{
    struct box *b = find(id);
    struct err e = { 0 };
    int r = ENOENT;

    for (struct exec *x = b ? b->execs : NULL; x; x = x->next)
        r = x->state == EXEC_ENDED ? 0 : -exec_signal(x, SIGKILL, &e);
    settle();
    return r;
}

/* ---- the scenes: where they come to if nothing goes wrong; else they go on with what they have ---- */

static int scene_memory(void)
{
    char id[16];
    int r = create(id, false, 0);

    r = r ? r : doing(act_pause, id);
    r = r ? r : doing(act_resume, id);
    r = r ? r : doing(act_limits, id);
    r = r ? r : command(id, false);
    int gone = doing(act_delete, id);
    return r ? r : gone;
}

static int scene_disk(void)
{
    char id[16];
    int r = create(id, true, 0);

    r = r ? r : command(id, false);
    r = r ? r : doing(act_stop, id);
    r = r ? r : doing(act_start, id);
    r = r ? r : doing(act_stop, id);
    int gone = doing(act_delete, id);
    return r ? r : gone;
}

/* A box is left stopped, and one runs. */
static int scene_left(void)
{
    char one[16], two[16];
    int r = create(one, true, 0);

    r = r ? r : doing(act_stop, one);
    int s = create(two, false, 0);
    s = s ? s : command(two, false);
    return r ? r : s;
}

/* Deleted, stopped and killed while commands run. */
static int scene_running(void)
{
    char one[16], two[16];

    keeper.endless = true;
    int r = create(one, false, 0);
    r = r ? r : command(one, false);
    r = r ? r : command(one, false);
    r = r ? r : kill_all(one);
    r = r ? r : command(one, false);
    int gone = doing(act_delete, one);
    int s = create(two, true, 0);
    s = s ? s : command(two, false);
    s = s ? s : doing(act_stop, two);
    return r ? r : gone ? gone : s;
}

/* The first box of a template starts a family, the second is of it. */
static int scene_family(void)
{
    char one[16], two[16];
    int r = create(one, false, 1);

    settle();
    int s = create(two, false, 1);
    const struct box *b = find(two);
    if (!keeper.fault && s == 0)
        assert_true(b->family && family_can_fork(b));
    s = s ? s : command(two, true);
    int gone = doing(act_delete, one);
    int s_gone = doing(act_delete, two);
    return r ? r : s ? s : gone ? gone : s_gone;
}

static int scene_pool(void)
{
    char id[16];

    settle();
    int r = create(id, false, 0);
    r = r ? r : command(id, false);
    int gone = doing(act_delete, id);
    return r ? r : gone;
}

static int scene_refused(void)
{
    char id[16];

    keeper.is_full = true;
    int r = create(id, true, 0);
    keeper.is_full = false;
    return r == ENOSPC ? 0 : r ? r : EEXIST;
}

/* ---- of one mind ---- */

static void check_execs(struct box *b, const struct fake_box *theirs)
{
    unsigned running = 0;
    uint64_t used = 0;

    for (const struct exec *x = b->execs; x; x = x->next) {
        running += x->state != EXEC_ENDED;
        if (x->state == EXEC_ENDED)
            continue;
        assert_int_equal(x->state, EXEC_RUNNING);
        assert_true(theirs && x->slot < FAKE_PAYLOADS && theirs->payload[x->slot].there);
        assert_int_equal(theirs->payload[x->slot].token, x->number);
    }
    assert_int_equal(b->running, running);
    for (unsigned i = 0; theirs && i < FAKE_PAYLOADS; i++) {
        if (theirs->payload[i].there)
            used |= UINT64_C(1) << i;
        assert_int_equal(theirs->payload[i].end.type, 0);   /* what has ended was forgotten */
    }
    assert_int_equal(b->slots_used, used);
    assert_int_equal(b->slots_foreign, 0);
}

static void check(void)
{
    unsigned claimed = 0, used = 0;

    for (struct box *b = front.boxes.first; b; b = b->next) {
        struct fake_box *theirs = fake_box_by_token(&keeper, b->token ? b->token : b->number);
        bool runs = b->phase == PHASE_RUNNING || b->phase == PHASE_PAUSED;
        assert_true(runs || b->phase == PHASE_STOPPED || b->phase == PHASE_FAILED || b->phase == PHASE_DELETED);
        assert_int_equal(runs, theirs != NULL);
        assert_null(b->waiters);
        check_execs(b, theirs);
        if (!runs)
            continue;
        claimed++;
        assert_int_equal(b->slot, theirs->slot);
        assert_ptr_equal(box_by_slot(&front, b->slot), b);
        assert_int_equal(b->phase == PHASE_PAUSED, theirs->frozen);
    }
    assert_int_equal(fake_count_boxes(&keeper), claimed + front.config.pool_size);
    for (unsigned i = 0; i < KEEPER_BOXES; i++)
        used += (unsigned)(front.boxes.slot_used[i / 64] >> i % 64 & 1);
    if (used != fake_count_boxes(&keeper))
        fail_msg("%u slots are taken, and the keeper has %u boxes", used, fake_count_boxes(&keeper));
    for (int i = 0; i < FAKE_STORES; i++) {
        const struct box *b = front.boxes.first;
        while (b && b->number != keeper.store[i])
            b = b->next;
        if (keeper.store[i])
            assert_true(b && b->settings.on_disk && b->phase != PHASE_DELETED && b->phase != PHASE_FAILED);
    }
    for (unsigned i = 0; i < n_wishes; i++)
        assert_true(!wishes[i].is_asked || wishes[i].answers == 1 || wishes[i].is_gone ||
                    wishes[i].generation != generation);
}

/* Id and phase of every box, as the next front must find them. */
struct memory {
    char     id[IDS][16];
    enum phase phase[IDS];
    unsigned n;
};

static struct memory remember(void)
{
    struct memory m = { 0 };

    for (const struct box *b = front.boxes.first; b && m.n < IDS; b = b->next) {
        snprintf(m.id[m.n], sizeof m.id[0], "%s", b->id);
        m.phase[m.n++] = b->phase;
    }
    return m;
}

static unsigned count_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    unsigned n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

struct scene {
    const char *name;
    int       (*play)(void);
};

static int clear_state(void)
{
    snprintf(state_path, sizeof state_path, "/tmp/carrel-test-XXXXXX");
    return mkdtemp(state_path) ? 0 : -1;
}

/* Plays it with this fault; gives the number of frames. */
static unsigned play(const struct scene *scene, enum fault_kind fault, unsigned at)
{
    unsigned descriptors = count_descriptors();

    playing = scene->name;
    n_wishes = 0;
    assert_int_equal(clear_state(), 0);
    fake_open(&keeper);
    keeper.fault = fault;
    keeper.fault_at = at;
    open_front();
    int r = scene->play();
    if (fault == FAULT_NONE)
        assert_int_equal(r, 0);
    settle();
    check();
    unsigned frames = keeper.frames;
    struct memory before = remember();
    close_front();
    open_front();
    settle();
    check();
    struct memory after = remember();
    assert_int_equal(before.n, after.n);
    for (unsigned i = 0; i < before.n; i++) {
        const struct box *b = boxes_find(&front, NULL, before.id[i]);
        assert_non_null(b);
        assert_int_equal(b->phase, before.phase[i]);
    }
    close_front();
    fake_close(&keeper);
    assert_int_equal(count_descriptors(), descriptors);
    assert_int_equal(nftw(state_path, scratch_remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
    return frames;
}

static const struct scene scenes[] = {
    { "memory", scene_memory }, { "disk", scene_disk },     { "left", scene_left },       { "running", scene_running },
    { "family", scene_family }, { "pool", scene_pool },     { "refused", scene_refused },
};

static void all_goes_well(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(scenes); i++)
        assert_true(play(&scenes[i], FAULT_NONE, 0) > 2);
}

static void strike_everywhere(enum fault_kind fault)
{
    for (size_t i = 0; i < COUNT(scenes); i++) {
        unsigned frames = play(&scenes[i], FAULT_NONE, 0);
        for (unsigned at = 1; at <= frames; at++) {
            print_message("front: %s, fault %d at frame %u of %u\n", scenes[i].name, fault, at, frames);
            play(&scenes[i], fault, at);
        }
    }
}

static void the_keeper_dies_at_every_frame(void **state)
{
    (void)state;
    strike_everywhere(FAULT_KEEPER_DIES);
}

static void the_connection_breaks_at_every_frame(void **state)
{
    (void)state;
    strike_everywhere(FAULT_LINK_BREAKS);
}

static void the_client_goes_at_every_frame(void **state)
{
    (void)state;
    strike_everywhere(FAULT_CLIENT_GOES);
}

static void the_front_dies_at_every_frame(void **state)
{
    (void)state;
    strike_everywhere(FAULT_FRONT_DIES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_goes_well),
        cmocka_unit_test(the_keeper_dies_at_every_frame),
        cmocka_unit_test(the_connection_breaks_at_every_frame),
        cmocka_unit_test(the_client_goes_at_every_frame),
        cmocka_unit_test(the_front_dies_at_every_frame),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("machines", tests, NULL, NULL);
}
