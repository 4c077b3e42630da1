/* carrel df: what takes disk, by owner. The server knows volumes, boxes on disk, kept output and the layers that it had
 * made; this user's own layers and the environment of kernels are there without a server. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/guest.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/layers.h"
#include "proto/packages.h"

static const char usage[] =
    "usage: carrel df [--everybody] [--json] [--url URL]\n"
    "\n"
    "Shows what takes disk: volumes and boxes with --store disk (what is promised to them, which is what counts in\n"
    "quota.disk), the kept output of commands, and layers of packages, here and on the server. --everybody: of all\n"
    "identities, for admins.\n"
    "Without a server it shows layers and the Python environment of kernels alone. 'carrel volume rm', 'carrel rm',\n"
    "'carrel layer rm' and 'carrel gc' give disk back.\n";

static const char *const parts[] = { "volumes", "boxes", "output", "layers" };
enum { PARTS = sizeof parts / sizeof *parts };

static int set_everybody(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    *(bool *)into = true;
    return 0;
}

/* The row of an owner, by its name or, for layers, by the name of its folder. */
static json_t *row_of(json_t *owners, const char *name, bool is_folder)
{
    json_t *row;
    size_t i;

    json_array_foreach(owners, i, row) {
        char folder[PACKAGES_OWNER];
        packages_owner(text_of(row, "owner"), folder);
        if (strcmp(is_folder ? folder : text_of(row, "owner"), name) == 0)
            return row;
    }
    row = json_pack("{s:s}", "owner", name);
    json_array_append_new(owners, row);
    return row;
}

static json_int_t bytes_of(const json_t *row, const char *part)
{
    return json_integer_value(json_object_get(row, part));
}

static void add_layers(json_t *owners, const json_t *layers)
{
    char own[PACKAGES_OWNER], identity[32];
    json_t *layer;
    size_t i;

    snprintf(identity, sizeof identity, "uid:%u", (unsigned)geteuid());
    packages_owner(identity, own);
    json_array_foreach(layers, i, layer) {
        const char *folder = text_of(layer, "owner");
        bool is_own = !folder[0] || strcmp(folder, own) == 0;
        json_t *row = is_own ? row_of(owners, identity, false) : row_of(owners, folder, true);
        json_object_set_new(row, "layers", json_integer(bytes_of(row, "layers") + bytes_of(layer, "bytes")));
    }
}

static void add_totals(json_t *owners)
{
    json_t *row;
    size_t i;

    json_array_foreach(owners, i, row) {
        json_int_t total = 0;
        for (size_t k = 0; k < PARTS; k++) {
            total += bytes_of(row, parts[k]);
            if (!json_object_get(row, parts[k]))
                json_object_set_new(row, parts[k], json_integer(0));
        }
        json_object_set_new(row, "total", json_integer(total));
    }
}

/* The environment of `carrel setup`, if there is one; its mark has its size, unless an earlier version made it. */
static json_t *read_environment(void)
{
    char place[GUEST_PATH], path[GUEST_PATH + 32];
    static char text[1 << 20];

    guest_setup_place(place, sizeof place);
    if (!guest_is_set_up(place))
        return json_null();
    snprintf(path, sizeof path, "%s/carrel-setup", place);
    ssize_t n = fd_read_file(AT_FDCWD, path, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    const char *bytes = strstr(text, "\nbytes ");
    return json_pack("{s:s,s:o}", "path", place, "bytes",
                     bytes ? json_integer((json_int_t)strtoull(bytes + 7, NULL, 10)) : json_null());
}

static void print(const json_t *owners, const json_t *environment)
{
    static const char *const titles[] = { "OWNER", "VOLUMES", "BOXES", "OUTPUT", "LAYERS", "TOTAL", NULL };
    struct table t;
    const json_t *row;
    size_t i;

    table_init(&t, titles, 0x3e);
    json_array_foreach(owners, i, row)
        table_add(&t, text_of(row, "owner"), show_bytes((uint64_t)bytes_of(row, "volumes")),
                  show_bytes((uint64_t)bytes_of(row, "boxes")), show_bytes((uint64_t)bytes_of(row, "output")),
                  show_bytes((uint64_t)bytes_of(row, "layers")), show_bytes((uint64_t)bytes_of(row, "total")));
    table_print(&t);
    table_done(&t);
    if (json_is_object(environment))
        printf("\nPython of kernels: %s%s%s\n", text_of(environment, "path"),
               bytes_of(environment, "bytes") ? ", " : "",
               bytes_of(environment, "bytes") ? show_bytes((uint64_t)bytes_of(environment, "bytes")) : "");
}

int client_df(int argc, char **argv)
{
    static const struct flag flags[] = { { "everybody", 0, false, set_everybody } };
    struct client c = { .name = "df", .usage = usage, .may_lack_server = true };
    json_t *answer = NULL, *owners;
    bool everybody = false;
    struct words words;
    struct err e = { 0 };
    int status = client_begin(&c, argc, argv, flags, 1, &everybody, false, &words);

    if (status >= 0)
        return status;
    if (words.n)
        return client_misused(&c, "it takes no words");
    bool has_server = server_find(c.url, &c.server, &e) == 0;
    if (!has_server && (c.url || server_named()))
        return client_complain(&e);
    if (has_server && client_call(&c, "GET", everybody ? "/v1/disk?all=true" : "/v1/disk", NULL, &answer) < 0)
        return EXIT_CLIENT;
    owners = has_server ? json_incref(json_object_get(answer, "owners")) : json_array();
    json_t *layers = layers_read(has_server ? &c : NULL, everybody), *environment = read_environment();
    if (layers) {
        add_layers(owners, layers);
        add_totals(owners);
        if (c.json)
            print_json(json_pack("{s:O,s:O,s:O}", "owners", owners, "environment", environment, "layers", layers));
        else
            print(owners, environment);
        if (!has_server)
            fputs("carrel: no server is running: volumes, boxes and output are not counted\n", stderr);
    }
    status = layers ? 0 : EXIT_CLIENT;
    json_decref(layers);
    json_decref(environment);
    json_decref(owners);
    json_decref(answer);
    return status;
}
