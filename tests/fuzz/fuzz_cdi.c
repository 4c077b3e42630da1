/* Whatever a specification holds: what was read of it names only plain paths, devices below /dev, and variables. */
#include "fuzz.h"

#include "devices/cdi.h"

static void check_path(const char *path)
{
    HOLDS(path[0] == '/' && path[1] && !strstr(path, "//") && !strstr(path, "/../") && !strstr(path, "/./"));
    size_t n = strlen(path);
    HOLDS(path[n - 1] != '/' && strcmp(path + n - 2, "/.") && (n < 3 || strcmp(path + n - 3, "/..")));
}

static void check_edits(const struct cdi_edits *edits)
{
    for (size_t i = 0; i < edits->n_env; i++)
        HOLDS(strchr(edits->env[i], '=') > edits->env[i]);
    for (size_t i = 0; i < edits->n_nodes; i++) {
        check_path(edits->node[i].path);
        check_path(edits->node[i].host);
        HOLDS(strncmp(edits->node[i].path, "/dev/", 5) == 0 && edits->node[i].read);
    }
    for (size_t i = 0; i < edits->n_mounts; i++) {
        check_path(edits->mount[i].host);
        check_path(edits->mount[i].path);
    }
    HOLDS(memchr(edits->refused, 0, sizeof edits->refused));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cdi_file file;
    struct err e = { 0 };
    int r = cdi_parse("fuzz.yaml", (const char *)data, size, &file, &e);

    if (r < 0) {
        HOLDS(e.code == -r && e.what[0]);
        return 0;
    }
    HOLDS(cdi_kind_is_valid(file.kind, strlen(file.kind)));
    check_edits(&file.edits);
    for (size_t i = 0; i < file.n; i++)
        check_edits(&file.device[i].edits);
    cdi_free(&file);
    return 0;
}
