/* Output of a kernel's C code and child processes comes through pipes, as bytes. It becomes stream messages of the
 * present or last cell: characters that are cut between two reads are joined, bytes that are not UTF-8 become
 * U+FFFD. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonout.h"
#include "front/front.h"
#include "front/kernels/kernel_private.h"

enum { RAW_MOST = 1 << 20 };

static const char *const names[2] = { "stdout", "stderr" };

/* The number of bytes at the end that begin an incomplete character. */
static size_t cut_bytes(const unsigned char *data, size_t size)
{
    for (size_t back = 1; back <= 3 && back <= size; back++) {
        unsigned char c = data[size - back];
        if ((c & 0xc0) == 0x80)
            continue;
        size_t whole = c >= 0xf0 && c < 0xf5 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;
        return c >= 0x80 && c < 0xf5 && whole > back ? back : 0;
    }
    return 0;
}

static void tell_text(struct kernel *k, unsigned stream, const char *data, size_t size)
{
    struct kernel_private *p = kernel_private(k);
    char header[256], id[64];
    struct kernel_message *m;
    struct err ignored;
    struct jsonout j;
    struct buf content;

    buf_init(&content, size * 6 + 64);
    jsonout_init(&j, &content);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "name", names[stream]);
    jsonout_bytes(&j, "text", data, size);
    jsonout_close(&j);
    snprintf(id, sizeof id, "%s_r%llu", p->session, (unsigned long long)++p->n_asked);
    size_t header_size = kernel_make_header(k, "stream", id, header, sizeof header);
    struct iovec none = { (char *)(uintptr_t)"{}", 2 };
    const struct iovec part[KERNEL_PARTS] = { { header, header_size },
                                              p->parent ? (struct iovec){ p->parent, p->parent_size } : none,
                                              none,
                                              { content.data, content.length } };
    if (jsonout_finish(&j) == 0 && kernel_message_make(KERNEL_IOPUB, part, NULL, 0, &m, &ignored) == 0) {
        kernel_tell(k, m);
        kernel_message_unref(m);
    }
    buf_done(&content);
}

static void keep_tail(struct kernel_private *p, const char *data, size_t size)
{
    if (size >= sizeof p->tail) {
        memcpy(p->tail, data + size - sizeof p->tail, sizeof p->tail);
        p->tail_size = sizeof p->tail;
        return;
    }
    size_t kept = p->tail_size < sizeof p->tail - size ? p->tail_size : sizeof p->tail - size;
    memmove(p->tail, p->tail + p->tail_size - kept, kept);
    memcpy(p->tail + kept, data, size);
    p->tail_size = kept + size;
}

void kernel_raw_take(struct kernel *k, unsigned stream, const char *data, size_t size)
{
    struct kernel_private *p = kernel_private(k);
    struct kernel_raw *raw = &p->raw[stream];

    if (stream == 1)
        keep_tail(p, data, size);
    char *all = malloc(raw->n_part + size);
    if (!all || size > RAW_MOST) {
        free(all);
        return;
    }
    memcpy(all, raw->part, raw->n_part);
    memcpy(all + raw->n_part, data, size);
    size += raw->n_part;
    raw->n_part = (unsigned)cut_bytes((const unsigned char *)all, size);
    size -= raw->n_part;
    memcpy(raw->part, all + size, raw->n_part);
    if (size > 0)
        tell_text(k, stream, all, size);
    free(all);
}

void kernel_raw_end(struct kernel *k)
{
    struct kernel_private *p = kernel_private(k);

    for (unsigned i = 0; i < 2; i++) {
        unsigned n = p->raw[i].n_part;
        p->raw[i].n_part = 0;
        if (n > 0)
            tell_text(k, i, (const char *)p->raw[i].part, n);
    }
}
