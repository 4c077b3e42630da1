/* `carrel doctor`: probes, judges, prints. A table for people, or JSON. The exit status is 1 if no box can be made
 * here. */
#include "devices/cdi_host.h"
#include "cli/doctor/doctor.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/jsonout.h"
#include "cli/commands.h"
#include "cli/doctor/container.h"
#include "cli/doctor/trial.h"

static const char *const state_names[] = {
    [DOCTOR_OK] = "ok", [DOCTOR_LIMITED] = "limited", [DOCTOR_MISSING] = "missing"
};
static const char *const mode_names[] = {
    [CGROUP_NONE] = "none", [CGROUP_V1] = "v1", [CGROUP_HYBRID] = "hybrid", [CGROUP_V2] = "v2",
};

static const char doctor_help[] = "usage: carrel doctor [--net] [--json]\n"
                                  "       carrel doctor --apparmor\n"
                                  "\n"
                                  "Shows what this host offers to boxes, what is missing, the consequences and how to "
                                  "fix it. Everything is tried, not looked up.\n"
                                  "--net tries from boxes whether the network rules are enforced; "
                                  "the exit status is 1 if a wall does not hold.\n"
                                  "--apparmor prints a script that gives this program the AppArmor profile which "
                                  "Ubuntu wants for user namespaces:\n"
                                  "carrel doctor --apparmor | sudo sh\n"
                                  "The exit status is 0 if boxes can be made here, 1 if not.\n";

static bool use_colour(void)
{
    const char *term = getenv("TERM"), *none = getenv("NO_COLOR");

    return isatty(STDOUT_FILENO) && !(none && *none) && !(term && strcmp(term, "dumb") == 0);
}

static void print_row(const struct doctor_row *row, bool colour)
{
    static const char *const colours[] = {
        [DOCTOR_OK] = "\033[32m", [DOCTOR_LIMITED] = "\033[33m", [DOCTOR_MISSING] = "\033[31m"
    };

    printf("  %s%-8s%s %-*s%s\n", colour ? colours[row->state] : "", state_names[row->state], colour ? "\033[0m" : "",
           row->found[0] ? 34 : 0, row->name, row->found);
    if (row->cost[0])
        printf("  %-8s   costs: %s\n", "", row->cost);
    if (row->fix[0])
        printf("  %-8s   fix:   %s\n", "", row->fix);
}

static void print_table(const struct doctor *doctor)
{
    bool colour = use_colour();
    const char *group = "";
    size_t limited = 0, missing = 0;

    for (size_t i = 0; i < doctor->n_rows; i++) {
        const struct doctor_row *row = &doctor->row[i];
        if (strcmp(group, row->group) != 0)
            printf("%s%s\n", *group ? "\n" : "", row->group);
        group = row->group;
        limited += row->state == DOCTOR_LIMITED;
        missing += row->state == DOCTOR_MISSING;
        print_row(row, colour);
    }
    printf("\n%s: %zu missing, %zu limited, %zu ok\n", missing ? "No box can be made here" : "Boxes can be made here",
           missing, limited, doctor->n_rows - missing - limited);
}

static int print_json(const struct doctor *doctor)
{
    struct buf out;
    struct jsonout j;

    buf_init(&out, 1 << 18);
    jsonout_init(&j, &out);
    jsonout_open_object(&j, NULL);
    jsonout_bool(&j, "boxes", doctor_can_make_boxes(doctor));
    jsonout_string(&j, "version", CARREL_VERSION);
    jsonout_string(&j, "kernel", doctor->features.release);
    jsonout_bool(&j, "root", doctor->features.is_keeper_root);
    jsonout_string(&j, "cgroup", mode_names[doctor->cgroups.mode]);
    jsonout_signed(&j, "landlock_abi", doctor->features.landlock_abi);
    jsonout_open_array(&j, "checks");
    for (size_t i = 0; i < doctor->n_rows; i++) {
        const struct doctor_row *row = &doctor->row[i];
        jsonout_open_object(&j, NULL);
        jsonout_string(&j, "group", row->group);
        jsonout_string(&j, "name", row->name);
        jsonout_string(&j, "state", state_names[row->state]);
        jsonout_string(&j, "found", row->found);
        jsonout_string(&j, "costs", row->cost[0] ? row->cost : NULL);
        jsonout_string(&j, "fix", row->fix[0] ? row->fix : NULL);
        jsonout_close(&j);
    }
    jsonout_close(&j);
    jsonout_close(&j);
    int r = jsonout_finish(&j);
    if (r == 0)
        printf("%s\n", buf_string(&out));
    buf_done(&out);
    return r;
}

static void print_advice(void)
{
    struct container container;
    struct buf text;

    container_look(&container);
    if (!container.is_one)
        return;
    buf_init(&text, 4096);
    container_advise(&container, &text);
    printf("\n%s", buf_string(&text));
    buf_done(&text);
}

static void look_at_kernels(struct doctor_kernels *k)
{
    char files[GUEST_PATH];

    guest_find_files(files, sizeof files);
    k->has_server = cli_has_program("carrel-server");
    k->has_files = files[0] != '\0';
    k->has_python = guest_find_python(k->python, sizeof k->python);
}

static void note_device(const char *name, const char *refused, void *arg)
{
    struct doctor_devices *v = arg;
    size_t used = strlen(v->names);

    if (refused[0]) {
        if (v->n_refused++ == 0)
            snprintf(v->why, sizeof v->why, "%.60s: %s", name, refused);
        return;
    }
    if (used + strlen(name) + 3 < sizeof v->names)
        snprintf(v->names + used, sizeof v->names - used, "%s%s", v->n ? ", " : "", name);
    v->n++;
}

static void look_at_devices(struct doctor_devices *v)
{
    static struct devices devices;

    devices_read(false, &devices);
    devices_each(&devices, note_device, v);
    v->n_wrong = (unsigned)devices.n_wrong;
    if (devices.n_wrong)
        snprintf(v->why, sizeof v->why, "%.190s", devices.wrong.what);
    devices_free(&devices);
}

static int print_apparmor(struct err *e)
{
    char program[PATH_MAX], text[8192];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);

    program[n > 0 ? n : 0] = '\0';
    int r = apparmor_script(program, text, sizeof text);
    if (r < 0)
        return err_set(e, -r, STEP_USAGE, "there can be no AppArmor profile for %.120s: %s; install carrel elsewhere",
                       program, r == -EINVAL ? "it has special characters" : "it is too long");
    if (fputs(text, stdout) < 0 || fflush(stdout) != 0)
        return err_at(e, EIO, STEP_STDIO, 0, "standard output");
    return 0;
}

int doctor_main(int argc, char **argv)
{
    static struct doctor doctor; /* too large for the stack */
    struct err e = { 0 };
    bool json = false, net = false;

    if (argc > 1 && strcmp(argv[1], "--net-probe") == 0)
        return net_probe(argc - 2, argv + 2);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (strcmp(argv[i], "--net") == 0) {
            net = true;
        } else if (strcmp(argv[i], "--apparmor") == 0) {
            if (print_apparmor(&e) == 0)
                return 0;
            cli_complain(&e);
            return EXIT_CARREL;
        } else if (strcmp(argv[i], "--help") == 0) {
            fputs(doctor_help, stdout);
            return 0;
        } else {
            err_set(&e, EINVAL, STEP_USAGE, "doctor takes no argument '%s'; see 'carrel doctor --help'", argv[i]);
            cli_complain(&e);
            return EXIT_CARREL;
        }
    }
    if (net)
        return net_main(json);
    if (features_probe(&doctor.features, &e) < 0 || cgroup_host_open(&doctor.cgroups, &e) < 0) {
        cli_complain(&e);
        return EXIT_CARREL;
    }
    if (apparmor_restricts("/proc"))
        apparmor_command(doctor.apparmor);
    trial_run(doctor.trial, sizeof doctor.trial);
    if (!doctor.trial[0])
        net_look(&doctor.network);
    look_at_kernels(&doctor.kernels);
    look_at_devices(&doctor.devices);
    doctor_judge(&doctor);
    int r = 0;
    if (json)
        r = print_json(&doctor);
    else
        print_table(&doctor);
    if (!json && !doctor_can_make_boxes(&doctor))
        print_advice();
    cgroup_host_close(&doctor.cgroups);
    if (r < 0 || fflush(stdout) != 0) {
        err_at(&e, r < 0 ? -r : EIO, STEP_STDIO, 0, "standard output");
        cli_complain(&e);
        return EXIT_CARREL;
    }
    return doctor_can_make_boxes(&doctor) ? 0 : 1;
}
