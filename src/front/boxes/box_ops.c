/* What can be asked of a box. Every question to the keeper is a struct box_call: it remembers who wants the answer, and
 * the box outlives it (dead boxes stay in memory until they are pruned, which waits for their calls). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/list.h"
#include "front/boxes/box_private.h"
#include "front/boxes/families.h"
#include "front/boxes/pool.h"
#include "front/db/db.h"
#include "front/front.h"
#include "front/keeper_link.h"
#include "front/net/net.h"

struct box_call {
    struct box_call  *next, **back;
    struct box   *box;
    box_callback *done;
    void        (*usage)(struct box *, const struct frame_usage *, const struct err *, void *);
    void         *arg;
    enum phase    phase;        /* to go to if it worked */
    bool          in_family;    /* a create: it was asked for with a family, which may have ended meanwhile */
    struct limits limits;
};

static struct box_call *call_new(struct box *b, box_callback *done, void *arg)
{
    struct box_call *c = calloc(1, sizeof *c);

    if (!c)
        abort();
    c->box = b;
    c->done = done;
    c->arg = arg;
    c->phase = PHASE_COUNT;
    LIST_ADD(b->front->boxes.calls, c);
    return c;
}

static void call_free(struct box_call *c)
{
    LIST_REMOVE(c);
    free(c);
}

void box_calls_cancel(struct front *front, void *arg)
{
    for (struct box_call *c = front->boxes.calls; c; c = c->next)
        if (c->arg == arg) {
            c->done = NULL;
            c->usage = NULL;
        }
}

void box_calls_free(struct front *front)
{
    for (struct box_call *c = front->boxes.calls, *next; c; c = next) {
        next = c->next;
        call_free(c);
    }
}

bool box_has_calls(const struct box *b)
{
    for (const struct box_call *c = b->front->boxes.calls; c; c = c->next)
        if (c->box == b)
            return true;
    return false;
}

static struct request_head head(const struct box *b, enum request_type type)
{
    return (struct request_head){ .type = (uint16_t)type, .box = b->slot };
}

static int check_phase(const struct box *b, unsigned phases, struct err *e)
{
    if (phases >> b->phase & 1)
        return 0;
    return err_set(e, EBUSY, STEP_USAGE, "the box is %s", phase_names[b->phase]);
}

#define IN(phase) (1u << (phase))

/* ---- create ---- */

/* Not the one that was free last: the keeper may not be done yet with a box that an earlier front gave up. */
uint32_t box_free_slot(const struct boxes *all)
{
    for (uint32_t k = 0; k < KEEPER_BOXES; k++) {
        uint32_t i = (all->next_slot + k) % KEEPER_BOXES;
        if (!(all->slot_used[i / 64] >> i % 64 & 1))
            return i;
    }
    return BOX_NO_SLOT;
}

/* What a box has or will have when the keeper has answered: changes that are under way count already, or many that are
 * asked for together would each find the quota free. */
static struct limits limits_to_come(const struct box *b)
{
    struct limits most = b->settings.limits;

    for (const struct box_call *c = b->front->boxes.calls; c; c = c->next)
        if (c->box == b) {
            most.memory_bytes = c->limits.memory_bytes > most.memory_bytes ? c->limits.memory_bytes : most.memory_bytes;
            most.cpu_milli = c->limits.cpu_milli > most.cpu_milli ? c->limits.cpu_milli : most.cpu_milli;
        }
    return most;
}

/* A stopped box is a box, but uses neither memory nor processors. self: is counted as new. */
static int check_quota(struct front *front, const char *owner, const struct box_settings *s, const struct box *self,
                       struct err *e)
{
    const struct config_quota *quota = &front->config.quota;
    uint64_t boxes = 1, memory = s->limits.memory_bytes, cpu = s->limits.cpu_milli;

    if (!quota->boxes && !quota->memory_bytes && !quota->cpu_milli)
        return 0;
    for (struct box *b = front->boxes.first; b; b = b->next)
        if (box_is_alive(b) && b != self && strcmp(b->owner, owner) == 0) {
            boxes++;
            if (b->phase == PHASE_STOPPED)
                continue;
            struct limits theirs = limits_to_come(b);
            memory += theirs.memory_bytes;
            cpu += theirs.cpu_milli;
        }
    if (quota->boxes && boxes > quota->boxes)
        return err_set(e, EDQUOT, STEP_USAGE, "%s may have %u boxes and has them all; delete one first", owner,
                       quota->boxes);
    if (quota->memory_bytes && memory > quota->memory_bytes)
        return err_set(e, EDQUOT, STEP_USAGE,
                       "%s may have boxes with %llu bytes of memory in all; with this one it would be %llu", owner,
                       (unsigned long long)quota->memory_bytes, (unsigned long long)memory);
    if (quota->cpu_milli && cpu > quota->cpu_milli)
        return err_set(e, EDQUOT, STEP_USAGE,
                       "%s may have boxes with %u.%03u processors in all; with this one it would be %llu.%03u", owner,
                       quota->cpu_milli / 1000, quota->cpu_milli % 1000, (unsigned long long)cpu / 1000,
                       (unsigned)(cpu % 1000));
    return 0;
}

/* Less is always allowed, also by somebody whose quota has become smaller. */
static int check_growth(struct box *b, const struct limits *limits, struct err *e)
{
    const struct limits *now = &b->settings.limits;
    struct box_settings wanted = { .limits = *now };

    if (limits->memory_bytes)
        wanted.limits.memory_bytes = limits->memory_bytes;
    if (limits->cpu_milli)
        wanted.limits.cpu_milli = limits->cpu_milli;
    if (wanted.limits.memory_bytes <= now->memory_bytes && wanted.limits.cpu_milli <= now->cpu_milli)
        return 0;
    return check_quota(b->front, b->owner, &wanted, b, e);
}

struct limits boxes_left(const struct front *front)
{
    const struct limits *taken = &front->boxes.requested;
    uint64_t memory = front->config.host_memory_bytes;
    uint32_t cpu = front->config.host_cpu_milli;

    return (struct limits){
        .memory_bytes = memory > taken->memory_bytes ? memory - taken->memory_bytes : 0,
        .cpu_milli = cpu > taken->cpu_milli ? cpu - taken->cpu_milli : 0,
    };
}

/* The sum of what was guaranteed never exceeds what there is. */
static int check_host(struct front *front, const struct box_settings *s, struct err *e)
{
    const struct limits left = boxes_left(front);

    if (s->requests.memory_bytes > left.memory_bytes)
        return err_set(e, ENOSPC, STEP_USAGE, "this host cannot guarantee %llu bytes of memory: %llu of %llu are free",
                       (unsigned long long)s->requests.memory_bytes, (unsigned long long)left.memory_bytes,
                       (unsigned long long)front->config.host_memory_bytes);
    if (s->requests.cpu_milli > left.cpu_milli)
        return err_set(e, ENOSPC, STEP_USAGE, "this host cannot guarantee %u.%03u processors: %u.%03u are free",
                       s->requests.cpu_milli / 1000, s->requests.cpu_milli % 1000, left.cpu_milli / 1000,
                       left.cpu_milli % 1000);
    return 0;
}

static void fill_defaults(const struct config *config, struct box_settings *s)
{
    limits_fill(&s->limits, &config->defaults);
    const struct config_template *template = config_template(config, s->template);
    if (!s->net && !s->net_said && template && template->net[0])
        s->net = json_string(template->net);
    if (!s->ttl_s)
        s->ttl_s = config->ttl_s;
    if (!s->idle_s)
        s->idle_s = config->idle_s;
    if (!s->env)
        s->env = json_object();
    if (!s->labels)
        s->labels = json_object();
}

/* The family could not give a box with a kernel; one without is still a box. In another slot, because the keeper may
 * still tell that the first one is gone. */
static void create_plain(struct box *b)
{
    uint32_t slot = box_free_slot(&b->front->boxes);

    front_log("warning", "a family gave no box", "box", b->id, NULL);
    b->family = 0;
    if (slot != BOX_NO_SLOT) {
        box_release_slot(b);
        box_take_slot(b, slot);
    }
    box_ask_keeper(b, b->settings.mount_fd);
}

static void on_created(const struct event *event, int *fds, size_t n_fds, void *arg)
{
    struct box_call *c = arg;
    struct box *b = c->box;
    bool in_family = c->in_family;
    /* Of mounts that do not answer, the keeper waits once. */
    bool is_deaf = event->err.step == STEP_TREE && (event->result == -ETIMEDOUT || event->result == -EAGAIN);

    (void)fds;
    (void)n_fds;
    call_free(c);
    if (event->result < 0 && event->result != -ECONNRESET && !is_deaf && in_family && b->phase == PHASE_CREATING)
        create_plain(b);
    else
        box_raised(b, event->result < 0 ? &event->err : NULL);
}

void box_raised(struct box *b, const struct err *e)
{
    /* The box has them, or never will; what callers opened is not kept here. */
    for (uint32_t i = 0; i < b->settings.n_mounts; i++)
        b->settings.mount_fd[i] = fd_close(b->settings.mount_fd[i]);
    if (b->phase != PHASE_CREATING && b->phase != PHASE_STARTING)
        return;
    if (e) {
        char text[256];
        bool again = b->phase == PHASE_STARTING;
        err_text(e, text, sizeof text);
        /* Who waits for it is told why, and has nothing to clear away; else it is there to be asked. */
        b->front->metrics.boxes_failed += !again && b->waiters;
        box_end(b, again ? PHASE_STOPPED : b->waiters ? PHASE_DELETED : PHASE_FAILED,
                again ? BOX_REASON_START_FAILED : BOX_REASON_CREATE_FAILED, text);
        if (!again && b->settings.on_disk)
            box_remove_store(b);
        box_wake(b, e);
        return;
    }
    if (b->phase == PHASE_CREATING)
        histogram_add(&b->front->metrics.create, loop_now_us() - b->created_us);
    b->ready_ms = front_now_ms();
    b->has_network = b->settings.net != NULL;
    net_box_tell(b);
    box_set_phase(b, PHASE_RUNNING, BOX_REASON_NONE, NULL);
    box_arm_timers(b);
    box_wake(b, NULL);
}

/* Root, layers and place to write to, then what the caller brought: an order that every box has. */
void box_create_frame(const struct front *front, const struct box_settings *s, uint64_t number, uint32_t family,
                      struct request_create *ret)
{
    *ret = (struct request_create){
        .head.type = REQUEST_CREATE,
        .token = number,
        .limits = s->limits,
        .profile = s->profile,
        .flags = CREATE_TERMINAL | (s->net ? CREATE_NETWORK : 0),
        .uid = s->uid,
        .gid = s->gid,
        .family = family,
    };
    memcpy(ret->hostname, s->hostname, sizeof ret->hostname);
    frame_mount_add(ret, MOUNT_ROOT, s->root)->writable = s->writable_root;
    uint32_t template = families_layers(front, s);
    if (template)
        frame_mount_add(ret, MOUNT_LAYER, template);
    frame_mount_add(ret, s->on_disk ? MOUNT_STORE : MOUNT_TMPFS, s->on_disk ? number : 0);
    for (uint32_t i = 0; i < s->n_mounts; i++)
        ret->mount[ret->n_mounts++] = s->mount[i];
    for (size_t i = 0; i < json_array_size(s->devices) && i < KEEPER_DEVICES; i++) {
        struct frame_mount *device = frame_mount_add(ret, MOUNT_DEVICE, 0);
        snprintf(device->target, sizeof device->target, "%s", json_string_value(json_array_get(s->devices, i)));
    }
}

void box_ask_keeper(struct box *b, const int *mount_fd)
{
    const struct box_settings *s = &b->settings;
    struct request_create q;

    box_create_frame(b->front, s, b->number, b->family, &q);
    q.head.box = b->slot;
    q.owner_uid = b->owner_uid;
    q.owner_gid = b->owner_gid;
    struct box_call *c = call_new(b, NULL, NULL);
    c->in_family = b->family != 0;
    keeper_link_request(b->front->keeper, &q, sizeof q, mount_fd, s->n_mounts, on_created, c);
}

void box_unhold(struct box *b, uint32_t family)
{
    if (!b->is_held)
        return;
    b->is_held = false;
    b->family = family;
    box_ask_keeper(b, b->settings.mount_fd);
}

static int no_keeper(struct err *e)
{
    return err_set(e, ECONNREFUSED, STEP_HOST, "the keeper is not there; try again in a moment");
}

static int admit(struct front *front, const char *owner, const char *name, struct box_settings *s, struct err *e)
{
    fill_defaults(&front->config, s);
    if (!keeper_link_is_up(front->keeper))
        return no_keeper(e);
    if (s->on_disk && !front->boxes.can_store)
        return err_set(e, ENOTSUP, STEP_USAGE, "%s", front->boxes.why_no_store.what);
    if (!s->on_disk && s->limits.disk_bytes > s->limits.memory_bytes && s->limits.memory_bytes)
        return err_set(
            e, EINVAL, STEP_USAGE,
            "limits.disk is larger than limits.memory: what a box writes is kept in its memory, so ask for less disk, "
            "for more memory, or for \"store\": \"disk\"");
    if (name) {
        struct box *other = boxes_find(front, owner, name);
        if (other && box_is_alive(other))
            return err_set(e, EEXIST, STEP_USAGE, "a box called %s exists already", name);
    }
    int r = check_quota(front, owner, s, NULL, e);
    return r < 0 ? r : check_host(front, s, e);
}

int box_admit_again(struct box *b, uint32_t *ret_slot, struct err *e)
{
    struct front *front = b->front;

    if (!keeper_link_is_up(front->keeper))
        return no_keeper(e);
    *ret_slot = box_free_slot(&front->boxes);
    if (*ret_slot == BOX_NO_SLOT)
        return err_set(e, ENOSPC, STEP_USAGE, "this server holds %d boxes and that is all it can", KEEPER_BOXES);
    int r = check_quota(front, b->owner, &b->settings, b, e);
    return r < 0 ? r : check_host(front, &b->settings, e);
}

static int find_by_key(struct front *front, const char *owner, const char *key, struct box **ret, struct err *e)
{
    uint64_t number;
    int r = db_box_by_key(front->db, owner, key, &number, e);

    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return r;
    for (struct box *b = front->boxes.first; b; b = b->next)
        if (b->number == number) {
            *ret = b;
            return 1;
        }
    return 0;
}

/* A box from the pool runs already; this only keeps its caller from being called back from inside his own call. */
static void on_raise(struct loop_task *t)
{
    struct box *b = container_of(t, struct box, raise_task);

    if (b->phase != PHASE_RUNNING)
        return;
    histogram_add(&b->front->metrics.create, loop_now_us() - b->created_us);
    b->has_network = b->settings.net != NULL;
    net_box_tell(b);
    box_arm_timers(b);
    box_wake(b, NULL);
}

int boxes_create(struct front *front, const char *owner, uid_t uid, gid_t gid, const char *name, const char *key,
                 struct box_settings *settings, box_callback *call, void *arg, struct box **ret, bool *ret_existed,
                 struct err *e)
{
    struct box *b = NULL;
    int r = key ? find_by_key(front, owner, key, &b, e) : 0;

    if (r > 0) {
        box_settings_done(settings);
        *ret = b;
        *ret_existed = true;
        if (b->phase == PHASE_CREATING)
            box_wait(b, call, arg);
        return 0;
    }
    uint32_t slot = box_free_slot(&front->boxes), taken;
    if (r == 0 && slot == BOX_NO_SLOT)
        r = err_set(e, ENOSPC, STEP_USAGE, "this server holds %d boxes and that is all it can", KEEPER_BOXES);
    if (r == 0)
        r = admit(front, owner, name, settings, e);
    if (r == 0 && !(b = box_new(front, owner, name, key)))
        r = err_at(e, ENOMEM, STEP_MEMORY, 0, "box");
    if (r < 0 || !b) {
        box_settings_done(settings);
        return r;
    }
    front_make_id('b', b->id);
    b->settings = *settings;
    box_settings_init(settings);
    b->owner_uid = uid;
    b->owner_gid = gid;
    b->created_ms = b->changed_ms = b->used_ms = front_now_ms();
    b->created_us = loop_now_us();
    b->expires_ms = b->settings.ttl_s ? b->created_ms + (int64_t)b->settings.ttl_s * 1000 : 0;
    b->is_held = families_hold(front, owner, &b->settings);
    b->family = families_for(front, owner, &b->settings);
    if (!b->is_held && pool_take(front, &b->settings, b->family, &taken, &b->token))
        slot = taken;
    r = b->token ? box_insert_running(b, slot, e) : box_insert(b, e);
    if (r < 0) {
        if (b->token)
            boxes_destroy_slot(front, slot);
        box_free(b);
        return r;
    }
    if (!b->token)
        box_take_slot(b, slot);
    box_list(b);
    front->metrics.boxes_created++;
    box_wait(b, call, arg);
    b->raise_task.on_run = on_raise;
    if (b->token)
        loop_task_add(front->loop, &b->raise_task);
    else if (!b->is_held)
        box_ask_keeper(b, b->settings.mount_fd);
    *ret = b;
    *ret_existed = false;
    return 0;
}

/* ---- the rest ---- */

static void on_done(const struct event *event, int *fds, size_t n_fds, void *arg)
{
    struct box_call *c = arg;
    struct box *b = c->box;

    (void)fds;
    (void)n_fds;
    if (event->result == 0 && box_is_alive(b)) {
        /* It may be asked to end meanwhile, and then that is what it does. */
        if (c->phase < PHASE_COUNT && (b->phase == PHASE_RUNNING || b->phase == PHASE_PAUSED))
            box_set_phase(b, c->phase, BOX_REASON_NONE, NULL);
        if (!limits_equal(&c->limits, &(struct limits){ 0 })) {
            limits_update(&b->settings.limits, &c->limits);
            box_save(b);
        }
    }
    if (c->usage)
        c->usage(b, &event->usage, event->result < 0 ? &event->err : NULL, c->arg);
    if (c->done)
        c->done(b, event->result < 0 ? &event->err : NULL, c->arg);
    call_free(c);
}

int box_pause(struct box *b, bool pause, box_callback *call, void *arg, struct err *e)
{
    int r = check_phase(b, pause ? IN(PHASE_RUNNING) : IN(PHASE_PAUSED), e);
    if (r < 0)
        return r;
    struct request_head q = head(b, pause ? REQUEST_FREEZE : REQUEST_THAW);
    struct box_call *c = call_new(b, call, arg);
    c->phase = pause ? PHASE_PAUSED : PHASE_RUNNING;
    if (!pause)
        box_touch(b);
    keeper_link_request(b->front->keeper, &q, sizeof q, NULL, 0, on_done, c);
    return 0;
}

int box_update(struct box *b, const struct limits *limits, json_t *labels, const uint32_t *ttl_s,
               const uint32_t *idle_s, box_callback *call, void *arg, struct err *e)
{
    int r = check_phase(b, IN(PHASE_RUNNING) | IN(PHASE_PAUSED), e);
    if (r == 0 && limits)
        r = check_growth(b, limits, e);
    if (r < 0)
        return r;
    if (labels) {
        json_decref(b->settings.labels);
        b->settings.labels = json_incref(labels);
    }
    if (ttl_s) {
        b->settings.ttl_s = *ttl_s;
        b->expires_ms = *ttl_s ? front_now_ms() + (int64_t)*ttl_s * 1000 : 0;
    }
    if (idle_s)
        b->settings.idle_s = *idle_s;
    if (ttl_s || idle_s)
        box_arm_timers(b);
    box_save(b);
    box_event(b, "updated", NULL);
    struct box_call *c = call_new(b, call, arg);
    struct request_limits q = { .head = head(b, limits ? REQUEST_LIMITS : REQUEST_USAGE) };
    if (limits) {
        q.limits = c->limits = *limits;
        keeper_link_request(b->front->keeper, &q, sizeof q, NULL, 0, on_done, c);
    } else {
        /* Nothing for the keeper to do; the question only makes the answer come the usual way. */
        keeper_link_request(b->front->keeper, &q.head, sizeof q.head, NULL, 0, on_done, c);
    }
    return 0;
}

static void on_net(const struct event *event, int *fds, size_t n_fds, void *arg)
{
    struct box_call *c = arg;

    if (event->result == 0 && box_is_alive(c->box))
        net_box_tell(c->box);
    on_done(event, fds, n_fds, arg);
}

int box_update_net(struct box *b, json_t *net, box_callback *call, void *arg, struct err *e)
{
    struct request_net q = { .head = head(b, REQUEST_NET) };
    int r = check_phase(b, IN(PHASE_RUNNING), e);

    if (r < 0) {
        json_decref(net);
        return r;
    }
    json_decref(b->settings.net);
    b->settings.net = net;
    box_save(b);
    box_event(b, "updated", NULL);
    /* A policy holds at once; a network that is new, when the keeper has made it. */
    b->has_network |= net != NULL;
    net_box_tell(b);
    q.has_network = b->has_network;
    keeper_link_request(b->front->keeper, &q, sizeof q, NULL, 0, on_net, call_new(b, call, arg));
    return 0;
}

int box_usage(struct box *b, void (*call)(struct box *, const struct frame_usage *, const struct err *, void *),
              void *arg, struct err *e)
{
    int r = check_phase(b, IN(PHASE_RUNNING) | IN(PHASE_PAUSED), e);
    if (r < 0)
        return r;
    struct request_head q = head(b, REQUEST_USAGE);
    struct box_call *c = call_new(b, NULL, arg);
    c->usage = call;
    keeper_link_request(b->front->keeper, &q, sizeof q, NULL, 0, on_done, c);
    return 0;
}

static void on_buried(struct loop_task *t)
{
    box_wake(container_of(t, struct box, raise_task), NULL);
}

int box_delete(struct box *b, enum box_reason reason, box_callback *call, void *arg, struct err *e)
{
    int r = check_phase(b, ~IN(PHASE_DELETED), e);
    if (r < 0)
        return r;
    /* The files of a stopped box wait for the next keeper; whoever asks must not, because there may never be one. */
    if (call && b->phase == PHASE_STOPPED && !keeper_link_is_up(b->front->keeper))
        return no_keeper(e);
    box_wait(b, call, arg);
    if (b->phase == PHASE_FAILED) {     /* nothing is left of it but its row */
        box_set_phase(b, PHASE_DELETED, reason, NULL);
        b->raise_task.on_run = on_buried;
        loop_task_add(b->front->loop, &b->raise_task);
        return 0;
    }
    if (b->phase == PHASE_DELETING)
        return 0;
    box_unhold(b, 0);       /* what the keeper does not know it cannot end */
    struct request_head q = head(b, REQUEST_DESTROY);
    enum phase before = b->phase;
    box_set_phase(b, PHASE_DELETING, reason, NULL);
    if (before == PHASE_STOPPED) {
        box_remove_store(b);
        return 0;
    }
    if (before == PHASE_STOPPING)
        return 0;       /* it is going already */
    keeper_link_request(b->front->keeper, &q, sizeof q, NULL, 0, on_done, call_new(b, NULL, NULL));
    return 0;
}
