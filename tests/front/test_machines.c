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

#include "front/boxes/families.h"
#include "front/scratch.h"
#include "front/stage.h"

enum { IDS = 8 };

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
