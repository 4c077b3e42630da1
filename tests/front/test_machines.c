/* Boxes, commands, families and the pool of a real front, over a keeper that is a table (fake_keeper.h). How scenes are
 * played, and what must be true afterwards, is in play.h: the keeper dies, the connection breaks, the client goes or
 * the front itself dies instead of every frame. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "front/boxes/demand.h"
#include "front/boxes/families.h"
#include "front/boxes/headroom.h"
#include "front/clock.h"
#include "front/play.h"
#include "front/stage.h"
#include "proto/create.h"
#include "unit/unit.h"

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

/* Gives boxes back while the host's memory is short, and makes them again afterwards. */
static void be_short_of_memory(unsigned parked, unsigned blank)
{
    static const char text[] = "MemTotal: 1000 kB\nMemAvailable: 10 kB\n";
    int memory = memfd_create("meminfo", MFD_CLOEXEC);

    assert_int_equal(write(memory, text, sizeof text - 1), (ssize_t)sizeof text - 1);
    front.headroom = headroom_new(memory, -1);
    clock_wind(2000);
    settle();
    assert_int_equal(fake_count_flagged(&keeper, CREATE_AHEAD), parked);
    assert_int_equal(fake_count_flagged(&keeper, CREATE_BLANK), 0);
    headroom_free(front.headroom);
    front.headroom = NULL;
    clock_wind(2000);
    settle();
    assert_int_equal(fake_count_flagged(&keeper, CREATE_AHEAD), parked + blank);
}

/* The second burst finds a parked box and, for what the first one went beyond it, blank ones. They are forgotten with
 * time. */
static int scene_ahead(void)
{
    enum { N = 3 };
    char first[16], id[2][N][16];
    int r = create(first, false, 1);

    settle();
    for (unsigned i = 0; i < 2; i++) {
        int s = create_together(id[i], N, 1);
        settle();
        for (unsigned k = 0; k < N; k++) {
            const struct box *b = find(id[i][k]);
            if (!keeper.fault && i == 1)
                assert_true(b && b->token && family_can_fork(b));
            s = s ? s : command(id[i][k], true);
            int gone = doing(act_delete, id[i][k]);
            s = s ? s : gone;
        }
        settle();
        if (!keeper.fault)
            assert_int_equal(fake_count_flagged(&keeper, CREATE_BLANK | CREATE_AHEAD), N - 1);
        r = r ? r : s;
    }
    if (!keeper.fault)
        be_short_of_memory(1, N - 1);
    for (unsigned i = 0; i < 3; i++) {
        clock_wind(DEMAND_HALF_MS);
        settle();
    }
    assert_int_equal(fake_count_flagged(&keeper, CREATE_BLANK), 0);
    int gone = doing(act_delete, first);
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

/* The keeper tells of a command that the front does not know. */
static int scene_stranger(void)
{
    char id[16];
    int r = create(id, false, 0);
    const struct box *b = r ? NULL : find(id);
    struct fake_box *theirs = b ? fake_box_by_token(&keeper, b->number) : NULL;

    if (theirs)
        theirs->payload[FAKE_PAYLOADS - 1] = (struct fake_payload){ .there = true, .token = 1 << 20, .out = -1 };
    fake_disconnect(&keeper);
    settle();
    return r ? r : command(id, false);
}

static const struct scene scenes[] = {
    { "memory", scene_memory }, { "disk", scene_disk }, { "left", scene_left },       { "running", scene_running },
    { "family", scene_family }, { "pool", scene_pool }, { "ahead", scene_ahead },     { "refused", scene_refused },
    { "stranger", scene_stranger },
};

static void all_goes_well(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(scenes); i++)
        assert_true(play(&scenes[i], FAULT_NONE, 0) > 2);
}

FAULT_TEST(the_keeper_dies_at_every_frame, FAULT_KEEPER_DIES)
FAULT_TEST(the_connection_breaks_at_every_frame, FAULT_LINK_BREAKS)
FAULT_TEST(the_client_goes_at_every_frame, FAULT_CLIENT_GOES)
FAULT_TEST(the_front_dies_at_every_frame, FAULT_FRONT_DIES)

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
