/* One connection of a box to a host with a key:
 *
 *   box --TLS--> request head --judged, key put in--> upstream       message.c
 *                request body ---------------------->
 *       <------- answer, values masked <-------------
 *
 * Requests are carried one after the other, each to its end; the next one stays unread until then. What cannot be
 * carried is answered by the broker itself, and the connection ends. Both handshakes run at once: if the upstream's
 * fails, the program reads the reason as the answer to its request.
 *
 * A step moves whatever can move, until nothing does; buffers that are full stop the side that fills them.
 *
 * The last bytes of a body are held back (mask.h) until more of it comes, it ends, or the upstream pauses. What makes a
 * pause is the upstream's framing and the clock, never what the bytes are. */
#include <errno.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/list.h"
#include "broker/broker.h"

enum {
    OPENING_MS = 30000,
    IDLE_MS = 300000,           /* between requests, and for a head */
    LINGER_MS = 2000,           /* for the program to read the last answer */
    ROUNDS = 16,                /* of a step; then other connections get their turn */
    PIECE_BYTES = 16384,
    PAUSE_MS = 50,              /* of the upstream, after which it gets to the box what is held back */
    STALL_MS = 2000,            /* the same after the box did not read: an upstream that was stopped by that needs time
                                 * to go on, and the box must not choose where a value is cut */
};

enum relay_state { RELAY_HEAD, RELAY_EXCHANGE, RELAY_FINISHING, RELAY_LINGER, RELAY_OVER };

struct broker_relay {
    struct keybox   *box;
    struct broker_relay       *next, **back;
    struct broker_host *host;
    enum relay_state    state;
    struct side         inner, outer;       /* of the box; of the upstream */
    struct loop_timer   timer;
    struct loop_task    again;
    char                outer_failure[200]; /* "": none so far */
    unsigned            n_exchanges;
    struct http_head    request, answer;
    bool                was_head, wants_continue, keeps_alive, is_chunked, request_done;
    uint64_t            request_left;
    struct http_chunked request_chunks, answer_chunks;
    bool                answer_begun, has_answer_head, answer_done, must_close;
    enum http_body      answer_body;
    uint64_t            answer_left;
    struct mask         mask;
    struct loop_timer   pause;
    uint64_t            full_ms;            /* when the box last did not read */
};

static void start_timer(struct broker_relay *r, uint64_t ms)
{
    loop_timer_set(r->box->broker->loop, &r->timer, ms);
}

static struct loop *loop_of(const struct broker_relay *r)
{
    return r->box->broker->loop;
}

static void end(struct broker_relay *r)
{
    struct loop *l = loop_of(r);

    loop_timer_cancel(l, &r->timer);
    loop_timer_cancel(l, &r->pause);
    loop_task_cancel(l, &r->again);
    side_close(&r->inner, l);
    side_close(&r->outer, l);
    LIST_REMOVE(r);
    r->box->n_relays--;
    r->box->broker->n_relays--;
    keybox_release(r->box);
    mask_done(&r->mask);
    free(r);
}

/* The box's keys were replaced: from the next request on it has the new ones. False: it has none for this host now. */
static bool follow_box(struct broker_relay *r)
{
    struct keybox *old = r->box;

    if (!old->is_retired)
        return true;
    struct keybox *box = keybox_find(old->broker, old->id);
    struct broker_host *host = box ? keybox_host(box, r->host->rules.name) : NULL;
    if (!host)
        return false;
    LIST_REMOVE(r);
    old->n_relays--;
    LIST_ADD(box->relays, r);
    box->n_relays++;
    r->box = box;
    r->host = host;
    keybox_release(old);
    return true;
}

static void new_mask(struct broker_relay *r)
{
    mask_init(&r->mask);
    for (size_t i = 0; i < r->host->rules.n_keys; i++)
        mask_add(&r->mask, &r->host->rules.key[i].value);
}

static bool outer_is_undecided(const struct broker_relay *r)
{
    return !r->outer.is_open && !r->outer_failure[0];
}

static void begin_head(struct broker_relay *r)
{
    r->state = RELAY_HEAD;
    http_head_init(&r->request, false);
    http_head_init(&r->answer, true);
    r->request_done = r->answer_begun = r->has_answer_head = r->answer_done = r->must_close = false;
    r->request_chunks = r->answer_chunks = (struct http_chunked){ 0 };
    side_rest(&r->inner);
    side_rest(&r->outer);
    start_timer(r, outer_is_undecided(r) ? OPENING_MS : IDLE_MS);
}

/* --- answers of the broker's own --- */

static void finish(struct broker_relay *r)
{
    side_close(&r->outer, loop_of(r));
    r->state = RELAY_FINISHING;
    start_timer(r, IDLE_MS);
}

static bool answer_own(struct broker_relay *r, const struct message_refusal *why)
{
    message_own(why, !r->was_head, &r->inner.out);
    finish(r);
    return true;
}

static bool answer_fault(struct broker_relay *r, int status, const char *what, const char *why)
{
    struct message_refusal own = { .status = status };

    snprintf(own.why, sizeof own.why, "%s%s%s", what, why[0] ? ": " : "", why);
    return answer_own(r, &own);
}

/* The upstream failed. Once a part of its answer was passed on, the connection just breaks. */
static bool answer_gone(struct broker_relay *r, const char *why)
{
    if (r->answer_begun) {
        r->state = RELAY_OVER;
        return true;
    }
    return answer_fault(r, 502, r->host->rules.name, why);
}

/* --- the request --- */

static bool take_head(struct broker_relay *r)
{
    struct message_refusal why;

    /* Bytes that belong to no request must not become the answer to the next one. */
    if (r->n_exchanges > 0 && side_has(&r->outer) > 0) {
        finish(r);
        return true;
    }
    if (side_has(&r->inner) == 0) {
        /* The program has finished, or a kept connection ends as the upstream ended it. */
        if (r->inner.has_ended || (r->n_exchanges > 0 && r->outer.has_ended))
            finish(r);
        return r->state != RELAY_HEAD;
    }
    if (outer_is_undecided(r))
        return false;
    if (!follow_box(r)) {
        finish(r);
        return true;
    }
    ssize_t n = http_head_parse(&r->request, side_bytes(&r->inner), side_has(&r->inner));
    if (n == 0) {
        if (r->inner.has_ended)
            r->state = RELAY_OVER;
        return r->inner.has_ended;
    }
    r->was_head = n > 0 && http_text_is(r->request.method, "HEAD");
    if (n < 0)
        return answer_fault(r, http_fault_status(r->request.fault), "the request is refused",
                            http_fault_text(r->request.fault));
    if (r->outer_failure[0])
        return answer_fault(r, 502, r->host->rules.name, r->outer_failure);
    if (r->n_exchanges > 0 && (r->outer.has_ended || r->outer.is_deaf)) {
        finish(r);          /* a kept connection that the upstream closed meanwhile: programs try again */
        return true;
    }
    if (!message_request(&r->request, &r->host->rules, &r->outer.out, &why))
        return answer_own(r, &why);
    r->keeps_alive = r->request.keep_alive;
    r->wants_continue = r->request.wants_continue;
    r->is_chunked = r->request.chunked;
    r->request_left = r->request.length > 0 ? (uint64_t)r->request.length : 0;
    r->request_done = !r->is_chunked && r->request_left == 0;
    side_take(&r->inner, (size_t)n);
    new_mask(r);
    r->n_exchanges++;
    r->state = RELAY_EXCHANGE;
    loop_timer_cancel(loop_of(r), &r->timer);
    return true;
}

static void put_chunk(struct buf *out, const char *data, size_t size)
{
    if (size == 0)
        return;
    buf_printf(out, "%zx\r\n", size);
    buf_add(out, data, size);
    buf_add_text(out, "\r\n");
}

static bool take_request_body(struct broker_relay *r)
{
    static char piece[PIECE_BYTES];
    struct side *from = &r->inner, *to = &r->outer;
    size_t taken = side_has(from), put = 0;

    if (r->request_done || to->is_deaf || side_waiting(to) >= SIDE_OUT_FULL)
        return false;
    if (taken == 0) {
        if (from->has_ended)
            r->state = RELAY_OVER;
        return from->has_ended;
    }
    if (!r->is_chunked) {
        taken = taken < r->request_left ? taken : (size_t)r->request_left;
        buf_add(&to->out, side_bytes(from), taken);
        r->request_left -= taken;
        r->request_done = r->request_left == 0;
        side_take(from, taken);
        return true;
    }
    int n = http_chunked_decode(&r->request_chunks, side_bytes(from), taken, piece, sizeof piece, &taken, &put);
    if (n < 0 && !r->answer_begun)
        return answer_fault(r, 400, "the request's body is refused", http_fault_text(r->request_chunks.fault));
    if (n < 0) {
        r->state = RELAY_OVER;
        return true;
    }
    put_chunk(&to->out, piece, put);
    if (n == 1)
        buf_add_text(&to->out, "0\r\n\r\n");
    r->request_done = n == 1;
    side_take(from, taken);
    return taken > 0 || put > 0;
}

/* --- the answer --- */

static bool take_answer_head(struct broker_relay *r)
{
    struct http_head *h = &r->answer;
    ssize_t n = side_has(&r->outer) ? http_head_parse(h, side_bytes(&r->outer), side_has(&r->outer)) : 0;

    if (n == 0)
        return r->outer.has_ended && answer_gone(r, "it closed the connection without an answer");
    if (n < 0)
        return answer_gone(r, http_fault_text(h->fault));
    bool is_last = h->status >= 200;
    if (h->status == 101)
        return answer_gone(r, "it changed the protocol, unasked");
    r->answer_body = is_last ? http_head_response_body(h, r->was_head) : HTTP_BODY_NONE;
    if (is_last)
        r->must_close = !r->keeps_alive || !h->keep_alive || !r->request_done ||
                        r->answer_body == HTTP_BODY_UNTIL_CLOSE;
    bool is_passed = is_last || h->status != 100 || r->wants_continue;
    if (is_last && message_is_encoded(h))
        return answer_gone(r, "it sent an answer with a Content-Encoding, although it was asked for none: a value in a "
                           "compressed answer could not be masked");
    if (is_passed && !message_answer(h, r->answer_body, is_last && r->must_close, &r->mask, &r->inner.out))
        return answer_gone(r, "its answer's head is too long");
    r->answer_begun |= is_passed && is_last;
    r->has_answer_head = is_last;
    r->answer_left = h->length > 0 ? (uint64_t)h->length : 0;
    r->answer_done = is_last && (r->answer_body == HTTP_BODY_NONE ||
                                 (r->answer_body == HTTP_BODY_LENGTH && r->answer_left == 0));
    side_take(&r->outer, (size_t)n);
    if (!is_last)
        http_head_init(h, true);
    return true;
}

/* Whether the upstream has begun something and must go on: then there is no pause. */
static bool owes_more(const struct broker_relay *r)
{
    return r->answer_body == HTTP_BODY_LENGTH ||
           (r->answer_body == HTTP_BODY_CHUNKED && !http_chunked_is_between(&r->answer_chunks));
}

static void watch_for_pause(struct broker_relay *r)
{
    uint64_t since_full_ms = loop_now_ms() - r->full_ms;
    uint64_t wait_ms = since_full_ms + PAUSE_MS < STALL_MS ? STALL_MS - since_full_ms : PAUSE_MS;

    if (r->answer_done || r->mask.n_held == 0 || owes_more(r))
        loop_timer_cancel(loop_of(r), &r->pause);
    else
        loop_timer_set(loop_of(r), &r->pause, wait_ms);
}

/* A masked part of the body. is_last: nothing comes after it. */
static void pass_on(struct broker_relay *r, const struct buf *masked, bool is_last)
{
    bool in_chunks = r->answer_body != HTTP_BODY_LENGTH;

    if (in_chunks)
        put_chunk(&r->inner.out, masked->data, masked->length);
    else
        buf_add(&r->inner.out, masked->data, masked->length);
    if (in_chunks && is_last)
        buf_add_text(&r->inner.out, "0\r\n\r\n");
    if (buf_error(masked) < 0 || buf_error(&r->inner.out) < 0)
        r->state = RELAY_OVER;
    r->answer_done = is_last;
}

/* Masks a part of the body and passes it on. is_last: nothing comes after it. */
static void put_masked(struct broker_relay *r, const char *data, size_t size, bool is_last)
{
    struct buf masked;

    buf_init(&masked, PIECE_BYTES + MASK_VALUE_MOST);
    mask_feed(&r->mask, data, size, &masked);
    if (is_last)
        mask_end(&r->mask, &masked);
    pass_on(r, &masked, is_last);
    buf_done(&masked);
    watch_for_pause(r);
}

static bool take_answer_body(struct broker_relay *r)
{
    static char piece[PIECE_BYTES];
    struct side *from = &r->outer;
    size_t taken = side_has(from) < sizeof piece ? side_has(from) : sizeof piece, put = 0;

    if (taken == 0 && !from->has_ended)
        return false;
    if (taken == 0 && r->answer_body == HTTP_BODY_UNTIL_CLOSE && !from->is_cut) {
        put_masked(r, NULL, 0, true);
        return true;
    }
    if (taken == 0) {
        r->state = RELAY_OVER;      /* it broke off: the program must not take it for the end */
        return true;
    }
    if (r->answer_body == HTTP_BODY_CHUNKED) {
        int n = http_chunked_decode(&r->answer_chunks, side_bytes(from), taken, piece, sizeof piece, &taken, &put);
        if (n < 0)
            r->state = RELAY_OVER;
        else
            put_masked(r, piece, put, n == 1);
        side_take(from, taken);
        return true;
    }
    bool has_length = r->answer_body == HTTP_BODY_LENGTH;
    if (has_length && taken > r->answer_left)
        taken = (size_t)r->answer_left;
    r->answer_left -= has_length ? taken : 0;
    put_masked(r, side_bytes(from), taken, has_length && r->answer_left == 0);
    side_take(from, taken);
    return true;
}

static bool exchange(struct broker_relay *r)
{
    bool has_moved = take_request_body(r);

    if (r->state != RELAY_EXCHANGE)
        return has_moved;
    if (side_waiting(&r->inner) >= SIDE_OUT_FULL) {
        r->full_ms = loop_now_ms();
        return has_moved;
    }
    if (!r->has_answer_head)
        has_moved |= take_answer_head(r);
    else if (!r->answer_done)
        has_moved |= take_answer_body(r);
    if (buf_error(&r->inner.out) < 0 || buf_error(&r->outer.out) < 0)
        r->state = RELAY_OVER;
    if (r->state != RELAY_EXCHANGE || !r->answer_done)
        return has_moved;
    if (r->must_close)
        finish(r);
    else
        begin_head(r);
    return true;
}

/* --- the connection --- */

static void note_failure(struct broker_relay *r)
{
    long verified = SSL_get_verify_result(r->outer.tls);
    unsigned long code = ERR_peek_last_error();
    const char *reason = ERR_reason_error_string(code);

    if (verified != X509_V_OK)
        snprintf(r->outer_failure, sizeof r->outer_failure, "its certificate is not accepted (%s); the broker trusts "
                 "this host's authorities", X509_verify_cert_error_string(verified));
    else
        snprintf(r->outer_failure, sizeof r->outer_failure, "it does not answer in TLS (%s)",
                 reason ? reason : "it closed the connection");
    ERR_clear_error();
    side_close(&r->outer, loop_of(r));
}

static bool shake_hands(struct broker_relay *r)
{
    bool has_moved = false;

    if (side_shake_hands(&r->outer)) {
        has_moved = true;
        if (!r->outer.is_open)
            note_failure(r);
        if (r->inner.is_open)
            start_timer(r, IDLE_MS);
    }
    if (side_shake_hands(&r->inner)) {
        has_moved = true;
        if (!r->inner.is_open)
            r->state = RELAY_OVER;
        else
            begin_head(r);
    }
    return has_moved;
}

static bool advance(struct broker_relay *r)
{
    if (!r->inner.is_open)
        return false;
    switch (r->state) {
    case RELAY_HEAD:
        return take_head(r);
    case RELAY_EXCHANGE:
        return exchange(r);
    case RELAY_FINISHING:
        if (side_waiting(&r->inner) > 0 && !r->inner.is_deaf)
            return false;
        side_finish(&r->inner);
        r->state = RELAY_LINGER;
        start_timer(r, LINGER_MS);
        return true;
    case RELAY_LINGER:
        side_take(&r->inner, side_has(&r->inner));
        if (r->inner.has_ended)
            r->state = RELAY_OVER;
        return r->inner.has_ended;
    case RELAY_OVER:
        return false;
    }
    return false;
}

static void step(struct broker_relay *r)
{
    struct loop *l = loop_of(r);
    bool has_moved = true;

    for (int i = 0; i < ROUNDS && has_moved && r->state != RELAY_OVER; i++) {
        has_moved = shake_hands(r);
        has_moved |= side_fill(&r->inner);
        has_moved |= side_fill(&r->outer);
        if (r->state != RELAY_OVER)
            has_moved |= advance(r);
        has_moved |= side_flush(&r->inner);
        has_moved |= side_flush(&r->outer);
        /* No program reads the answer. */
        if (r->inner.is_open && r->inner.is_deaf && r->state != RELAY_LINGER)
            r->state = RELAY_OVER;
    }
    if (r->state == RELAY_OVER) {
        end(r);
        return;
    }
    if (has_moved)
        loop_task_add(l, &r->again);
    side_rearm(&r->inner, l);
    side_rearm(&r->outer, l);
}

static void on_again(struct loop_task *t)
{
    step(container_of(t, struct broker_relay, again));
}

static void on_inner(struct loop_fd *w, uint32_t events)
{
    struct side *s = container_of(w, struct side, watch);
    struct broker_relay *r = container_of(s, struct broker_relay, inner);

    /* Hung up: egress cut the connection, or the program is gone. */
    if (events & (EPOLLHUP | EPOLLERR))
        end(r);
    else
        step(r);
}

static void on_outer(struct loop_fd *w, uint32_t events)
{
    struct side *s = container_of(w, struct side, watch);

    s->has_hung_up |= (events & (EPOLLHUP | EPOLLERR)) != 0;
    step(container_of(s, struct broker_relay, outer));
}

/* Bytes that came meanwhile go first; they may be the rest of a value. */
static void on_pause(struct loop_timer *t)
{
    struct broker_relay *r = container_of(t, struct broker_relay, pause);
    bool has_more = side_fill(&r->outer) || side_has(&r->outer) > 0;
    struct buf held;

    if (r->state != RELAY_EXCHANGE)
        return;
    if (side_waiting(&r->inner) >= SIDE_OUT_FULL) {
        loop_timer_set(loop_of(r), &r->pause, PAUSE_MS);
    } else if (!has_more) {
        buf_init(&held, MASK_VALUE_MOST);
        mask_release(&r->mask, &held);
        pass_on(r, &held, false);
        buf_done(&held);
    }
    step(r);
}

static void on_timer(struct loop_timer *t)
{
    struct broker_relay *r = container_of(t, struct broker_relay, timer);

    if (r->inner.is_open && outer_is_undecided(r)) {
        snprintf(r->outer_failure, sizeof r->outer_failure, "it did not answer in TLS for %d seconds",
                 OPENING_MS / 1000);
        side_close(&r->outer, loop_of(r));
        start_timer(r, IDLE_MS);
        step(r);
        return;
    }
    end(r);
}

void relay_open(struct keybox *box, struct broker_host *host, int from_box, int upstream)
{
    struct broker *b = box->broker;
    struct broker_relay *r = box->n_relays < BROKER_CONNECTIONS && b->n_relays < BROKER_CONNECTIONS_ALL
                          ? calloc(1, sizeof *r) : NULL;

    if (!r) {
        fd_close(from_box);
        fd_close(upstream);
        return;
    }
    *r = (struct broker_relay){ .box = box, .host = host, .state = RELAY_HEAD,
                         .inner.watch = { .fd = -1, .on_event = on_inner },
                         .outer.watch = { .fd = -1, .on_event = on_outer } };
    r->timer.on_expire = on_timer;
    r->pause.on_expire = on_pause;
    r->again.on_run = on_again;
    LIST_ADD(box->relays, r);
    box->n_relays++;
    b->n_relays++;
    int inner = side_open(&r->inner, b->loop, from_box, broker_tls_inward(box, host));
    int outer = side_open(&r->outer, b->loop, upstream, broker_tls_outward(b, host->rules.name));
    if (inner < 0 || outer < 0) {
        end(r);
        return;
    }
    start_timer(r, OPENING_MS);
}

void relay_end_all(struct keybox *box)
{
    for (struct broker_relay *r = box->relays, *next; r; r = next) {
        next = r->next;
        end(r);
    }
}
