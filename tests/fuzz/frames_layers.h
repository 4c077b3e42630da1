/* The part of fuzz_frames.c that pretends to be box/layer and the clerk. */
#ifndef CARREL_TESTS_FUZZ_FRAMES_LAYERS_H
#define CARREL_TESTS_FUZZ_FRAMES_LAYERS_H

int layers_open(const char *place, const char *owner, struct layers *ret, struct err *e)
{
    (void)place;
    (void)e;
    HOLDS(!strchr(owner, '/') && !strchr(owner, '.'));
    *ret = (struct layers){ .dir = new_fd() };
    return 0;
}

void layers_close(struct layers *layers)
{
    layers->dir = fd_close(layers->dir);
}

int layer_open(const struct layers *layers, const char *digest, int *ret)
{
    HOLDS(layers->dir >= 0 && strlen(digest) == 64);
    if (whim % 8 == 5)
        return -ENOENT;
    *ret = new_fd();
    return 0;
}

int clerk_order(const struct clerk *clerk, const struct request_layer *order, const int fds[2], struct err *e)
{
    (void)clerk;
    HOLDS(fds[0] >= 0 && fds[1] >= 0 && !strchr(order->owner, '/'));
    return whim & 1 ? err_at(e, EAGAIN, STEP_HOST, 0, "packages") : 0;
}

/* One of a few layers that pass the check of their names, or what the input has. */
static void name_layer(struct frame_mount *m, size_t given)
{
    if (m->kind != MOUNT_PACKAGES || given % 4 == 3)
        return;
    memcpy(m->target, "uid-1/", 6);
    memset(m->target + 6, '0' + (char)(given % 4), 64);
    m->target[70] = 0;
}

#endif
