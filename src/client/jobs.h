/* Commands of a box as jobs. */
#ifndef CARREL_CLIENT_JOBS_H
#define CARREL_CLIENT_JOBS_H

#include "client/client.h"

enum { JOB_ID_BYTES = 32 };

/* The id of a command: the word, if there is one, else the newest background command. -1: the error was reported. */
MUST_CHECK int job_find(const struct client *c, const char *box, const char *word, char ret[JOB_ID_BYTES]);

#endif
