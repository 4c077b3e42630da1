/* The findings of `carrel doctor`: what this host offers, what is missing, what that costs and how to fix it. */
#ifndef CARREL_CLI_DOCTOR_DOCTOR_H
#define CARREL_CLI_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/guest.h"
#include "cli/doctor/net.h"
#include "sys/apparmor.h"
#include "sys/cgroup.h"
#include "sys/features.h"

enum doctor_state { DOCTOR_OK, DOCTOR_LIMITED, DOCTOR_MISSING };
enum { DOCTOR_ROWS = 48 };

struct doctor_row {
    const char       *group;
    const char       *name;
    enum doctor_state state;
    char              found[232];
    char              cost[200];    /* "": nothing */
    char              fix[240];
};

/* The further needs of kernels. */
struct doctor_kernels {
    bool has_server, has_files;
    bool has_python;            /* their base interpreter has ipykernel */
    char python[GUEST_PATH];    /* if not: where one would be */
};

/* The CDI specifications. */
struct doctor_devices {
    unsigned n, n_refused, n_wrong;
    char     names[120];        /* of those that boxes can have, as far as they fit */
    char     why[200];          /* the first refused device or invalid file: why */
};

struct doctor {
    struct features    features;
    struct cgroup_host cgroups;
    struct doctor_kernels kernels;
    struct doctor_devices devices;
    struct doctor_network network;
    char               trial[232];  /* why no box could be made; "": one was made */
    char               apparmor[APPARMOR_COMMAND];  /* gives this program a profile that it needs; "": it needs none */
    size_t             n_rows;
    struct doctor_row  row[DOCTOR_ROWS];
};

/* Fills in the rows from the other members. Pure. */
void doctor_judge(struct doctor *doctor);

/* Nothing required for boxes is missing. */
bool doctor_can_make_boxes(const struct doctor *doctor);

#endif
