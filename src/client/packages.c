/* --packages, --requirements and --python, for the commands that make boxes. */
#include <errno.h>
#include <string.h>

#include "client/client.h"
#include "proto/packages.h"

int take_packages(const char *option, const char *value, json_t *body, struct err *e)
{
    struct packages packages = { 0 };
    json_t *list = json_object_get(body, "packages");
    int r = strcmp(option, "--requirements") == 0 ? packages_read_file(&packages, option, value, e)
                                                  : packages_add(&packages, option, value, e);

    if (r == 0 && !list) {
        json_object_set_new(body, "packages", json_array());
        list = json_object_get(body, "packages");
    }
    for (size_t i = 0; r == 0 && i < packages.n; i++)
        if (json_array_append_new(list, json_string(packages.line[i])) < 0)
            r = err_at(e, ENOMEM, STEP_MEMORY, 0, "packages");
    packages_done(&packages);
    return r;
}

int take_python(const char *value, json_t *body, struct err *e)
{
    return json_object_set_new(body, "python", json_string(value)) < 0
               ? err_set(e, EINVAL, STEP_USAGE, "--python is not UTF-8") : 0;
}
