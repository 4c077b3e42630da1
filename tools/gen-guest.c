/* Writes Python's half of the protocols that interpreters in boxes speak: a module of constants, from the headers in
 * src/proto themselves, so that there is no second place to change.
 *
 * usage: gen-guest kernel|service >proto.py */
#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guest/zygote/zygote.h"
#include "proto/defaults.h"
#include "proto/kernel.h"
#include "proto/service.h"
#include "proto/zygote.h"

static void number(const char *name, long value)
{
    printf("%s = %ld\n", name, value);
}

static void text(const char *name, const char *value)
{
    printf("%s = \"%s\"\n", name, value);
}

/* One of a table, which is called as it reads. */
static void word(const char *value)
{
    if (!value)
        abort();        /* a number without a word in names.c */
    for (const char *c = value; *c; c++)
        putchar(toupper((unsigned char)*c));
    printf(" = \"%s\"\n", value);
}

static void write_link(void)
{
    _Static_assert(offsetof(struct link_packet, total) == 0 && offsetof(struct link_packet, offset) == 4 &&
                       sizeof(struct link_packet) == 8,
                   "as struct.pack() is told below");
    text("HEAD", "<II");
    number("LINK", LINK_FD);
    number("PACKET", LINK_PACKET);
    number("MESSAGE_MOST", LINK_MESSAGE_MOST);
    number("UNFIT", LINK_UNFIT);
    text("ERROR_KEY", LINK_ERROR);
    text("HINT_KEY", LINK_HINT);
}

static void write_kernel(void)
{
    write_link();
    for (int i = 0; i < KERNEL_CHANNELS; i++)
        word(kernel_channel_name((enum kernel_channel)i));
    number("PARTS", KERNEL_PARTS);
    number("OFFSETS_LEAST", KERNEL_OFFSETS_LEAST);
    text("AS_KERNEL", KERNEL_AS_KERNEL);
    text("AS_ZYGOTE", KERNEL_AS_ZYGOTE);
    text("IMPORTS", KERNEL_IMPORTS);
    text("STARTUP", KERNEL_STARTUP);
    text("BOX_SITE", BOX_SITE);
    number("ZYGOTE_CONTROL", ZYGOTE_CONTROL);
    number("ZYGOTE_SEED", (long)sizeof ((struct zygote_child *)0)->seed);
}

static void write_service(void)
{
    write_link();
    for (int i = 0; i < SERVICE_MESSAGES; i++)
        word(service_message_name((enum service_message)i));
    for (int i = 0; i < SERVICE_STREAMS; i++)
        word(service_stream_name((enum service_stream)i));
    number("NO_CALL", SERVICE_NO_CALL);
    text("TYPE_KEY", SERVICE_KEY_TYPE);
    text("ID_KEY", SERVICE_KEY_ID);
    text("FUNCTION_KEY", SERVICE_KEY_FUNCTION);
    text("ARGS_KEY", SERVICE_KEY_ARGS);
    text("KWARGS_KEY", SERVICE_KEY_KWARGS);
    text("FUNCTIONS_KEY", SERVICE_KEY_FUNCTIONS);
    text("FAILURE_KEY", SERVICE_KEY_FAILURE);
    text("STREAM_KEY", SERVICE_KEY_STREAM);
    text("VALUE_KEY", SERVICE_KEY_VALUE);
}

int main(int argc, char **argv)
{
    const char *what = argc == 2 ? argv[1] : "";

    printf("\"\"\"What the other side agrees to. Written by tools/gen-guest.c from src/proto.\"\"\"\n\n");
    if (strcmp(what, "kernel") == 0)
        write_kernel();
    else if (strcmp(what, "service") == 0)
        write_service();
    else
        return 2;
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
