#define _GNU_SOURCE
#include "sys/nlmsg.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>

void nlmsg_init(struct nlmsg *m)
{
    m->length = m->start = 0;
    m->serial = 0;
    m->asked = 0;
    m->full = false;
}

/* Room for size bytes, padded to four, or NULL. */
static void *take(struct nlmsg *m, size_t size)
{
    size_t padded = NLMSG_ALIGN(size);

    if (m->full || padded > sizeof m->data - m->length) {
        m->full = true;
        return NULL;
    }
    void *at = m->data + m->length;
    memset(at, 0, padded);
    m->length += padded;
    return at;
}

void nlmsg_begin(struct nlmsg *m, uint16_t type, uint16_t flags, const void *body, size_t size)
{
    m->start = m->length;
    struct nlmsghdr *header = take(m, sizeof *header);
    void *at = take(m, size);

    if (!header || !at)
        return;
    header->nlmsg_type = type;
    header->nlmsg_flags = (uint16_t)(flags | NLM_F_REQUEST);
    header->nlmsg_seq = ++m->serial;
    memcpy(at, body, size);
    m->asked += (flags & NLM_F_ACK) != 0;
}

void nlmsg_end(struct nlmsg *m)
{
    uint32_t length = (uint32_t)(m->length - m->start);

    if (!m->full)
        memcpy(m->data + m->start, &length, sizeof length);
}

void nlmsg_put(struct nlmsg *m, uint16_t type, const void *data, size_t size)
{
    struct nlattr *attribute = take(m, sizeof *attribute + size);

    if (!attribute)
        return;
    attribute->nla_len = (uint16_t)(sizeof *attribute + size);
    attribute->nla_type = type;
    memcpy(attribute + 1, data, size);
}

void nlmsg_put_text(struct nlmsg *m, uint16_t type, const char *text)
{
    nlmsg_put(m, type, text, strlen(text) + 1);
}

void nlmsg_put_u32(struct nlmsg *m, uint16_t type, uint32_t value)
{
    nlmsg_put(m, type, &value, sizeof value);
}

void nlmsg_put_be32(struct nlmsg *m, uint16_t type, uint32_t value)
{
    nlmsg_put_u32(m, type, htonl(value));
}

void nlmsg_put_be16(struct nlmsg *m, uint16_t type, uint16_t value)
{
    value = htons(value);
    nlmsg_put(m, type, &value, sizeof value);
}

size_t nlmsg_nest(struct nlmsg *m, uint16_t type)
{
    size_t nest = m->length;

    nlmsg_put(m, type | NLA_F_NESTED, NULL, 0);
    return nest;
}

void nlmsg_unnest(struct nlmsg *m, size_t nest)
{
    uint16_t length = (uint16_t)(m->length - nest);

    if (!m->full)
        memcpy(m->data + nest, &length, sizeof length);
}

int nlmsg_send(int fd, const struct nlmsg *m)
{
    alignas(4) char answer[8192];
    unsigned answered = 0;
    int first = 0;

    if (m->full)
        return -EMSGSIZE;
    if (send(fd, m->data, m->length, 0) < 0)
        return -errno;
    while (answered < m->asked) {
        ssize_t n = recv(fd, answer, sizeof answer, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        int left = (int)n;
        for (struct nlmsghdr *h = (void *)answer; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
            if (h->nlmsg_type != NLMSG_ERROR || h->nlmsg_len < NLMSG_LENGTH(sizeof(int)))
                continue;
            int error;
            memcpy(&error, NLMSG_DATA(h), sizeof error);
            if (error < 0 && first == 0)
                first = error;
            /* The kernel may answer a refused batch only once. */
            if (error < 0)
                return first;
            answered++;
        }
    }
    return first;
}
