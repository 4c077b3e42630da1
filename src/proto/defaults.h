/* The defaults of a box, and the bounds of the API. `carrel run` uses them too: it only requests from a server what
 * that will accept. */
#ifndef CARREL_PROTO_DEFAULTS_H
#define CARREL_PROTO_DEFAULTS_H

#include "proto/create.h"

#define BOX_HOME "/home/box"
#define BOX_BIN  "/run/carrel/bin"      /* programs that the host may lack: plan_programs() */
#define BOX_SECRETS "/run/secrets"     /* files of secrets, in memory */
#define BOX_FIRST "/run/carrel/first"   /* programs that start others of the same name */
#define BOX_SITE "/run/carrel/python"   /* PYTHONPATH of commands with network (guest/box) */
#define BOX_LAST_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:" BOX_BIN ":" BOX_HOME "/.local/bin"
#define BOX_PATH BOX_FIRST ":" BOX_LAST_PATH
#define BOX_LANG "C.UTF-8"
#define SERVER_PORT "7070"

enum {
    EGRESS_ID = 64997,                                                  /* user and group of carrel-egress under root */
    BOX_ID = 1000,                                                      /* user and group in the box */
    BOX_HOSTNAME_MAX = sizeof((struct request_create *)0)->hostname - 1,    /* bytes, without NUL */
    BOX_TARGET_MAX = sizeof((struct frame_mount *)0)->target - 1,           /* of a mount; the same */
    ENV_VARIABLES_MAX = 1024,
    ENV_NAME_MAX = 255,
    ENV_VALUE_MAX = 131000,             /* Linux accepts strings of 131,071 bytes, with the name */
    ENV_BYTES_MAX = 1 << 20,            /* of all variables */
};
_Static_assert(BOX_HOSTNAME_MAX == 64, "__NEW_UTS_LEN of Linux");

#endif
