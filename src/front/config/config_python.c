/* pythons.NAME: interpreters that boxes may have packages for, by a name of the administrator's or a version. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/parse.h"
#include "front/config/config_private.h"

int config_python_set(struct config *c, const char *name, const char *path, struct err *e)
{
    char key[80];
    uint32_t i = 0;
    int r = config_check_name("pythons", name, e);

    if (r < 0)
        return r;
    snprintf(key, sizeof key, "pythons.%s", name);
    r = config_check_path(key, path, e);
    if (r < 0)
        return r;
    if (strlen(path) >= sizeof c->python[0].path)
        return err_set(e, EINVAL, STEP_USAGE, "%s is too long; the most is %zu bytes", key,
                       sizeof c->python[0].path - 1);
    while (i < c->n_pythons && strcmp(c->python[i].name, name) != 0)
        i++;
    if (i == CONFIG_PYTHONS)
        return err_set(e, EINVAL, STEP_USAGE, "pythons: there are more than %d", CONFIG_PYTHONS);
    snprintf(c->python[i].name, sizeof c->python[i].name, "%s", name);
    snprintf(c->python[i].path, sizeof c->python[i].path, "%s", path);
    if (i == c->n_pythons)
        c->n_pythons++;
    return 0;
}

/* "3.12" is the newest of 3.12.4 and 3.12.11. */
uint32_t config_python_find(const struct config *c, const char *wanted)
{
    size_t length = strlen(wanted);
    uint32_t best = 0;

    for (uint32_t i = 0; i < c->n_pythons; i++) {
        const char *name = c->python[i].name;
        if (strcmp(name, wanted) == 0)
            return i + 1;
        if (length && strspn(name, "0123456789.") == strlen(name) && strncmp(name, wanted, length) == 0
            && name[length] == '.' && (!best || strverscmp(name, c->python[best - 1].name) > 0))
            best = i + 1;
    }
    return best;
}

void config_python_names(const struct config *c, char *ret, size_t size)
{
    size_t n = 0;

    ret[0] = '\0';
    for (uint32_t i = 0; i < c->n_pythons && n < size; i++)
        n += (size_t)snprintf(ret + n, size - n, "%s%s", i ? ", " : "", c->python[i].name);
}

int config_python_refuse(const struct config *c, const char *name, const char *wanted, struct err *e)
{
    char names[128];

    config_python_names(c, names, sizeof names);
    return err_set(e, EINVAL, STEP_USAGE, "%s: there is no Python '%s' on this server; %s%s", name,
                   parse_quote(wanted).text, names[0] ? "there is: " : "its configuration lists them (pythons)", names);
}

const char *config_python_path(const struct config *c, uint32_t number, char room[CONFIG_PYTHON_PATH])
{
    struct stat status;
    const char *path = c->python[number - 1].path;

    if (stat(path, &status) < 0 || !S_ISDIR(status.st_mode)) {
        snprintf(room, CONFIG_PYTHON_PATH, "%s", path);
        return room;
    }
    snprintf(room, CONFIG_PYTHON_PATH, "%s/bin/python3", path);
    if (access(room, X_OK) < 0)
        snprintf(room, CONFIG_PYTHON_PATH, "%s/bin/python", path);
    return room;
}
