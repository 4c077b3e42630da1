#define _GNU_SOURCE
#include "front/play.h"

#include <dirent.h>

#include "front/db/db.h"
#include "front/kernels/kernels.h"
#include "front/scratch.h"
#include "front/services/services.h"
#include "front/stage.h"

enum { IDS = 8 };

void (*check_more)(void);
bool guests_hurry;

/* Fronts come and go by the thousand, and what they free is looked at for long enough without the usual 256 MiB. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "quarantine_size_mb=16:malloc_context_size=12";
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
        assert_int_equal(theirs->payload[i].end.head.type, 0);   /* what has ended was forgotten */
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
    assert_int_equal(fake_count_boxes(&keeper), claimed + boxes_ahead());
    for (unsigned i = 0; i < KEEPER_BOXES; i++)
        used += (unsigned)(front.boxes.slot_used[i / 64] >> i % 64 & 1);
    if (used != fake_count_boxes(&keeper))
        fail_msg("%u slots are taken, and the keeper has %u boxes", used, fake_count_boxes(&keeper));
    for (int i = 0; i < FAKE_STORES; i++) {
        const struct box *b = front.boxes.first;
        while (b && b->number != keeper.store[i])
            b = b->next;
        if (!keeper.store[i])
            continue;
        assert_true(b && box_mounts_on_disk(&b->settings.mounts));
        assert_true(b->phase != PHASE_DELETED && b->phase != PHASE_FAILED);
    }
    for (unsigned i = 0; i < n_wishes; i++)
        assert_true(!wishes[i].is_asked || wishes[i].answers == 1 || wishes[i].is_gone ||
                    wishes[i].generation != generation);
    if (check_more)
        check_more();
}

/* Id and phase of every box, and the ids of kernels and services that live, as the next front must find them. */
struct memory {
    char     id[IDS][16], kernel[IDS][132], service[IDS][16];
    enum phase phase[IDS];
    unsigned n, n_kernels, n_services;
};

static struct memory remember(void)
{
    struct memory m = { 0 };

    for (const struct box *b = front.boxes.first; b && m.n < IDS; b = b->next) {
        snprintf(m.id[m.n], sizeof m.id[0], "%s", b->id);
        m.phase[m.n++] = b->phase;
    }
    for (const struct kernel *k = front.kernels; k && m.n_kernels < IDS; k = k->next)
        if (k->exec)
            snprintf(m.kernel[m.n_kernels++], sizeof m.kernel[0], "%s", k->id);
    for (const struct service *s = front.services; s && m.n_services < IDS; s = s->next)
        if (box_is_alive(s->box))
            snprintf(m.service[m.n_services++], sizeof m.service[0], "%s", s->id);
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

static int make_state(void)
{
    snprintf(state_path, sizeof state_path, "/dev/shm/carrel-test-XXXXXX");     /* or a disk would set the pace */
    if (mkdtemp(state_path))
        return 0;
    snprintf(state_path, sizeof state_path, "/tmp/carrel-test-XXXXXX");
    return mkdtemp(state_path) ? 0 : -1;
}

/* The next front finds what this one has. */
static void check_next_front(void)
{
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
    assert_int_equal(before.n_kernels, after.n_kernels);
    for (unsigned i = 0; i < before.n_kernels; i++)
        assert_non_null(kernel_find(&front, NULL, before.kernel[i]));
    assert_int_equal(before.n_services, after.n_services);
    for (unsigned i = 0; i < before.n_services; i++)
        assert_non_null(service_by_id(&front, before.service[i]));
}

/* An empty database is made once, and then copied. */
static void make_database(void)
{
    static char blank[1 << 20];
    static size_t size;
    char path[96];
    struct db *db;
    struct err e = { 0 };

    snprintf(path, sizeof path, "%s/state.db", state_path);
    if (!size) {
        assert_int_equal(db_open(state_path, &db, &e), 0);
        db_close(db);
    }
    FD fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    if (size) {
        assert_int_equal(fd_write_all(fd, blank, size), 0);
        return;
    }
    ssize_t n = read(fd, blank, sizeof blank);
    assert_true(n > 0 && n < (ssize_t)sizeof blank);
    size = (size_t)n;
}

unsigned play(const struct scene *scene, enum fault_kind fault, unsigned at)
{
    unsigned descriptors = count_descriptors();

    playing = scene->name;
    n_wishes = 0;
    assert_int_equal(make_state(), 0);
    make_database();
    fake_open(&keeper);
    keeper.fault = fault;
    keeper.fault_at = at;
    keeper.guests_first = guests_hurry;
    open_front();
    int r = scene->play();
    if (fault == FAULT_NONE)
        assert_int_equal(r, 0);
    settle();
    check();
    unsigned frames = keeper.frames;
    if (fault == FAULT_NONE || front.boxes.alive)
        check_next_front();
    close_front();
    fake_close(&keeper);
    assert_int_equal(count_descriptors(), descriptors);
    assert_int_equal(nftw(state_path, scratch_remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
    return frames;
}

static bool can_strike(enum fault_kind fault, enum frame_kind kind)
{
    return fault <= FAULT_GUESTS_DIE || kind == MESSAGE_SAID ||
           (fault != FAULT_MESSAGE_DOUBLED && kind == MESSAGE_HEARD);
}

/* FRONT_STRIDE=7: only each seventh fault is played, which is what `make check` has time for. */
static unsigned long stride(void)
{
    const char *text = getenv("FRONT_STRIDE");
    unsigned long n = text ? strtoul(text, NULL, 10) : 1;
    return n ? n : 1;
}

void strike_everywhere(const struct scene *scenes, size_t n, enum fault_kind fault)
{
    unsigned long count = 0;

    for (size_t i = 0; i < n; i++) {
        unsigned frames = play(&scenes[i], FAULT_NONE, 0);
        enum frame_kind kind[FAKE_FRAMES];
        memcpy(kind, keeper.kind, sizeof kind);
        for (unsigned at = 1; at <= frames; at++) {
            if (!can_strike(fault, kind[at]) || count++ % stride() != 0)
                continue;
            print_message("front: %s, fault %d at frame %u of %u\n", scenes[i].name, fault, at, frames);
            play(&scenes[i], fault, at);
        }
    }
}
