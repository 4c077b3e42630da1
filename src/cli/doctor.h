/* The findings of `carrel doctor`: what this host gives, what is missing, what that costs and how to mend it. */
#ifndef CARREL_CLI_DOCTOR_H
#define CARREL_CLI_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

#include "sys/cgroup.h"
#include "sys/features.h"

enum doctor_state { DOCTOR_OK, DOCTOR_LIMITED, DOCTOR_MISSING };
enum { DOCTOR_ROWS = 48 };

struct doctor_row {
    const char       *group;
    const char       *name;
    enum doctor_state state;
    char              found[160];
    char              cost[200];    /* "" if there is nothing to say */
    char              fix[240];
};

struct doctor {
    struct features    features;
    struct cgroup_host cgroups;
    char               trial[160];  /* why no box could be made; "": one was */
    size_t             n_rows;
    struct doctor_row  row[DOCTOR_ROWS];
};

/* Draws the conclusions from features and cgroups. Pure. */
void doctor_judge(struct doctor *doctor);

/* Nothing that a box needs is missing. */
bool doctor_can_make_boxes(const struct doctor *doctor);

#endif
