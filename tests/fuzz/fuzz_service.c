/* What a service's worker may send: messages of any bytes over its link, while it loads and while calls wait for it.
 * Whatever they are, nothing is read beyond them; each call ends at most once, with an outcome that may come from a
 * worker and a value that is JSON; what is taken for a description of functions has all that is shown of one. The first
 * byte says in which state the service is; each message of the input has two bytes of length before it. */
#include "fuzz.h"

#include <sys/socket.h>
#include <unistd.h>

#include "base/budget.h"
#include "front/links/guest_link.c"
#include "front/links/guest_message.c"
#include "front/services/service_call.c"
#include "front/services/service_link.c"
#include "front/services/service_turns.c"

/* ---- what is not here ---- */

int loop_fd_add(struct loop *l, struct loop_fd *w, int fd, uint32_t events)
{
    (void)l;
    (void)fd;
    w->events = events;
    w->watching = true;
    return 0;
}

int loop_fd_set(struct loop *l, struct loop_fd *w, uint32_t events)
{
    (void)l;
    w->events = events;
    return 0;
}

void loop_fd_remove(struct loop *l, struct loop_fd *w)
{
    (void)l;
    w->watching = false;
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t delay_ms)
{
    (void)l;
    (void)t;
    (void)delay_ms;
}

void loop_timer_cancel(struct loop *l, struct loop_timer *t)
{
    (void)l;
    (void)t;
}

void loop_task_add(struct loop *l, struct loop_task *t)
{
    (void)l;
    (void)t;
}

uint64_t loop_now_us(void)
{
    return 1;
}

int64_t front_now_ms(void)
{
    return 1;
}

json_t *front_time_json(int64_t ms)
{
    return json_integer(ms);
}

void front_log(const char *level, const char *message, ...)
{
    HOLDS(level && message);
}

void exec_pull(struct exec *x)
{
    (void)x;
}

int exec_signal(struct exec *x, int signal, struct err *e)
{
    (void)x;
    (void)signal;
    (void)e;
    return 0;
}

void box_touch(struct box *b)
{
    (void)b;
}

const char *const phase_names[PHASE_COUNT] = { "" };

static bool condemned;

void service_condemn(struct service *s, enum outcome outcome, const char *why)
{
    HOLDS(outcome && why && why[0]);
    s->private->end_outcome = outcome;
    condemned = true;
}

bool service_keep(struct service *s, size_t described_bytes)
{
    (void)s;
    return described_bytes < 1 << 20;
}

void service_set_state(struct service *s, enum service_state state)
{
    s->state = state;
}

void service_tell_print(struct service *s, const char *stream, struct jsonslice text)
{
    HOLDS(s->state == SERVICE_LOADING && stream && jsonscan_is_value(text.data, text.size) && text.data[0] == '"');
}

const json_t *service_function(const struct service *s, const char *name)
{
    (void)s;
    (void)name;
    static json_t *plain;
    if (!plain)
        plain = json_object();
    return plain;
}

/* ---- the test ---- */

static unsigned ended;

static void call_over(struct service_call *c)
{
    ended++;
    HOLDS(c->outcome <= CALL_INVALID && jsonscan_is_value(c->result.data, c->result.size));
    HOLDS(c->outcome == CALL_OK || c->result.data[0] == '{');
}

static void call_print(struct service_call *c, const char *stream, struct jsonslice text)
{
    HOLDS(c && stream && jsonscan_is_value(text.data, text.size) && text.data[0] == '"');
}

static void start_calls(struct service *s)
{
    struct call_options o = { .function = "f", .who = "w", .on_end = call_over, .on_print = call_print };
    struct service_call *c;
    struct err e;

    s->private->calls_end = &s->private->calls;
    for (unsigned i = 1; i <= 2; i++) {
        HOLDS(service_call_start(s, &o, &c, &e) == 0);
        c->id = i;              /* by chance it would be nothing that the fuzzer finds */
    }
}

static void check_functions(const struct service *s)
{
    size_t i;
    json_t *f;

    json_array_foreach(s->functions, i, f) {
        HOLDS(json_is_string(json_object_get(f, "name")) && json_is_string(json_object_get(f, "doc")));
        HOLDS(json_is_object(json_object_get(f, "input_schema")) && json_is_boolean(json_object_get(f, "async")));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct front front;
    struct box box = { .id = "b", .phase = PHASE_RUNNING };
    char name[] = "s";
    struct service s = { .front = &front, .box = &box, .name = name, .owner = name };
    struct service_private p = { .service = &s };
    char packet_out[sizeof(struct link_packet) + 65536];
    int pair[2];

    if (size < 1)
        return 0;
    HOLDS(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    s.private = &p;
    s.functions = json_array();
    s.state = data[0] & 1 ? SERVICE_READY : SERVICE_LOADING;
    condemned = false;
    ended = 0;
    service_link_init(&s);
    HOLDS(guest_link_open(&p.link, pair[0], false) == 0);
    start_calls(&s);
    data++;
    size--;
    while (size >= 2 && !condemned) {
        size_t n = (size_t)(data[0] | data[1] << 8) % 4096;
        n = n > size - 2 ? size - 2 : n;
        struct link_packet head = { .total = (uint32_t)n };
        memcpy(packet_out, &head, sizeof head);
        memcpy(packet_out + sizeof head, data + 2, n);
        (void)!send(pair[1], packet_out, sizeof head + n, MSG_DONTWAIT | MSG_NOSIGNAL);
        guest_link_drain(&p.link);
        service_pump(&s);
        data += 2 + n;
        size -= 2 + n;
    }
    HOLDS(ended <= 2);
    check_functions(&s);
    for (struct service_call *c = p.calls; c; c = c->next)
        c->options.on_end = NULL;
    s.outcome = OUTCOME_ERROR;
    service_calls_end(&s, CALL_DIED, true);
    HOLDS(s.n_calls == 0 && p.queued_bytes == 0 && !p.holders);
    guest_link_close(&p.link);
    free(p.log);
    json_decref(s.functions);
    json_decref(s.error);
    close(pair[0]);
    close(pair[1]);
    return 0;
}
