/* A lookup is an entry of the cache from its first question on. c-ares may call back from within the call that asks, so
 * answers are recorded there and delivered from a task of the loop.
 *
 * c-ares reads resolv.conf and nsswitch.conf when a channel is made, and /etc/hosts for each name. When resolv.conf has
 * changed, a new channel is made; the old one is destroyed after its last answer. There is no search list: it could
 * turn a policy's name into another one. */
#define _GNU_SOURCE
#include "egress/resolve.h"

#include <ares.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/list.h"

enum {
    LEAST_MS = 5000,
    MOST_MS = 60000,
    TRY_MS = 1500,              /* then 3 s for the second try: together less than a C library's timeout */
    TRIES = 2,
    LOOK_MS = 1000,             /* between checks of resolv.conf */
    BUCKETS = 1024,
};

static const char settings[] = "/etc/resolv.conf";

struct watched {
    struct loop_fd  watch;
    struct channel *channel;
    struct watched *next, **back;
};

struct channel {
    struct resolver  *resolver;
    ares_channel      ares;
    struct watched   *sockets;
    struct loop_timer timer;
    unsigned          n_asked;          /* questions without an answer yet */
    struct channel   *next, **back;
};

struct lookup {
    struct lookup        *in_bucket, **bucket_back;
    struct lookup        *next, **back;         /* in resolver.answered */
    struct lookup        *newer, *older;
    struct channel       *channel;              /* that looks it up; NULL: answered */
    struct resolver      *resolver;
    struct fair_share         *share;                /* charged while it is under way; NULL: none */
    struct resolve_wait  *waits;
    uint64_t              until_ms;
    struct resolve_answer answer;
    char                  name[];
};

struct resolver {
    struct loop     *loop;
    struct channel  *channels;          /* the first is the present one */
    struct lookup   *bucket[BUCKETS];
    struct lookup   *oldest, *newest;
    struct lookup   *answered;          /* and not delivered yet */
    struct loop_task tell;
    unsigned         n;
    uint64_t         looked_ms;
    struct stat      settings;
    bool             is_ending;
};

/* --- the cache --- */

static struct lookup **bucket_of(struct resolver *r, const char *name)
{
    uint32_t h = 2166136261u;

    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return &r->bucket[(h ^ h >> 15) % BUCKETS];
}

static struct lookup *find(struct resolver *r, const char *name)
{
    struct lookup *u = *bucket_of(r, name);

    while (u && strcmp(u->name, name) != 0)
        u = u->in_bucket;
    return u;
}

static void forget(struct lookup *u)
{
    *u->bucket_back = u->in_bucket;
    if (u->in_bucket)
        u->in_bucket->bucket_back = u->bucket_back;
    *(u->older ? &u->older->newer : &u->resolver->oldest) = u->newer;
    *(u->newer ? &u->newer->older : &u->resolver->newest) = u->older;
    LIST_REMOVE(u);
    u->resolver->n--;
    free(u);
}

/* Drops the oldest answer without waiters. */
static bool make_room(struct resolver *r)
{
    for (struct lookup *u = r->oldest; u; u = u->newer)
        if (!u->channel && !u->waits && !u->back) {
            forget(u);
            return true;
        }
    return false;
}

static struct lookup *remember(struct resolver *r, const char *name)
{
    size_t size = strlen(name) + 1;
    struct lookup **bucket = bucket_of(r, name), *u;

    if (r->n == RESOLVE_NAMES && !make_room(r))
        return NULL;
    u = calloc(1, sizeof *u + size);
    if (!u)
        return NULL;
    memcpy(u->name, name, size);
    u->resolver = r;
    u->in_bucket = *bucket;
    u->bucket_back = bucket;
    if (u->in_bucket)
        u->in_bucket->bucket_back = &u->in_bucket;
    *bucket = u;
    u->older = r->newest;
    *(u->older ? &u->older->newer : &r->oldest) = u;
    r->newest = u;
    r->n++;
    return u;
}

/* --- c-ares --- */

static void set_timer(struct channel *c)
{
    struct timeval space, *left = ares_timeout(c->ares, NULL, &space);

    if (left)
        loop_timer_set(c->resolver->loop, &c->timer, (uint64_t)(left->tv_sec * 1000 + left->tv_usec / 1000 + 1));
    else
        loop_timer_cancel(c->resolver->loop, &c->timer);
}

static void on_timer(struct loop_timer *t)
{
    struct channel *c = container_of(t, struct channel, timer);

    ares_process_fd(c->ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    set_timer(c);
}

static void on_socket(struct loop_fd *w, uint32_t events)
{
    struct channel *c = container_of(w, struct watched, watch)->channel;
    int fd = w->fd;

    /* This may close the socket and free the watcher. */
    ares_process_fd(c->ares, events & (EPOLLIN | EPOLLERR | EPOLLHUP) ? fd : ARES_SOCKET_BAD,
                    events & (EPOLLOUT | EPOLLERR | EPOLLHUP) ? fd : ARES_SOCKET_BAD);
    set_timer(c);
}

static void on_socket_state(void *data, ares_socket_t fd, int readable, int writable)
{
    struct channel *c = data;
    struct loop *l = c->resolver->loop;
    uint32_t events = (readable ? (uint32_t)EPOLLIN : 0) | (writable ? (uint32_t)EPOLLOUT : 0);
    struct watched *w = c->sockets;

    while (w && w->watch.fd != fd)
        w = w->next;
    if (events == 0) {
        if (!w)
            return;
        loop_fd_remove(l, &w->watch);
        LIST_REMOVE(w);
        free(w);
        return;
    }
    if (w) {
        (void)!loop_fd_set(l, &w->watch, events);
        return;
    }
    /* Without a watcher the lookup times out. */
    w = calloc(1, sizeof *w);
    if (!w)
        return;
    w->channel = c;
    w->watch.on_event = on_socket;
    if (loop_fd_add(l, &w->watch, fd, events) < 0)
        free(w);
    else
        LIST_ADD(c->sockets, w);
}

static int channel_new(struct resolver *r)
{
    struct ares_options options = {
        .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
        .timeout = TRY_MS,
        .tries = TRIES,
        .sock_state_cb = on_socket_state,
    };
    int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_NDOTS | ARES_OPT_DOMAINS |
               ARES_OPT_SOCK_STATE_CB;
    struct channel *c = calloc(1, sizeof *c);

    if (!c)
        return -ENOMEM;
    c->resolver = r;
    c->timer.on_expire = on_timer;
    options.sock_state_cb_data = c;
    if (ares_init_options(&c->ares, &options, mask) != ARES_SUCCESS) {
        free(c);
        return -EIO;
    }
    LIST_ADD(r->channels, c);
    return 0;
}

static void channel_free(struct channel *c)
{
    loop_timer_cancel(c->resolver->loop, &c->timer);
    ares_destroy(c->ares);
    LIST_REMOVE(c);
    free(c);
}

/* After a change of the settings, further questions use a new channel. */
static void look_at_settings(struct resolver *r)
{
    struct stat now = { 0 };
    uint64_t now_ms = loop_now_ms();

    if (r->looked_ms && now_ms - r->looked_ms < LOOK_MS)
        return;
    r->looked_ms = now_ms;
    (void)stat(settings, &now);
    if (now.st_ino != r->settings.st_ino || now.st_size != r->settings.st_size ||
        now.st_mtim.tv_sec != r->settings.st_mtim.tv_sec || now.st_mtim.tv_nsec != r->settings.st_mtim.tv_nsec) {
        if (channel_new(r) == 0)
            r->settings = now;
    }
    for (struct channel *c = r->channels ? r->channels->next : NULL, *next; c; c = next) {
        next = c->next;
        if (c->n_asked == 0)
            channel_free(c);
    }
}

static bool take_address(const struct sockaddr *from, struct net_address *ret)
{
    if (from->sa_family == AF_INET) {
        ret->size = 4;
        memcpy(ret->byte, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
        return true;
    }
    if (from->sa_family != AF_INET6)
        return false;
    const struct sockaddr_in6 *v6 = (const void *)from;
    struct net_address written = { .size = 16 };
    memcpy(written.byte, &v6->sin6_addr, 16);
    /* A mapped address is dialled as IPv4; other notations need a translator, so they stay unchanged. */
    *ret = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) ? net_address_unwrap(&written) : written;
    return true;
}

static void on_answer(void *arg, int status, int timeouts, struct ares_addrinfo *result)
{
    struct lookup *u = arg;
    struct resolver *r = u->resolver;
    struct resolve_answer *answer = &u->answer;
    int ttl = MOST_MS / 1000;

    (void)timeouts;
    u->channel->n_asked--;
    u->channel = NULL;
    if (u->share)
        fair_give(u->share, 1);
    u->share = NULL;
    *answer = (struct resolve_answer){ .status = status == ARES_SUCCESS      ? RESOLVE_FOUND
                                                 : status == ARES_ENODATA    ? RESOLVE_EMPTY
                                                 : status == ARES_ENOTFOUND ? RESOLVE_UNKNOWN
                                                                            : RESOLVE_FAILED };
    if (status != ARES_SUCCESS)
        ttl = 0;
    for (struct ares_addrinfo_node *n = result ? result->nodes : NULL; n && answer->n < RESOLVE_ADDRESSES;
         n = n->ai_next) {
        if (!take_address(n->ai_addr, &answer->address[answer->n]))
            continue;
        answer->n++;
        if (n->ai_ttl < ttl)
            ttl = n->ai_ttl;
    }
    if (result)
        ares_freeaddrinfo(result);
    if (answer->status == RESOLVE_FOUND && answer->n == 0)
        answer->status = RESOLVE_EMPTY;
    /* A failure is delivered, but not cached. */
    uint64_t keep_ms = ttl > LEAST_MS / 1000 ? (uint64_t)ttl * 1000 : LEAST_MS;
    u->until_ms = answer->status == RESOLVE_FAILED ? 0 : loop_now_ms() + keep_ms;
    if (r->is_ending)
        return;
    LIST_ADD(r->answered, u);
    loop_task_add(r->loop, &r->tell);
}

static void on_tell(struct loop_task *t)
{
    struct resolver *r = container_of(t, struct resolver, tell);

    while (r->answered) {
        struct lookup *u = r->answered;
        struct resolve_answer answer = u->answer;
        struct resolve_wait *waits = u->waits;
        LIST_REMOVE(u);
        u->waits = NULL;
        if (waits)
            waits->back = &waits;
        if (u->until_ms == 0)
            forget(u);
        while (waits) {         /* each may cancel others, which are then removed from this list */
            struct resolve_wait *w = waits;
            LIST_REMOVE(w);
            w->on_done(w, &answer);
        }
    }
}

/* --- the interface --- */

int resolver_new(struct loop *l, struct resolver **ret)
{
    if (ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS)
        return -EIO;
    struct resolver *r = calloc(1, sizeof *r);
    if (!r)
        return -ENOMEM;
    r->loop = l;
    r->tell.on_run = on_tell;
    int result = channel_new(r);
    if (result < 0) {
        free(r);
        return result;
    }
    (void)stat(settings, &r->settings);
    *ret = r;
    return 0;
}

void resolver_free(struct resolver *r)
{
    if (!r)
        return;
    r->is_ending = true;
    loop_task_cancel(r->loop, &r->tell);
    for (struct channel *c = r->channels, *next_channel; c; c = next_channel) {
        next_channel = c->next;
        channel_free(c);
    }
    while (r->oldest) {
        struct lookup *u = r->oldest;
        while (u->waits)
            LIST_REMOVE(u->waits);
        forget(u);
    }
    free(r);
    ares_library_cleanup();
}

const struct resolve_answer *resolver_recall(struct resolver *r, const char *name)
{
    static const struct resolve_answer loopback = {
        .status = RESOLVE_FOUND,
        .n = 2,
        .address = { { .size = 4, .byte = { 127, 0, 0, 1 } }, { .size = 16, .byte = { [15] = 1 } } },
    };
    struct lookup *u = find(r, name);

    if (net_name_is_loopback(name))
        return &loopback;
    return u && !u->channel && !u->back && u->until_ms > loop_now_ms() ? &u->answer : NULL;
}

/* NULL: the box has too many under way, or memory is short. */
static struct lookup *begin(struct resolver *r, const char *name, struct lookup *known, struct fair_share *share)
{
    if (share->used >= RESOLVE_BY_BOX || !fair_take(share, 1))
        return NULL;
    struct lookup *u = known ? known : remember(r, name);
    if (u)
        u->share = share;
    else
        fair_give(share, 1);
    return u;
}

int resolver_ask(struct resolver *r, const char *name, struct fair_share *share, struct resolve_wait *w)
{
    static const struct ares_addrinfo_hints hints = { .ai_family = AF_UNSPEC,
                                                      .ai_socktype = SOCK_STREAM,
                                                      .ai_flags = ARES_AI_NOSORT };
    struct lookup *u = find(r, name);

    look_at_settings(r);
    bool is_there = u && (u->channel || u->back), is_known = u && !is_there && u->until_ms > loop_now_ms();
    if (!is_there && !is_known && !(u = begin(r, name, u, share)))
        return -EAGAIN;
    LIST_ADD(u->waits, w);
    if (is_there)
        return 0;
    if (is_known) {
        LIST_ADD(r->answered, u);
        loop_task_add(r->loop, &r->tell);
        return 0;
    }
    struct channel *c = r->channels;
    u->channel = c;
    c->n_asked++;
    ares_getaddrinfo(c->ares, name, NULL, &hints, on_answer, u);
    set_timer(c);
    return 0;
}

void resolver_disown(struct resolver *r, struct fair_share *share)
{
    for (struct lookup *u = r ? r->oldest : NULL; u && share->used > 0; u = u->newer)   /* NULL: nothing is looked up */
        if (u->share == share) {
            u->share = NULL;
            fair_give(share, 1);
        }
}

void resolver_cancel(struct resolve_wait *w)
{
    LIST_REMOVE(w);
}
