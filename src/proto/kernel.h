/* Messages of kernels, on the link (link.h) and elsewhere. There is one layout, v1.kernel.websocket.jupyter.org, so
 * that a message goes to and from a browser's WebSocket unchanged:
 *
 *     u64 n, u64 offset[n], channel, header, parent, metadata, content, buffers …
 *
 * Numbers are little endian. Each part begins at its offset and ends where the next begins; the last offset is the end
 * of the message. The channel is one of the names below, the four parts are JSON objects, buffers are any bytes.
 * Jupyter's messaging protocol defines the objects. */
#ifndef CARREL_PROTO_KERNEL_H
#define CARREL_PROTO_KERNEL_H

#include <stddef.h>

#include "proto/link.h"

enum kernel_channel { KERNEL_SHELL, KERNEL_CONTROL, KERNEL_IOPUB, KERNEL_STDIN, KERNEL_CHANNELS };
enum kernel_part { PART_HEADER, PART_PARENT, PART_METADATA, PART_CONTENT, KERNEL_PARTS };

enum {
    KERNEL_OFFSETS_LEAST = 1 + KERNEL_PARTS + 1,    /* of the channel, the parts and the end */
    KERNEL_BUFFERS_MOST = 4096,
    KERNEL_MESSAGE_LEAST = 8 * (1 + KERNEL_OFFSETS_LEAST),
};
_Static_assert((int)KERNEL_MESSAGE_LEAST < (int)LINK_PACKET, "a small message is one packet");

/* NULL for an invalid number. */
const char         *kernel_channel_name(enum kernel_channel channel);
/* KERNEL_CHANNELS: no such name. */
enum kernel_channel kernel_channel_find(const char *name, size_t size);

/* In the guest's folder: the program of a kernel and of a family's zygote; and the bridge for a stock kernel. */
#define KERNEL_PROGRAM    "carrel_kernel"
#define KERNEL_AS_KERNEL  "kernel"
#define KERNEL_AS_ZYGOTE  "zygote"
#define KERNEL_IMPORTS    "--imports"       /* of a zygote: names of modules, separated by commas */
#define KERNEL_STARTUP    "--startup"       /* a folder of files to run before the first cell */
#define BRIDGE_PROGRAM    "carrel-bridge"
#define BRIDGE_BY_MESSAGE "--interrupt-by-message"
#define BRIDGE_COMMAND    "--"              /* the stock kernel's command follows */

#endif
