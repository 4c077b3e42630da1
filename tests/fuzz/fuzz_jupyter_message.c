/* What a WebSocket client may say to a kernel, in both protocols and in the form that some relays send by mistake.
 * Whatever it is, nothing is read beyond it; what comes through has parts that lie in it, a header that says type, id
 * and session, and can be written in the default protocol's form, which reads as the same again. The first byte chooses
 * the protocol and how the rest is packed, so that whole messages are found soon. */
#include "fuzz.h"

#include <stdio.h>

#include "doors/jupyter/message.c"
#include "front/kernels/kernel_message.c"
#include "front/links/guest_message.c"

/* What message.c has from the rest of the front. */
int64_t front_now_ms(void)
{
    return 1767225600000;
}

void jupyter_time(int64_t ms, char text[40])
{
    snprintf(text, 40, "%lld", (long long)ms);
}

void jupyter_uuid(char text[37])
{
    snprintf(text, 37, "00000000-0000-4000-8000-000000000000");
}

static bool lies_in(const struct iovec *v, const char *data, size_t size)
{
    const char *at = v->iov_base;
    return at >= data && at <= data + size && v->iov_len <= (size_t)(data + size - at);
}

static void check_parts(const struct client_message *p, const char *data, size_t size)
{
    HOLDS(p->channel < KERNEL_CHANNELS && p->n_buffers <= KERNEL_BUFFERS_MOST);
    for (int i = 0; i < KERNEL_PARTS; i++) {
        const struct iovec *v = &p->part[i];
        HOLDS(lies_in(v, data, size) || (v->iov_len == 2 && memcmp(v->iov_base, "{}", 2) == 0));
    }
    for (unsigned i = 0; i < p->n_buffers; i++)
        HOLDS(lies_in(&p->buffer[i], data, size));
}

static bool same(struct iovec a, struct iovec b)
{
    return a.iov_len == b.iov_len && (a.iov_len == 0 || memcmp(a.iov_base, b.iov_base, a.iov_len) == 0);
}

/* What a kernel would answer with the same parts, told to a client of the old protocol, is what was said. */
static void check_round_trip(const struct client_message *p)
{
    struct kernel_message *m;
    struct client_message again;
    struct err e = { 0 };
    bool is_text;
    size_t size;

    if (kernel_message_make(p->channel, p->part, p->buffer, p->n_buffers, &m, &e) < 0)
        return;             /* a part is no JSON object, which kernel_send() would have found, too */
    char *data = message_default(m, &size, &is_text);
    HOLDS(data && is_text == (p->n_buffers == 0));
    int r = is_text ? client_message_read_text(&again, data, size, &e)
                    : client_message_read_binary(&again, data, size, &e);
    HOLDS(r == 0 && again.channel == p->channel && again.n_buffers == p->n_buffers);
    for (int i = 0; i < KERNEL_PARTS; i++)
        HOLDS(same(again.part[i], p->part[i]));
    for (unsigned i = 0; i < p->n_buffers; i++)
        HOLDS(same(again.buffer[i], p->buffer[i]));
    client_message_done(&again);
    free(data);
    kernel_message_unref(m);
}

static void check_completed(const struct client_message *p)
{
    const struct jsonslice header = { p->part[PART_HEADER].iov_base, p->part[PART_HEADER].iov_len };

    HOLDS(p->type[0] && strlen(p->type) < sizeof p->type && p->id[0] && strlen(p->id) < sizeof p->id);
    HOLDS(p->session[0] && strlen(p->session) < sizeof p->session);
    HOLDS(jsonscan_is_object(header.data, header.size));
    for (int i = 0; i < 4; i++)
        HOLDS(is_there(jsonscan_find(header, ((const char *const[]){ "session", "username", "version", "date" })[i])));
    check_round_trip(p);
}

/* Offsets for what the input only says the lengths of: each part has two bytes of length before it. */
static char *pack(const uint8_t *data, size_t size, bool is_v1, size_t *ret_size)
{
    size_t n = 0, width = is_v1 ? 8 : 4, length[64], at = 0;
    const uint8_t *start[64];

    while (size - at >= 2 && n < 64) {
        length[n] = (size_t)(data[at] | data[at + 1] << 8);
        start[n] = data + at + 2;
        length[n] = length[n] > size - at - 2 ? size - at - 2 : length[n];
        at += 2 + length[n++];
    }
    size_t numbers = is_v1 ? n + 2 : n + 1, end = width * numbers;
    char *out = calloc(1, end + size + 1);
    HOLDS(out);
    for (size_t i = 0; i < numbers; i++) {
        uint64_t value = i == 0 ? numbers - 1 : end;
        if (is_v1)
            memcpy(out + 8 * i, &(uint64_t){ htole64(value) }, 8);
        else
            memcpy(out + 4 * i, &(uint32_t){ htobe32((uint32_t)value) }, 4);
        if (i >= 1 && i <= n) {
            memcpy(out + end, start[i - 1], length[i - 1]);
            end += length[i - 1];
        }
    }
    *ret_size = end;
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int (*const read[])(struct client_message *, const char *, size_t, struct err *) = {
        client_message_read_v1, client_message_read_text, client_message_read_binary
    };
    struct client_message p;
    struct err e = { 0 };

    if (size < 1)
        return 0;
    unsigned how = data[0] % 3, is_packed = data[0] & 0x80 && how != 1;
    size_t n = size - 1;
    char *text = is_packed ? pack(data + 1, n, how == 0, &n) : fuzz_string(data + 1, n);
    int r = read[how](&p, text, n, &e);
    if (r == 0) {
        check_parts(&p, text, n);
        r = client_message_complete(&p, "of-the-url", "somebody", &e);
    }
    if (r == 0)
        check_completed(&p);
    else
        fuzz_check_refusal(r, &e);
    client_message_done(&p);
    free(text);
    return 0;
}
