/* The link: one SOCK_SEQPACKET socket between the front and an interpreter in a box, which is the interpreter's
 * standard input. kernel.h and service.h define the messages.
 *
 * A message travels in packets: a struct link_packet, then the message's bytes from that offset on. Packets of two
 * messages do not mix. A reader that gets a packet with offset 0 drops an incomplete message; a new reader (the next
 * front, a bridge) skips packets until one with offset 0.
 *
 * The interpreter is untrusted. Its messages are checked before they are used, and one that breaks these rules ends it.
 * tools/gen-guest.c writes the Python side of this file, kernel.h, service.h and zygote.h. */
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
    uint32_t offset;        /* of this packet's bytes in the message */
};
_Static_assert(sizeof(struct link_packet) == 8, "nothing is between the fields");

/* The exit status of an interpreter that cannot do its job and never will. The last line on its standard error is then
 * a JSON object with these texts; LINK_HINT is the remedy. */
enum { LINK_UNFIT = 78 };
#define LINK_ERROR "error"
#define LINK_HINT  "hint"

#endif
