/* `carrel doctor --net`: tries from boxes whether network rules are enforced. */
#ifndef CARREL_CLI_DOCTOR_NET_H
#define CARREL_CLI_DOCTOR_NET_H

#include <stdbool.h>
#include <stddef.h>

enum { NET_TOKEN = 33 };

/* How this host enforces network rules, from "enforced" of a report. */
struct doctor_network {
    char way[120];      /* "hold: …"; "": no box with rules could be made */
    char why[232];      /* carrel's message then */
};

/* Makes a box with a rule and reads its report. */
void net_look(struct doctor_network *ret);
/* The exit status: 0 if every wall holds, 1 if not or if it could not be tried. */
int  net_main(bool json);
/* In a box: tries targets. */
int  net_probe(int n, char **targets);

#endif
