/* `carrel run` by a server, for what only a server can give: its volumes, and memory that is guaranteed. Without these
 * a run is always this program's: a command must not get other limits, and another speed, because a server happens to
 * run.
 *
 * The options travel as one JSON object in a memfd to carrel-server's `run`, which this process execs; so the options
 * are parsed in one place. */
#define _GNU_SOURCE
#include "cli/viaserver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/jsonout.h"
#include "base/parse.h"
#include "cli/commands.h"
#include "proto/defaults.h"
#include "proto/places.h"

#define OUTPUT_MOST (UINT64_C(1) << 32)

enum { REQUEST_MAX = 8 << 20, WORDS_BYTES_MAX = 1 << 20, IDLE_S = 10 };

/* ---- the server's address ---- */

/* url is "" if there is none. */
static void find_server(char *url, size_t size)
{
    const char *named = getenv("CARREL_URL");
    char path[200];

    url[0] = '\0';
    if (named && named[0])
        snprintf(url, size, "%s", named);
    else if (places_find_server(path, sizeof path, NULL, 0))
        snprintf(url, size, "unix:%s", path);
}

/* ---- what the API can express ---- */

static bool is_text(const char *text)
{
    return jsonout_is_text(text, strlen(text));
}

static const char *judge_mounts(const struct box_spec *box)
{
    struct stat status;

    if (box->n_mounts - !!spec_find(box, MOUNT_ROOT) > KEEPER_MOUNTS)
        return "so many mounts";
    for (size_t i = 0; i < box->n_mounts; i++) {
        const struct mount_spec *m = &box->mount[i];
        if (m->kind != MOUNT_HOST)
            continue;
        if (!is_text(m->source) || !is_text(m->target) || strlen(m->target) > BOX_TARGET_MAX)
            return "such a --mount";
        /* The client follows links, `run` does not: so it is refused here, with run's message. */
        if (lstat(m->source, &status) < 0 || !(S_ISDIR(status.st_mode) || S_ISREG(status.st_mode)))
            return "such a --mount";
    }
    return NULL;
}

static const char *judge_words(const struct command_spec *command)
{
    size_t bytes = 0, n = 0;

    for (char **word = command->argv; *word; word++) {
        bytes += strlen(*word) + 1;
        if (!is_text(*word))
            return "a command that is not UTF-8";
    }
    if (bytes > WORDS_BYTES_MAX)
        return "so long a command";
    bytes = 0;
    for (char **entry = command->env; *entry; entry++, n++) {
        size_t length = strlen(*entry);
        bytes += length + 1;
        if (!is_text(*entry) || length > ENV_VALUE_MAX || strcspn(*entry, "=") > ENV_NAME_MAX)
            return "such an environment";
    }
    if (n > ENV_VARIABLES_MAX || bytes > ENV_BYTES_MAX)
        return "so large an environment";
    if (command->workdir && (command->workdir[0] != '/' || !is_text(command->workdir)))
        return "such a --workdir";
    return NULL;
}

/* The first option that the API cannot express; NULL: none. */
static const char *judge(const struct run_options *o)
{
    const struct limits *limits = &o->box.limits;

    if (o->n_keys)
        return "--key";
    if (o->net.mode != NET_NONE)
        return "--allow or --net";
    if (o->packages.n)
        return "--packages";
    if (spec_root(&o->box))
        return "a directory as --root";
    if (o->zygote)
        return "--zygote";
    if (o->box.no_proc)
        return "--no-proc";
    if (o->trace)
        return "--trace";
    /* Its boxes store files in their memory. */
    if (o->given.disk_bytes && limits->disk_bytes > limits->memory_bytes)
        return "more --disk than --memory";
    if (o->command.output_bytes > OUTPUT_MOST)
        return "so large an --output-limit";
    if (o->box.uid >= PARSE_ID_MAX || o->box.gid >= PARSE_ID_MAX)
        return "such a --user";
    if (o->box.hostname && !is_text(o->box.hostname))
        return "such a --hostname";
    const char *why = judge_mounts(&o->box);
    return why ? why : judge_words(&o->command);
}

/* ---- the request ---- */

/* NAME:/PATH[:ro|rw]. */
static void write_volume(struct jsonout *j, const char *text)
{
    char name[256], path[BOX_TARGET_MAX + 2];
    const char *colon = strstr(text, ":/");
    size_t length = strlen(colon + 1);
    bool ro = length > 3 && strcmp(colon + 1 + length - 3, ":ro") == 0;
    bool rw = length > 3 && strcmp(colon + 1 + length - 3, ":rw") == 0;

    snprintf(name, sizeof name, "%.*s", (int)(colon - text), text);
    snprintf(path, sizeof path, "%.*s", (int)(length - (ro || rw ? 3 : 0)), colon + 1);
    jsonout_open_object(j, NULL);
    jsonout_string(j, "name", name);
    jsonout_string(j, "path", path);
    jsonout_bool(j, "read_only", ro);
    jsonout_close(j);
}

/* NAME=VARIABLE or NAME=/PATH. */
static void write_secret(struct jsonout *j, const char *text)
{
    char name[256];
    const char *equals = strchr(text, '=');

    snprintf(name, sizeof name, "%.*s", (int)(equals - text), text);
    jsonout_open_object(j, NULL);
    jsonout_string(j, "name", name);
    jsonout_string(j, equals[1] == '/' ? "file" : "env", equals + 1);
    jsonout_close(j);
}

static void write_box(struct jsonout *j, const struct run_options *o)
{
    const struct limits *limits = &o->box.limits;
    const struct mount_spec *root = spec_find(&o->box, MOUNT_ROOT);
    char user[32];

    jsonout_open_object(j, "create");
    jsonout_open_object(j, "limits");
    for (size_t i = 0; i < LIMITS; i++) {
        const struct limit *limit = &limit_table[i];
        uint64_t value = limit_get(limits, limit);
        if (!limit_get(&o->given, limit))
            continue;
        if (limit->kind == LIMIT_CPUS)
            jsonout_decimal(j, limit->name, value, 3);
        else
            jsonout_unsigned(j, limit->name, value);
    }
    jsonout_close(j);
    jsonout_open_object(j, "requests");
    if (o->request_memory_bytes)
        jsonout_unsigned(j, "memory", o->request_memory_bytes);
    if (limits->cpu_request_milli)
        jsonout_decimal(j, "cpus", limits->cpu_request_milli, 3);
    jsonout_close(j);
    jsonout_string(j, "profile", profile_name(o->box.profile));
    jsonout_bool(j, "writable_root", root && root->writable);
    snprintf(user, sizeof user, "%u:%u", (unsigned)o->box.uid, (unsigned)o->box.gid);
    jsonout_string(j, "user", user);
    if (o->box.hostname)
        jsonout_string(j, "hostname", o->box.hostname);
    if (o->n_devices) {
        jsonout_open_array(j, "devices");
        for (size_t i = 0; i < o->n_devices; i++)
            jsonout_string(j, NULL, o->device[i]);
        jsonout_close(j);
    }
    if (o->n_volumes) {
        jsonout_open_array(j, "volumes");
        for (size_t i = 0; i < o->n_volumes; i++)
            write_volume(j, o->volume[i]);
        jsonout_close(j);
    }
    if (o->n_secrets) {
        jsonout_open_array(j, "secrets");
        for (size_t i = 0; i < o->n_secrets; i++)
            write_secret(j, o->secret[i]);
        jsonout_close(j);
    }
    /* In case the client is killed before it has started the command. */
    jsonout_unsigned(j, "idle_timeout", IDLE_S);
    jsonout_close(j);

    jsonout_open_array(j, "mounts");
    for (size_t i = 0; i < o->box.n_mounts; i++) {
        if (o->box.mount[i].kind != MOUNT_HOST)
            continue;
        jsonout_open_object(j, NULL);
        jsonout_string(j, "source", o->box.mount[i].source);
        jsonout_string(j, "target", o->box.mount[i].target);
        jsonout_bool(j, "writable", o->box.mount[i].writable);
        jsonout_close(j);
    }
    jsonout_close(j);
}

static void write_command(struct jsonout *j, const struct command_spec *command)
{
    char name[256];

    jsonout_open_object(j, "exec");
    jsonout_open_array(j, "argv");
    for (char **word = command->argv; *word; word++)
        jsonout_string(j, NULL, *word);
    jsonout_close(j);
    jsonout_open_object(j, "env");
    for (char **entry = command->env; *entry; entry++) {
        size_t length = strcspn(*entry, "=");
        snprintf(name, sizeof name, "%.*s", (int)length, *entry);
        jsonout_string(j, name, *entry + length + 1);
    }
    jsonout_close(j);
    if (command->workdir)
        jsonout_string(j, "cwd", command->workdir);
    if (command->timeout_ms)
        jsonout_decimal(j, "timeout", command->timeout_ms, 3);
    if (command->output_bytes)
        jsonout_unsigned(j, "output_limit", command->output_bytes);
    jsonout_bool(j, "delete_box", true);
    jsonout_close(j);
}

static int write_request(const struct run_options *o, int *ret)
{
    struct buf out;
    struct jsonout j;

    buf_init(&out, REQUEST_MAX);
    jsonout_init(&j, &out);
    jsonout_open_object(&j, NULL);
    write_box(&j, o);
    write_command(&j, &o->command);
    jsonout_bool(&j, "interactive", o->interactive);
    jsonout_bool(&j, "tty", o->command.terminal);
    jsonout_bool(&j, "json", o->json);
    jsonout_string(&j, "report", o->report_path);
    jsonout_close(&j);
    int r = jsonout_finish(&j);
    FD fd = r < 0 ? -1 : memfd_create("run", 0);        /* inherited by exec */
    if (r == 0)
        r = fd < 0 ? -errno : fd_write_all(fd, out.data, out.length);
    if (r == 0 && lseek(fd, 0, SEEK_SET) < 0)
        r = -errno;
    buf_done(&out);
    if (r == 0)
        *ret = TAKE_FD(fd);
    return r;
}

int viaserver_run(const struct run_options *o, struct err *e)
{
    const char *option = o->n_volumes              ? "--volume"
                       : o->n_secrets              ? "--secret"
                       : o->request_memory_bytes   ? "--request-memory"
                                                   : NULL;
    char url[256], number[16];
    int request = -1;

    if (!option)
        return 0;
    if (!cli_has_program("carrel-server"))
        return err_set(e, ENOENT, STEP_USAGE, "%s: only a server can give it, and carrel-server is not installed "
                       "beside this program", option);
    find_server(url, sizeof url);
    if (!url[0])
        return err_set(e, ECONNREFUSED, STEP_USAGE, "%s: no server is running; start one with 'carrel serve', or name "
                       "one in CARREL_URL", option);
    const char *why = judge(o);
    if (why)
        return err_set(e, ENOTSUP, STEP_USAGE, "%s is a server's, and %s cannot be asked of a server", option, why);
    int r = write_request(o, &request);
    if (r < 0)
        return err_at(e, -r, STEP_MEMORY, 0, "request");
    snprintf(number, sizeof number, "%d", request);
    char *words[] = { "carrel", "run", number, url, NULL };
    (void)cli_hand_over(words);
    fd_close(request);
    return err_set(e, ENOENT, STEP_USAGE, "%s: carrel-server cannot be started", option);
}
