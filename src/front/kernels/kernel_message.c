/* Messages in the layout of proto/kernel.h. Their JSON objects are scanned, without building trees. */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/list.h"
#include "front/kernels/kernel_message.h"

struct kernel_message *kernel_message_of(struct guest_message *raw)
{
    return raw ? container_of(raw, struct kernel_message, raw) : NULL;
}

struct kernel_message *kernel_message_new(size_t size)
{
    return kernel_message_of(guest_message_new(offsetof(struct kernel_message, raw), size));
}

void kernel_message_ref(struct kernel_message *m)
{
    guest_message_ref(&m->raw);
}

void kernel_message_unref(struct kernel_message *m)
{
    if (m)
        guest_message_unref(&m->raw);
}

static uint64_t number_at(const struct kernel_message *m, size_t i)
{
    uint64_t value;

    memcpy(&value, m->raw.data + 8 * i, 8);
    return le64toh(value);
}

/* The part between the i-th offset and the next; the offsets are checked. */
static struct iovec part_at(const struct kernel_message *m, size_t i)
{
    uint64_t from = number_at(m, 1 + i), to = number_at(m, 2 + i);

    return (struct iovec){ .iov_base = (char *)(uintptr_t)m->raw.data + from, .iov_len = (size_t)(to - from) };
}

struct iovec kernel_message_buffer(const struct kernel_message *m, unsigned i)
{
    return i < m->n_buffers ? part_at(m, 1 + KERNEL_PARTS + i) : (struct iovec){ 0 };
}

struct jsonslice kernel_message_part(const struct kernel_message *m, enum kernel_part part)
{
    return (struct jsonslice){ .data = m->part[part].iov_base, .size = m->part[part].iov_len };
}

static const char *read_offsets(struct kernel_message *m)
{
    if (m->raw.size < KERNEL_MESSAGE_LEAST || m->raw.size > LINK_MESSAGE_MOST)
        return "a message of an impossible size";
    uint64_t n = number_at(m, 0);
    if (n < KERNEL_OFFSETS_LEAST || n > KERNEL_OFFSETS_LEAST + KERNEL_BUFFERS_MOST || 8 * (n + 1) > m->raw.size)
        return "a message with an impossible number of parts";
    uint64_t last = 8 * (n + 1);
    if (number_at(m, 1) != last)
        return "a message whose parts do not begin after its offsets";
    for (size_t i = 2; i <= n; i++) {
        uint64_t next = number_at(m, i);
        if (next < last || next > m->raw.size)
            return "a message with wrong offsets";
        last = next;
    }
    if (last != m->raw.size)
        return "a message that does not end where its offsets say";
    m->n_buffers = (unsigned)(n - KERNEL_OFFSETS_LEAST);
    return NULL;
}

static const char *read_channel(struct kernel_message *m)
{
    struct iovec name = part_at(m, 0);

    m->channel = kernel_channel_find(name.iov_base, name.iov_len);
    return m->channel < KERNEL_CHANNELS ? NULL : "a message on an unknown channel";
}

/* A missing member is ""; a present one must be valid. */
static bool read_text(struct jsonslice header, const char *name, char *text, size_t size)
{
    struct jsonslice value = jsonscan_find(header, name);

    text[0] = '\0';
    return !value.data || (value.size == 4 && memcmp(value.data, "null", 4) == 0) || jsonscan_text(value, text, size);
}

const char *kernel_message_read(struct kernel_message *m)
{
    const char *wrong = read_offsets(m);

    if (!wrong)
        wrong = read_channel(m);
    for (unsigned i = 0; i < KERNEL_PARTS && !wrong; i++) {
        m->part[i] = part_at(m, 1 + i);
        if (!jsonscan_is_object(m->part[i].iov_base, m->part[i].iov_len))
            wrong = "a message with a part that is not a JSON object";
    }
    if (wrong)
        return wrong;
    struct jsonslice header = kernel_message_part(m, PART_HEADER), parent = kernel_message_part(m, PART_PARENT);
    if (!read_text(header, "msg_type", m->type, sizeof m->type) || !m->type[0] ||
        !read_text(header, "msg_id", m->id, sizeof m->id) || !m->id[0])
        return "a message whose header lacks msg_id or msg_type";
    if (!read_text(parent, "msg_type", m->parent_type, sizeof m->parent_type) ||
        !read_text(parent, "msg_id", m->parent_id, sizeof m->parent_id) ||
        !read_text(parent, "session", m->parent_session, sizeof m->parent_session))
        return "a message with a wrong parent";
    return NULL;
}

static void put_number(struct kernel_message *m, size_t i, uint64_t value)
{
    value = htole64(value);
    memcpy(m->raw.data + 8 * i, &value, 8);
}

int kernel_message_make(enum kernel_channel channel, const struct iovec part[KERNEL_PARTS], const struct iovec *buffer,
                        unsigned n_buffers, struct kernel_message **ret, struct err *e)
{
    const char *name = kernel_channel_name(channel);
    size_t n = KERNEL_OFFSETS_LEAST + n_buffers, size = 8 * (n + 1) + strlen(name);

    if (n_buffers > KERNEL_BUFFERS_MOST)
        return err_set(e, EINVAL, STEP_USAGE, "a message may have %d buffers", KERNEL_BUFFERS_MOST);
    for (unsigned i = 0; i < KERNEL_PARTS + n_buffers; i++) {
        size_t more = i < KERNEL_PARTS ? part[i].iov_len : buffer[i - KERNEL_PARTS].iov_len;
        if (more > LINK_MESSAGE_MOST || (size += more) > LINK_MESSAGE_MOST)
            return err_set(e, EMSGSIZE, STEP_USAGE, "a message may have %d bytes", LINK_MESSAGE_MOST);
    }
    struct kernel_message *m = kernel_message_new(size);
    if (!m)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "message");
    put_number(m, 0, n);
    size_t at = 8 * (n + 1);
    put_number(m, 1, at);
    memcpy(m->raw.data + at, name, strlen(name));
    at += strlen(name);
    for (unsigned i = 0; i < KERNEL_PARTS + n_buffers; i++) {
        const struct iovec *from = i < KERNEL_PARTS ? &part[i] : &buffer[i - KERNEL_PARTS];
        put_number(m, 2 + i, at);
        if (from->iov_len)
            memcpy(m->raw.data + at, from->iov_base, from->iov_len);
        at += from->iov_len;
    }
    put_number(m, n, at);
    const char *wrong = kernel_message_read(m);
    if (wrong) {
        kernel_message_unref(m);
        return err_set(e, EINVAL, STEP_USAGE, "this is %s", wrong);
    }
    *ret = m;
    return 0;
}
