/* A peer may say anything, in any pieces: a message that comes out has parts of which all bytes can be read; the same
 * bytes as a v1 message, and what they become on the other side, likewise. */
#include "fuzz.h"

#include "zmtp/wire.h"

static unsigned sum;

static void touch(const struct iovec *part, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < part[i].iov_len; k++)
            sum += ((const uint8_t *)part[i].iov_base)[k];
}

static void on_message(struct zmtp *z, const struct iovec *part, size_t n, void *arg)
{
    static const struct wire_key none;
    struct wire w, again;
    struct buf v1;

    (void)z;
    (void)arg;
    HOLDS(n > 0 && n <= ZMTP_PARTS);
    touch(part, n);
    if (wire_from_zmq(&none, part, n, &w) < 0)
        return;
    buf_init(&v1, 1 << 24);
    wire_to_v1(&w, KERNEL_SHELL, &v1);
    HOLDS(buf_error(&v1) == 0 && wire_from_v1(v1.data, v1.length, &again) == 0);
    HOLDS(again.n_buffers == w.n_buffers && again.part[PART_CONTENT].iov_len == w.part[PART_CONTENT].iov_len);
    buf_done(&v1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wire w;
    struct zmtp z;

    if (size < 2)
        return 0;
    if (wire_from_v1(data, size, &w) == 0) {
        touch(w.part, KERNEL_PARTS);
        touch(w.buffer, w.n_buffers);
    }
    zmtp_open(&z, (enum zmtp_type)(data[0] % 5), NULL, 0);
    if (data[0] & 0x80) {       /* past the greeting, which is hard to guess */
        uint8_t greeting[64] = { 0xff, [9] = 0x7f, [10] = 3, [12] = 'N', 'U', 'L', 'L' };
        HOLDS(zmtp_feed(&z, greeting, sizeof greeting, on_message, NULL) == 0);
        if (data[0] & 0x40)
            HOLDS(zmtp_feed(&z, "\4\6\5READY", 8, on_message, NULL) == 0);
    }
    size_t piece = (size_t)data[1] + 1, at = 2;
    while (at < size) {
        size_t n = size - at < piece ? size - at : piece;
        if (zmtp_feed(&z, data + at, n, on_message, NULL) < 0)
            break;
        at += n;
    }
    zmtp_close(&z);
    return 0;
}
