/* The keeper's operation table against a box layer that only pretends. Whatever a front sends and in whatever order
 * boxes and payloads end: the plan of a box stays inside the box, and at the end no box and no descriptor is left. */
#include "fuzz.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "box/procfile.h"
#include "keeper/families.h"
#include "keeper/keeper.c"
#undef STATE
#include "keeper/create.c"
#include "keeper/deadlines.c"
#include "keeper/egress.c"
#include "keeper/families.c"
#include "keeper/forks.c"
#include "keeper/later.c"
#include "keeper/layers.c"
#include "keeper/memory.c"
#include "keeper/mounts.c"
#include "keeper/network.c"
#include "keeper/ops.c"
#include "keeper/tell.c"
#include "keeper/trust.c"
#include "keeper/volumes.c"

static uint8_t whim;        /* of the pretended box layer, from the input */

static int new_fd(void)
{
    int fd = eventfd(0, EFD_CLOEXEC);
    HOLDS(fd >= 0);
    return fd;
}

int box_check_limits(const struct box_host *host, const struct limits *limits, struct err *e)
{
    (void)host;
    return limits->pids == 13 ? err_at(e, ENOTSUP, STEP_USAGE, 0, "pids") : 0;
}

struct walls_host box_host_walls(const struct box_host *host)
{
    (void)host;
    return (struct walls_host){ .can = whim };
}

uint64_t cgroup_memory_bound(const struct cgroup_host *host)
{
    (void)host;
    return (uint64_t)whim << 30;
}

int facts_read_root(struct host_facts *facts, const char *root, bool for_network, struct err *e)
{
    (void)facts;
    (void)root;
    (void)e;
    return 0;
}

void procfile_meminfo(uint64_t bytes, char *text, size_t size)
{
    (void)bytes;
    text[size - 1] = text[0] = 0;
}

void procfile_cpuinfo(unsigned cpus, char *text, size_t size)
{
    (void)cpus;
    text[size - 1] = text[0] = 0;
}

#include "pretend.h"

static void check_inside(const char *path)
{
    HOLDS(path && path[0] && path[0] != '/' && !strstr(path, "//"));
    for (const char *part = path; part; part = strchr(part, '/')) {
        part += *part == '/';
        HOLDS(strcmp(part, "..") && strncmp(part, "../", 3) && strcmp(part, ".") && strncmp(part, "./", 2));
    }
}

int box_create(struct box_host *host, const struct plan *plan, const struct start *start, bool freezer,
               struct engine_box *ret, struct err *e)
{
    (void)host;
    HOLDS(!start && freezer && memchr(plan->hostname, 0, 65));
    for (size_t i = 0; i < plan->n_entries; i++)
        check_inside(plan->entry[i].path);
    for (size_t i = 0; i < plan->n_mounts; i++) {
        check_inside(plan->mount[i].target);
        if (plan->mount[i].source == FROM_CALLER)
            HOLDS(fcntl(plan->mount[i].fd, F_GETFD) >= 0);
    }
    memset(ret, 0, sizeof *ret);
    ret->oom = ret->inlet = ret->door = ret->abandoned.pidfd = ret->midwife.pidfd = ret->birth = ret->root = -1;
    ret->has_network = plan->has_network;
    if (whim % 8 == 7)
        return err_at(e, EMFILE, STEP_CLONE, 0, "namespaces");
    ret->state = BOX_MAKING;
    ret->init.pidfd = new_fd();
    ret->link = new_fd();
    ret->first = (struct payload){ .process.pidfd = new_fd(), .link = new_fd(), .terminal = -1, .waiting = true };
    return 0;
}

#include "frames_family.h"
#include "frames_layers.h"
#include "frames_volumes.h"

void box_clear(struct engine_box *ret)
{
    *ret = (struct engine_box){ .init.pidfd = -1, .midwife.pidfd = -1, .birth = -1, .root = -1, .link = -1, .oom = -1,
                                .inlet = -1, .abandoned.pidfd = -1,
                                .first = { .process.pidfd = -1, .link = -1, .terminal = -1 } };
}

/* The envelope has a directory of any maker when the opener answers. */
int keeper_open_mounts(struct keeper *keeper, struct kept_box *box, const struct request_create *q, int *fds,
                       struct err *e)
{
    size_t n = frame_mount_flagged(&q->mounts, MOUNT_HAS_FD);

    HOLDS(n > 0 && q->mounts.n <= KEEPER_LIST && !box->waiting);
    for (size_t i = 0; i < n; i++)
        fds[i] = fd_close(fds[i]);
    if (whim % 16 == 9)
        return err_at(e, EPERM, STEP_TREE, 0, "envelope");
    struct kept_create *w = box->waiting = keeper_new_create(q);
    HOLDS(w);
    w->opener = &keeper->opener[box->slot];
    w->opener->process.pidfd = new_fd();
    w->deadline_us = whim % 16 == 11 ? 1 : UINT64_MAX;
    keeper_note_deadline(keeper, w->deadline_us);
    box->box.state = BOX_MAKING;
    return 0;
}

int keeper_take_mounts(struct keeper *keeper, struct kept_box *box, struct err *e)
{
    struct kept_create *w = box->waiting;

    HOLDS(w->opener == &keeper->opener[box->slot] && w->n_fds == 0);
    if (whim % 4 == 0)
        return 0;
    w->deadline_us = 0;
    if (whim % 4 == 1)
        return err_at(e, EPERM, STEP_TREE, 0, "envelope");
    for (; w->n_fds < frame_mount_flagged(&w->frame.mounts, MOUNT_HAS_FD); w->n_fds++)
        w->fds[w->n_fds] = new_fd();
    w->frame.owner_uid = w->frame.owner_gid = 7;
    return 1;
}

void keeper_free_opener(struct keeper *keeper, struct opener *opener)
{
    (void)keeper;
    opener->process.pidfd = fd_close(opener->process.pidfd);
}

void keeper_opener_ended(struct keeper *keeper, unsigned place)
{
    HOLDS(place < KEEPER_OPENERS && keeper);
}

int store_prepare(const struct stores *stores, int keeper, uint64_t number, uint64_t bytes, struct store_job *ret,
                  struct err *e)
{
    (void)stores;
    (void)keeper;
    HOLDS(number);
    if (bytes % 5 == 4)
        return err_at(e, ENOSPC, STEP_USAGE, 0, "disk");
    *ret = (struct store_job){ .process = { .pid = 1, .pidfd = new_fd() }, .link = new_fd(), .number = number };
    return 0;
}

int store_ready(const struct stores *stores, struct store_job *job, int *ret_tree, struct err *e)
{
    (void)stores;
    HOLDS(job->process.pidfd < 0);
    job->link = fd_close(job->link);
    if (whim % 4 == 1)
        return err_at(e, EIO, STEP_HOST, 0, "mkfs.ext4");
    *ret_tree = new_fd();
    return 0;
}

int store_remove(const struct stores *stores, uint64_t number, struct err *e)
{
    (void)stores;
    return number == 13 ? err_at(e, EIO, STEP_HOST, 0, "store") : 0;
}

void stores_each(const struct stores *stores, void (*call)(uint64_t, uint64_t, void *), void *arg)
{
    (void)stores;
    call(1, 4096, arg);
}

int box_ready(struct engine_box *box, bool block, struct err *e)
{
    HOLDS(!block && box->birth < 0);
    if (whim % 4 == 0)
        return 0;
    if (whim % 4 == 1)
        return err_at(e, ECHILD, STEP_CLONE, 0, "init ended");
    box->link = fd_close(box->link);
    box->state = BOX_READY;
    if (box->family)
        box->first.process = (struct process){ .pid = 4, .pidfd = new_fd() };
    return 1;
}

int box_start_payload(struct engine_box *box, const struct start *start, struct payload *ret, struct err *e)
{
    HOLDS(box->state == BOX_READY && fcntl(start->packed, F_GETFD) >= 0);
    for (int i = 0; i < 3; i++)
        HOLDS(start->stdio[i] == -1 || fcntl(start->stdio[i], F_GETFD) >= 0);
    if (whim % 8 == 7)
        return err_at(e, EAGAIN, STEP_CLONE, 0, "payload");
    if (box->first.waiting && !start->fresh && !start->other_user) {
        payload_done(&box->first);
        box->first.waiting = false;
    }
    *ret = (struct payload){ .process = { .pid = 1, .pidfd = new_fd() }, .link = new_fd(), .terminal = -1 };
    return 0;
}

int box_help(struct engine_box *box, int socket, void (*serve)(int), struct payload *ret, struct err *e)
{
    HOLDS(box->state == BOX_READY && serve && fcntl(socket, F_GETFD) >= 0);
    return box_start_payload(box, &(struct start){ .packed = socket, .stdio = { -1, -1, -1 } }, ret, e);
}

int box_socket(const struct engine_box *box, int family, int type, struct err *e)
{
    HOLDS(box->state == BOX_READY);
    int fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_at(e, errno, STEP_NETWORK, 0, "socket");
    /* No real port may be touched: bound to an address that is not the loopback's, it can connect nowhere. */
    close(fd);
    return err_at(e, ECONNREFUSED, STEP_NETWORK, 0, "socket");
}

int box_freeze(struct engine_box *box, uint64_t wait_us, struct err *e)
{
    (void)wait_us;
    HOLDS(box->state == BOX_READY);
    if (whim % 8 == 7)
        return err_at(e, EIO, STEP_CGROUP, 0, "freezing");
    if (whim % 4 == 2)
        return 0;
    box->state = BOX_FROZEN;
    return 1;
}

int box_thaw(struct engine_box *box, struct err *e)
{
    HOLDS(box->state == BOX_FROZEN || box->state == BOX_READY);
    if (whim % 8 == 7)
        return err_at(e, EIO, STEP_CGROUP, 0, "thawing");
    box->state = BOX_READY;
    return 0;
}

int box_update_limits(struct box_host *host, struct engine_box *box, const struct limits *limits, struct err *e)
{
    (void)host;
    HOLDS(box->state == BOX_READY || box->state == BOX_FROZEN);
    return limits->disk_bytes ? err_at(e, ENOTSUP, STEP_USAGE, 0, "disk") : 0;
}

void cgroup_kill_members(const struct cgroup *leaf)
{
    (void)leaf;
}

bool cgroup_is_empty(const struct cgroup *leaf)
{
    (void)leaf;
    return whim & 1;
}

bool cgroup_kills_together(const struct cgroup *leaf)
{
    (void)leaf;
    return whim & 2;
}

void cgroup_refusals_read(const struct cgroup *leaf, uint64_t *ret_oom_kills, uint64_t *ret_pids_refused)
{
    (void)leaf;
    *ret_oom_kills = whim % 4;
    *ret_pids_refused = 0;
}

void box_reap_init(struct engine_box *box, struct process_end *ret)
{
    (void)!process_reap(&box->init, 1, ret);
}

int box_open_inlet(struct engine_box *box, uint16_t port, struct err *e)
{
    HOLDS(box->state == BOX_READY && port == KEEPER_INLET_PORT);
    if (whim % 8 == 7)
        return err_at(e, EADDRINUSE, STEP_NETWORK, 0, "inlet");
    if (box->inlet < 0)
        box->inlet = new_fd();
    return 0;
}

void box_usage_read(const struct engine_box *box, struct box_usage *ret)
{
    (void)box;
    *ret = (struct box_usage){ .disk_full = whim & 1 };
}

void box_peaks_read(const struct engine_box *box, struct box_usage *ret)
{
    box_usage_read(box, ret);
}

bool cgroup_cpu_read(const struct cgroup *leaf, uint64_t *ret_us)
{
    (void)leaf;
    *ret_us = 0;
    return true;
}

void cgroup_open_meter(const struct cgroup *leaf, int *ret_cpu, bool *ret_is_ns, int *ret_peak)
{
    (void)leaf;
    *ret_is_ns = whim & 2;
    *ret_cpu = whim & 1 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
    *ret_peak = whim & 4 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
}

enum outcome box_outcome(const struct process_end *end, enum outcome cause, const struct box_usage *usage)
{
    (void)end;
    (void)usage;
    return cause;
}

int payload_started(struct payload *payload, struct err *e)
{
    if (whim % 4 == 0)
        return 0;
    payload->link = fd_close(payload->link);
    if (whim % 4 == 1)
        return err_at(e, ENOENT, STEP_EXEC, 0, "program");
    if (whim % 4 == 2 && payload->terminal < 0)
        payload->terminal = new_fd();
    return 1;
}

int process_reap(struct process *process, int block, struct process_end *ret)
{
    HOLDS(process->pidfd >= 0);
    *ret = (struct process_end){ .code = whim };
    if (!block && whim % 4 == 3)
        return 0;
    process->pidfd = fd_close(process->pidfd);
    return 1;
}

int payload_reap(struct payload *payload, struct process_end *ret)
{
    return process_reap(&payload->process, 0, ret);
}

void payload_done(struct payload *payload)
{
    payload->link = fd_close(payload->link);
    payload->terminal = fd_close(payload->terminal);
    payload->process.pidfd = fd_close(payload->process.pidfd);
}

int process_signal(const struct process *process, int signal)
{
    HOLDS(process->pidfd >= 0 && signal >= 1 && signal <= 64);
    return 0;
}

int process_signal_group(const struct process *process, int signal)
{
    return process_signal(process, signal);
}

void box_kill(struct engine_box *box)
{
    (void)box;
}

void box_release(struct box_host *host, struct engine_box *box)
{
    (void)host;
    HOLDS(box->init.pidfd < 0 && box->midwife.pidfd < 0 && box->birth < 0);
    payload_done(&box->first);
    box->link = fd_close(box->link);
    box->inlet = fd_close(box->inlet);
    box->state = BOX_DEAD;
}

void box_destroy(struct box_host *host, struct engine_box *box, struct process_end *ret_init)
{
    if (box->midwife.pidfd >= 0) {
        (void)!family_box_call_off(box, true);
        (void)!process_reap(&box->midwife, 1, ret_init);
    }
    if (box->init.pidfd >= 0)
        (void)!process_reap(&box->init, 1, ret_init);
    box_release(host, box);
}

static int open_fds(void)
{
    int n = 0;
    for (int fd = 0; fd < 512; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void drain_front(int other)
{
    static union event event;
    int fds[KEEPER_FDS];
    size_t n;

    while (link_receive_any(other, &event, sizeof event, fds, KEEPER_FDS, &n) > 0)
        for (size_t i = 0; i < n; i++)
            close(fds[i]);
}

/* A frame from the input: as it is, or as large as its type wants it, with few boxes so that they meet. */
static bool send_frame(struct keeper *keeper, const uint8_t *data, size_t size)
{
    static _Alignas(16) char frame[FRAME_MAX + 1];
    struct request_head *head = (struct request_head *)frame;
    int fds[KEEPER_FDS];
    size_t n_fds = data[0] % 9;

    memset(frame, 0, sizeof frame);
    memcpy(frame, data + 2, size - 2);
    size_t given = size -= 2;
    if (data[1] & 1) {
        head->type = (uint16_t)(head->type % REQUEST_COUNT);
        head->box %= 6;
        head->payload %= 3;
        head->serial |= 1;
        size = ops[head->type].size;
        if (head->type == REQUEST_CREATE) {
            struct request_create *q = (struct request_create *)frame;
            q->mounts.n %= 6;
            n_fds = 0;
            for (uint32_t i = 0; i < q->mounts.n; i++) {
                q->mounts.at[i].kind = data[2 + (i * 7) % given] % (MOUNT_KINDS + 1);
                q->mounts.at[i].number = data[2 + (i * 11) % given] % 4;
                n_fds += q->mounts.at[i].kind == MOUNT_HOST;
            }
            q->profile %= 4;
            q->family = data[1] / 2 % 4u;       /* beyond what the input reaches */
            q->uid %= 65536;
            q->gid %= 65536;
            memcpy(q->hostname, "box", 4);
            for (uint32_t i = 0; i < q->mounts.n; i++) {
                q->mounts.at[i].target[0] = '/';
                memcpy(q->mounts.at[i].target + 1, data + 2, given < 24 ? given : 24);
                if (q->mounts.at[i].kind == MOUNT_DEVICE && given % 2)
                    memcpy(q->mounts.at[i].target, "a.b/c=d", 8);
                name_layer(&q->mounts.at[i], given);
            }
        } else if (head->type == REQUEST_FAMILY) {
            struct request_family *q = (struct request_family *)frame;
            q->slot %= 6;
            q->profile %= 4;
            q->mounts.n %= 3;
            for (uint32_t i = 0; i < q->mounts.n; i++) {
                q->mounts.at[i].kind = data[2 + (i * 7) % given] % (MOUNT_KINDS + 1);
                q->mounts.at[i].number = data[2 + (i * 11) % given] % 4;
                name_layer(&q->mounts.at[i], given);
            }
            n_fds = 1 + !!q->has_stderr;
        } else if (head->type == REQUEST_LAYER) {
            struct request_layer *q = (struct request_layer *)frame;
            q->template %= 3;
            if (given % 2)
                memcpy(q->owner, "uid-1", 6);
            n_fds = 2;
        } else if (head->type == REQUEST_VOLUME) {
            ((struct request_volume *)frame)->volume %= 4;
            ((struct request_volume *)frame)->operation %= VOLUME_OP_COUNT + 1;
            n_fds = 0;
        } else if (head->type == REQUEST_FAMILY_END) {
            ((struct request_family_end *)frame)->slot %= 6;
        } else if (head->type == REQUEST_START) {
            struct request_start *q = (struct request_start *)frame;
            q->way %= 3;
            q->user %= 2;
            q->group = 0;
            n_fds = 1 + (size_t)(!!q->has_stdio[0] + !!q->has_stdio[1] + !!q->has_stdio[2]) + (q->n_held %= 3);
        }
    }
    for (size_t i = 0; i < n_fds; i++)
        fds[i] = new_fd();
    bool legal = keeper_request(keeper, frame, size, fds, n_fds);
    for (size_t i = 0; i < n_fds; i++)
        HOLDS(fds[i] == -1);
    return legal;
}

static void happen(struct keeper *keeper, uint8_t what, uint8_t slots)
{
    static const enum watch_kind kinds[] = { WATCH_INIT, WATCH_BOX_LINK, WATCH_PAYLOAD_LINK, WATCH_PAYLOAD_END,
                                        WATCH_STORE, WATCH_FAMILY, WATCH_FIRST_END, WATCH_MOUNTS, WATCH_BIRTH,
                                        WATCH_EGRESS, WATCH_EGRESS_JOB, WATCH_VOLUME };
    uint32_t box = slots % 6u;
    enum watch_kind kind = kinds[what % 12];

    if (kind == WATCH_FIRST_END && (!keeper->box[box] || keeper->box[box]->box.first.process.pidfd < 0))
        return;
    if (kind == WATCH_INIT && (!keeper->box[box] || keeper->box[box]->box.init.pidfd < 0))
        return;
    if ((kind == WATCH_EGRESS && keeper->egress.link < 0) || (kind == WATCH_EGRESS_JOB && keeper->egress.job.link < 0))
        return;
    dispatch(keeper, key(kind, box, slots / 6u % 3u));
    (void)keeper_keep_families(keeper, keeper_keep_deadlines(keeper));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct keeper keeper;
    int pair[2], egress[2], before = open_fds();

    memset(&keeper, 0, sizeof keeper);
    keeper.n_templates = 1;
    keeper.volumes.are_folders = size % 2;
    HOLDS(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    keeper.front = pair[0];
    keeper.listener = keeper.signals = keeper.egress.job.link = -1;
    HOLDS(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, egress) == 0);
    keeper.egress.link = egress[0];
    keeper.egress.path = "/nowhere/egress";
    keeper.epoll = epoll_create1(EPOLL_CLOEXEC);
    for (unsigned n = 0; size >= 20 && n < 60; n++) {
        size_t part = 20 + data[0] % 64u;
        part = part < size ? part : size;
        whim = data[1];
        if (data[2] % 3)
            happen(&keeper, data[3], data[4]);
        else
            (void)send_frame(&keeper, data + 3, part - 3);
        if (data[2] == 255)
            keeper_tell_all(&keeper);
        keeper_take_turns(&keeper);
        drain_front(pair[1]);
        drain_front(egress[1]);
        data += part;
        size -= part;
    }
    whim = 0;
    end_all(&keeper);
    HOLDS(keeper.n_boxes == 0 && keeper.n_dying == 0 && !keeper.families && !keeper.line && !keeper.volume_jobs);
    for (uint32_t i = 0; i < KEEPER_BOXES; i++)
        HOLDS(!keeper.box[i]);
    fd_close(keeper.front);
    close(keeper.epoll);
    close(pair[1]);
    close(egress[1]);
    HOLDS(open_fds() == before);
    return 0;
}
