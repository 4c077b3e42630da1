#include "fuzz.h"

#include "proto/packages.h"

static void check(const struct packages *p)
{
    for (size_t i = 0; i < p->n; i++) {
        HOLDS(p->line[i][0] != '-' && p->line[i][0] != '/' && p->line[i][0] != '.' && p->line[i][0] != '\0');
        HOLDS(!strstr(p->line[i], "://") && !strchr(p->line[i], '\n') && strlen(p->line[i]) < PACKAGES_LINE);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_string(data, size);
    struct packages p = { 0 };
    struct err e = { 0 };
    char key[SHA256_HEX + 1];

    int r = packages_add(&p, "--packages", text, &e);
    if (r < 0)
        fuzz_check_refusal(r, &e);
    check(&p);
    r = packages_add_file(&p, "requirements.txt", text, &e);
    if (r < 0)
        fuzz_check_refusal(r, &e);
    check(&p);
    packages_sort(&p);
    packages_key(&p, "/usr/bin/python3", "", key);
    packages_done(&p);
    free(text);
    return 0;
}
