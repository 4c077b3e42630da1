/* The log of a command that keeps beginning and end: what is kept, what is counted, and that a front that is killed at
 * any write loses and doubles nothing. The command is a function from positions to bytes; what is not in the log yet is
 * still in its pipe. */
#include <errno.h>
#include <setjmp.h>

#include "front/execs/exec_log.h"
#include "front/scratch.h"

enum { KIB = 1 << 10, MIB = 1 << 20, FRAME = 48 * KIB };

ssize_t __real_pwrite(int fd, const void *data, size_t size, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t size, off_t at);
int     __real_ftruncate(int fd, off_t size);
int     __wrap_ftruncate(int fd, off_t size);

/* The writer dies at this step, and before that does half of it, if it may; 0: it lives. */
static struct {
    unsigned at, n;
    bool     halfway;
    jmp_buf  here;
} death;

static bool is_last_step(void)
{
    return death.at && ++death.n == death.at;
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t size, off_t at)
{
    if (is_last_step()) {
        /* One that the kernel does as a whole: it lies in one page. */
        if (death.halfway && size != sizeof(struct exec_gap))
            (void)!__real_pwrite(fd, data, size / 2, at);
        longjmp(death.here, 1);
    }
    return __real_pwrite(fd, data, size, at);
}

int __wrap_ftruncate(int fd, off_t size)
{
    if (is_last_step())
        longjmp(death.here, 1);
    return __real_ftruncate(fd, size);
}

static char byte_at(unsigned stream, uint64_t position)
{
    uint64_t mixed = (position + 1) * 0x9e3779b97f4a7c15 + stream;

    return (char)(mixed >> 40);
}

struct writer {
    struct exec_log log;
    uint64_t        bound, target[2];   /* so much goes to stdout and stderr */
    uint32_t        frame;
    unsigned        n_frames;
};

static struct writer writer;            /* not touched by a longjmp */

static void pay(struct exec_log *l)
{
    static char data[FRAME];
    unsigned stream = l->owed_stream - 1u;

    while (l->owed > 0) {
        size_t n = l->owed < sizeof data ? l->owed : sizeof data;
        for (size_t i = 0; i < n; i++)
            data[i] = byte_at(stream, l->bytes[stream] + i);
        assert_int_equal(pwrite(l->fd, data, n, (off_t)l->at), n);
        exec_log_paid(l, n);
    }
}

/* One frame, of no more than most bytes. False: all was written, or a reader holds it. */
static bool write_frame(struct writer *w, uint64_t needed)
{
    struct exec_log *l = &w->log;

    if (l->owed > 0) {
        pay(l);
        return true;
    }
    unsigned stream = w->n_frames++ % 3 == 2;
    if (l->bytes[stream] == w->target[stream])
        stream = !stream;
    uint64_t left = w->target[stream] - l->bytes[stream];
    if (left == 0 || exec_log_room(l, needed) < 0)
        return false;
    uint64_t size = left < w->frame ? left : w->frame, room = exec_log_room_bytes(l);
    size = size < room ? size : room;
    assert_true(size > 0);
    assert_int_equal(exec_log_begin(l, (uint8_t)(stream + 1), (uint32_t)size, 1), 0);
    pay(l);
    return true;
}

static void begin(struct writer *w, int dir, uint64_t bound, uint32_t frame, uint64_t out, uint64_t err)
{
    *w = (struct writer){ .bound = bound, .target = { out, err }, .frame = frame };
    exec_log_init(&w->log, dir, "x");
    exec_log_unlink(&w->log);
    w->log.bound = bound;
}

static void begin_again(struct writer *w, int dir)
{
    exec_log_close(&w->log);
    exec_log_init(&w->log, dir, "x");
    w->log.bound = w->bound;
    exec_log_open(&w->log);
}

/* Reads all from the start and compares; what is missing is where the log says it is. Returns bytes that were read. */
static uint64_t read_all(const struct exec_log *l, struct exec_reader *r)
{
    static char data[FRAME];
    struct exec_frame frame;
    uint64_t n_read = 0;
    ssize_t n;

    while (true) {
        uint64_t before[2] = { r->seen[0], r->seen[1] };
        bool is_counted = r->is_counted;
        if ((n = exec_log_read(l, r, &frame, data, sizeof data)) == 0)
            return n_read;
        assert_true(n > 0);
        for (int i = 0; frame.stream == EXEC_GAP && is_counted && i < 2; i++)
            assert_int_equal(r->seen[i], before[i] + r->missed[i]);
        if (frame.stream == EXEC_GAP)
            continue;
        unsigned stream = frame.stream - 1u;
        for (ssize_t i = 0; i < n; i++)
            assert_int_equal(data[i], byte_at(stream, before[stream] + (uint64_t)i));
        n_read += (uint64_t)n;
    }
}

/* Everything that was written is in the head, in the tail or counted. */
static void assert_whole(struct writer *w)
{
    struct exec_reader r;
    uint64_t total = w->target[0] + w->target[1], kept;

    exec_log_finish(&w->log, UINT64_MAX);
    exec_reader_init(&r, 0);
    kept = read_all(&w->log, &r);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w->log.bytes[i], w->target[i]);
        assert_int_equal(r.seen[i], w->target[i]);
    }
    assert_int_equal(kept + w->log.gap.dropped[0] + w->log.gap.dropped[1], total);
    assert_true(kept <= (w->bound ? w->bound : total));
    assert_true(kept + 32 >= (w->bound && w->bound < total ? w->bound : total));
}

static int open_dir(void **state)
{
    int dir = open(((struct scratch *)*state)->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_true(dir >= 0);
    return dir;
}

static void test_output_within_the_bound_is_kept_whole(void **state)
{
    FD dir = open_dir(state);

    begin(&writer, dir, 300000, 1000, 200000, 100000);
    while (write_frame(&writer, UINT64_MAX))
        ;
    assert_whole(&writer);
    assert_int_equal(writer.log.gap.dropped[0] + writer.log.gap.dropped[1], 0);
    exec_log_close(&writer.log);
}

static void test_first_and_last_half_of_the_bound_are_kept(void **state)
{
    FD dir = open_dir(state);

    begin(&writer, dir, 300000, 4000, 9 * MIB, 0);
    while (write_frame(&writer, UINT64_MAX))
        ;
    assert_whole(&writer);
    assert_int_equal(writer.log.head_bytes[0], 150000);
    assert_int_equal(writer.log.gap.dropped[0], 9 * MIB - 300000);
    begin_again(&writer, dir);
    assert_whole(&writer);
    assert_int_equal(writer.log.gap.dropped[0], 9 * MIB - 300000);
    exec_log_close(&writer.log);
}

static void test_file_stays_small_whatever_is_written(void **state)
{
    static const struct { uint64_t bound; uint32_t frame; uint64_t bytes; } table[] = {
        { 1024, FRAME, 8 * MIB }, { 1024, 1, 300000 }, { 4 * MIB, 7, 2 * MIB }, { 4 * MIB, FRAME, 40 * MIB },
    };
    FD dir = open_dir(state);

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        uint64_t most = 0, tail = table[i].bound / 2, slack = tail > MIB ? tail : MIB;
        begin(&writer, dir, table[i].bound, table[i].frame, table[i].bytes, 1000);
        while (write_frame(&writer, UINT64_MAX))
            most = writer.log.at > most ? writer.log.at : most;
        assert_in_range(most, 1, 2 * (table[i].bound + 2 * slack) + 2 * FRAME);
        exec_log_close(&writer.log);
    }
}

/* Whether there was such a step. */
static bool dies_at(int dir, unsigned step, bool halfway)
{
    begin(&writer, dir, 200000, FRAME, 4 * MIB, MIB);
    death.n = 0;
    death.halfway = halfway;
    death.at = step;
    bool died = setjmp(death.here) != 0;
    if (died) {
        death.at = 0;
        begin_again(&writer, dir);
    }
    while (write_frame(&writer, UINT64_MAX))
        ;
    bool was_there = died;
    death.at = 0;
    assert_whole(&writer);
    exec_log_close(&writer.log);
    return was_there;
}

static void test_front_that_is_killed_at_any_write_loses_and_doubles_nothing(void **state)
{
    FD dir = open_dir(state);

    for (int halfway = 0; halfway < 2; halfway++) {
        unsigned step = 1;
        while (dies_at(dir, step, halfway))
            step++;
        assert_true(step > 150);
    }
}

static void test_nothing_is_dropped_that_a_reader_needs(void **state)
{
    FD dir = open_dir(state);
    struct exec_reader r;
    uint64_t n_read = 0;
    unsigned held = 0;

    begin(&writer, dir, 200000, FRAME, 20 * MIB, MIB);
    exec_reader_init(&r, 0);
    while (writer.log.bytes[0] + writer.log.bytes[1] < 21 * MIB) {
        if (write_frame(&writer, r.at))
            continue;
        assert_int_equal(exec_log_room(&writer.log, r.at), -EAGAIN);
        held++;
        n_read += read_all(&writer.log, &r);
    }
    n_read += read_all(&writer.log, &r);
    assert_int_equal(n_read, 21 * MIB);
    assert_true(held > 5);
    exec_log_close(&writer.log);
}

static void test_reader_that_was_left_behind_learns_how_much_it_missed(void **state)
{
    FD dir = open_dir(state);
    struct exec_reader r;
    struct exec_frame frame;
    static char data[1000];

    begin(&writer, dir, 200000, FRAME, 8 * MIB, 0);
    exec_reader_init(&r, 0);
    for (int i = 0; i < 10; i++)
        assert_true(write_frame(&writer, UINT64_MAX));
    uint64_t n_read = read_all(&writer.log, &r);
    assert_true(write_frame(&writer, UINT64_MAX));
    assert_int_equal(exec_log_read(&writer.log, &r, &frame, data, sizeof data), sizeof data);
    assert_true(r.part == sizeof data);
    while (write_frame(&writer, UINT64_MAX))
        ;
    exec_log_finish(&writer.log, UINT64_MAX);
    assert_int_equal(exec_log_read(&writer.log, &r, &frame, data, sizeof data), 1);
    assert_int_equal(frame.stream, EXEC_GAP);
    assert_int_equal(r.missed[0], 8 * MIB - 100000 - n_read - sizeof data);
    assert_int_equal(read_all(&writer.log, &r), 100000);
    exec_log_close(&writer.log);
}

static void test_offsets_stay_good_while_the_tail_moves(void **state)
{
    FD dir = open_dir(state);
    struct exec_reader r, again;

    begin(&writer, dir, 200000, 1000, 3 * MIB, 0);
    exec_reader_init(&r, 0);
    while (write_frame(&writer, UINT64_MAX)) {
        (void)read_all(&writer.log, &r);
        assert_true(exec_log_has(&writer.log, r.at));
        assert_int_equal(r.at, exec_log_offset(&writer.log));
    }
    assert_int_equal(r.seen[0], 3 * MIB);
    assert_false(exec_log_has(&writer.log, r.at + 1));
    assert_false(exec_log_has(&writer.log, r.at - 1));
    /* One that was dropped leads to the gap. */
    exec_reader_init(&again, writer.log.head_end + 500);
    assert_true(exec_log_has(&writer.log, again.at));
    (void)read_all(&writer.log, &again);
    assert_int_equal(again.at, r.at);
    assert_in_range(again.missed[0], 1, writer.log.gap.dropped[0]);
    exec_log_close(&writer.log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_output_within_the_bound_is_kept_whole, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_first_and_last_half_of_the_bound_are_kept, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_file_stays_small_whatever_is_written, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_front_that_is_killed_at_any_write_loses_and_doubles_nothing, scratch_make,
                                        scratch_remove),
        cmocka_unit_test_setup_teardown(test_nothing_is_dropped_that_a_reader_needs, scratch_make, scratch_remove),
        cmocka_unit_test_setup_teardown(test_reader_that_was_left_behind_learns_how_much_it_missed, scratch_make,
                                        scratch_remove),
        cmocka_unit_test_setup_teardown(test_offsets_stay_good_while_the_tail_moves, scratch_make, scratch_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
