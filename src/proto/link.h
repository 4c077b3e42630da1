/* The link: what the front and an interpreter in a box say to each other over one SOCK_SEQPACKET socket, which is the
 * interpreter's standard input. What a message is, kernel.h and service.h say.
 *
 * A message travels in packets: a struct link_packet, then the message's bytes from that offset on. Packets of two
 * messages do not mix. Whoever gets one with offset 0 drops what is half there, so whoever comes new to a link (the
 * next front, a bridge) skips packets until such a one.
 *
 * The interpreter is a stranger. What it says is checked before anybody sees it, and what breaks these rules ends it.
 * Python's half of what is here and in kernel.h, service.h and zygote.h is written by tools/gen-guest.c. */
#ifndef CARREL_PROTO_LINK_H
#define CARREL_PROTO_LINK_H

#include <stdint.h>

enum {
    LINK_FD = 0,
    LINK_PACKET = 128 << 10,        /* bytes of the message in one packet, at most */
    LINK_MESSAGE_MOST = 64 << 20,   /* bytes of a message */
};

_Static_assert(LINK_PACKET < LINK_MESSAGE_MOST, "a message may have several packets");

/* Little endian. */
struct link_packet {
    uint32_t total;         /* of the whole message */
    uint32_t offset;        /* of this packet's bytes in it */
};
_Static_assert(sizeof(struct link_packet) == 8, "nothing is between the fields");

/* The status of an interpreter that cannot be what it was started for, and never will. The last line on its standard
 * error is a JSON object then, in which these are texts; LINK_HINT is what to do about it. */
enum { LINK_UNFIT = 78 };
#define LINK_ERROR "error"
#define LINK_HINT  "hint"

#endif
