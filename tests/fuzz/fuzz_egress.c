/* Frames of a keeper and a front, in any order, with any descriptors: at the end no box and no descriptor is left. Each
 * frame of the input: its type, how many descriptors of which kind, its length, its bytes. */
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fdpass.h"
#include "egress/netbox.h"

static int count_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;

    HOLDS(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static int open_some(uint8_t kind)
{
    static const int types[][2] = { { AF_INET, SOCK_DGRAM }, { AF_INET, SOCK_STREAM }, { AF_INET6, SOCK_STREAM },
                                    { AF_NETLINK, SOCK_RAW } };
    int fd;

    if (kind % 6 == 4)
        fd = open("/dev/null", O_RDWR);
    else if (kind % 6 == 5)
        fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    else
        fd = socket(types[kind % 4][0], types[kind % 4][1], kind % 4 == 3 ? 12 : 0);
    if (fd >= 0 && kind & 0x80 && (kind % 6 == 1 || kind % 6 == 2))
        (void)listen(fd, 1);
    return fd;
}

static void send_frame(int link, const uint8_t *head, const uint8_t *body, size_t size)
{
    static uint8_t frame[sizeof(struct egress_policy)];
    static const size_t sizes[] = { 0, sizeof(struct egress_box), sizeof(struct egress_head),
                                    sizeof(struct egress_head), sizeof(struct egress_policy),
                                    sizeof(struct egress_head) };
    uint32_t type = head[0] % 10;
    int fds[8];
    uint32_t n_rules;
    size_t n = 0, whole = head[0] & 0x80 || type >= 6 || type == 0 ? size : sizes[type];

    memset(frame, 0, sizeof frame);
    memcpy(frame + 8, body, size < sizeof frame - 8 ? size : sizeof frame - 8);
    memcpy(frame, &type, sizeof type);
    memcpy(&n_rules, frame + offsetof(struct egress_policy, policy.n_rules), sizeof n_rules);
    if (type == EGRESS_POLICY && !(head[0] & 0x80) && n_rules <= NET_RULES)
        whole = offsetof(struct egress_policy, policy.rule) + n_rules * sizeof(struct net_rule);
    if (whole > sizeof frame)
        whole = sizeof frame;
    for (; n < head[1] % 8u; n++)
        if ((fds[n] = open_some((uint8_t)(head[2] + n * 37))) < 0)
            break;
    if (whole > 0)
        (void)fdpass_send(link, frame, whole, fds, n, MSG_DONTWAIT);
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct egress e;
    int pair[2], before = count_descriptors(), null = open("/dev/null", O_WRONLY), kept = dup(STDERR_FILENO);

    /* Each bad frame is complained of. */
    HOLDS(null >= 0 && kept >= 0 && dup2(null, STDERR_FILENO) >= 0);
    memset(&e, 0, sizeof e);
    e.spare_fd = -1;
    e.pipes.most_out = 8;
    e.tick.on_expire = netbox_on_tick;
    HOLDS(loop_new(&e.loop) == 0);
    HOLDS(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    HOLDS(link_open(&e, pair[1], true, true) == 0);
    for (size_t at = 0; at + 4 <= size;) {
        size_t length = data[at + 3] < size - at - 4 ? data[at + 3] : size - at - 4;
        send_frame(pair[0], data + at, data + at + 4, length);
        HOLDS(loop_turn(e.loop, 0) == 0);
        at += 4 + length;
    }
    close(pair[0]);
    link_close_all(&e);
    HOLDS(e.n_boxes == 0 && !e.front && !e.links);
    loop_timer_cancel(e.loop, &e.tick);
    loop_free(e.loop);
    HOLDS(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
    close(null);
    HOLDS(count_descriptors() == before);
    return 0;
}
