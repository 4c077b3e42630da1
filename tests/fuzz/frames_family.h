/* The part of fuzz_frames.c that pretends to be box/family. */
#ifndef CARREL_TESTS_FUZZ_FRAMES_FAMILY_H
#define CARREL_TESTS_FUZZ_FRAMES_FAMILY_H

void family_plan(struct plan *plan)
{
    (void)plan;
}

int family_create(struct box_host *host, const struct plan *plan, const struct start *zygote, struct family *ret,
                  struct err *e)
{
    (void)host;
    HOLDS(!zygote->command && fcntl(zygote->packed, F_GETFD) >= 0);
    if (whim % 8 == 7)
        return err_at(e, EMFILE, STEP_CLONE, 0, "namespaces");
    *ret = (struct family){ .box = { .state = BOX_READY, .profile = plan->profile, .init.pidfd = new_fd() },
                            .zygote = { .pid = 2, .pidfd = new_fd() }, .zygote_link = new_fd(), .control = new_fd() };
    return 0;
}

int family_ready(struct family *family, int timeout_ms, struct err *e)
{
    HOLDS(timeout_ms == 0 && family->control >= 0);
    if (whim % 4 == 1)
        return err_at(e, ECHILD, STEP_CLONE, 0, "the zygote");
    return whim % 4 == 2;
}

int family_box_create(struct box_host *host, struct family *family, const struct plan *plan, bool freezer,
                      struct engine_box *ret, struct err *e)
{
    HOLDS(family->control >= 0);
    int r = box_create(host, plan, NULL, freezer, ret, e);
    if (r < 0)
        return r;
    payload_done(&ret->first);
    ret->first.waiting = false;
    ret->init.pidfd = fd_close(ret->init.pidfd);
    ret->midwife = (struct process){ .pid = 5, .pidfd = new_fd() };
    ret->birth = new_fd();
    ret->family = family;
    return 0;
}

int family_box_born(struct engine_box *box, struct err *e)
{
    HOLDS(box->state == BOX_MAKING && box->birth >= 0 && box->init.pidfd < 0);
    if (whim % 4 == 0)
        return 0;
    box->birth = fd_close(box->birth);
    if (whim % 4 != 3)      /* or there is none */
        box->init.pidfd = new_fd();
    if (whim % 4 != 2)
        return err_at(e, ECHILD, STEP_CLONE, 0, "the midwife ended");
    box->first = (struct payload){ .process.pidfd = -1, .link = new_fd(), .terminal = -1, .waiting = true };
    return 1;
}

int family_box_call_off(struct engine_box *box, bool block)
{
    HOLDS(box->midwife.pidfd >= 0);
    if (!block && whim % 4 == 0)
        return 0;
    if (box->birth >= 0 && whim & 1)
        box->init.pidfd = new_fd();
    box->birth = fd_close(box->birth);
    return 1;
}

int family_fork(struct engine_box *box, struct payload *ret, struct err *e)
{
    HOLDS(box->state == BOX_READY && box->family->control >= 0);
    if (whim % 8 == 6)
        return err_at(e, EAGAIN, STEP_CLONE, 0, "the zygote does not take requests");
    *ret = (struct payload){ .process.pidfd = -1, .link = new_fd(), .terminal = -1, .waiting = true };
    return 0;
}

static pid_t last_child = 1000;     /* each is another */

int family_forked(struct engine_box *box, struct payload *payload, int timeout_ms, struct err *e)
{
    HOLDS(box->family && timeout_ms == 0 && payload->process.pidfd < 0);
    if (whim % 4 == 0)
        return 0;
    if (whim % 4 == 1)
        return err_at(e, whim & 4 ? EPERM : EAGAIN, STEP_RIGHTS, 0, "the zygote's child");
    payload->process = (struct process){ .pid = ++last_child, .pidfd = new_fd() };
    return 1;
}

int family_order(const struct engine_box *box, struct payload *payload, const struct start *start, struct err *e)
{
    HOLDS(box->family && payload->process.pidfd >= 0 && fcntl(start->packed, F_GETFD) >= 0);
    if (whim % 8 == 7)
        return err_at(e, EPIPE, STEP_CLONE, 0, "payload");
    payload->waiting = false;
    return 0;
}

void family_reap(struct family *family)
{
    if (family->zygote.pidfd >= 0 && (family->control < 0 || whim % 16 == 11)) {
        family->zygote.pidfd = fd_close(family->zygote.pidfd);
        family->zygote.pid = 0;
    }
}

void family_stop(struct family *family)
{
    family->control = fd_close(family->control);
    family->zygote_link = fd_close(family->zygote_link);
}

void family_kill(struct family *family)
{
    family_stop(family);
}

int family_release(struct box_host *host, struct family *family)
{
    (void)host;
    if (whim % 4 == 3)
        return 0;
    family->box.init.pidfd = fd_close(family->box.init.pidfd);
    HOLDS(family->zygote.pidfd < 0 && family->control < 0);
    return 1;
}

void family_destroy(struct box_host *host, struct family *family)
{
    family_kill(family);
    family_reap(family);
    HOLDS(family_release(host, family) == 1);
}

void family_box_sweep(struct engine_box *box)
{
    HOLDS(box->family);
}

void family_sweep_unknown(bool (*known)(pid_t pid, void *arg), void *arg)
{
    (void)known(1, arg);
}

#endif
