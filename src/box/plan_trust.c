/* Certificates of the box's own (proto/certificates.h) cover the files that programs read by default, in any root. They
 * are mounted before the caller's mounts, so on no path that a guest can change. */
#include <errno.h>

#include "box/plan.h"
#include "proto/certificates.h"
#include "sys/mountfd.h"

enum { COVER_FLAGS = TREE_READONLY | TREE_NOSUID | TREE_NODEV | TREE_NOEXEC, PAGE = 4096 };

/* Beside the programs of every box (BOX_BIN), so the folder is there. */
static int add_file(struct plan *p, const char *path, const char *data, size_t size, struct err *e)
{
    if (p->n_entries == PLAN_ENTRIES)
        return err_set(e, E2BIG, STEP_USAGE, "the box's layout has more than %d files and folders", PLAN_ENTRIES);
    p->entry[p->n_entries++] = (struct plan_entry){ .kind = PLAN_FILE, .path = path, .text = data, .size = size,
                                                    .mode = 0644 };
    p->trust_bytes += (size + 2 * PAGE - 1) & ~(size_t)(PAGE - 1);
    return 0;
}

static int add_covers(struct plan *p, const char *path, const char *const *targets, size_t n, struct err *e)
{
    if (p->n_mounts + n > PLAN_MOUNTS)
        return err_set(e, E2BIG, STEP_USAGE, "the box's layout has more than %d mounts", PLAN_MOUNTS);
    for (size_t i = 0; i < n; i++)
        p->mount[p->n_mounts++] = (struct plan_mount){ .source = FROM_ROOT, .path = path, .target = targets[i],
                                                       .flags = COVER_FLAGS, .optional = true };
    return 0;
}

int plan_add_trust(struct plan *p, const struct box_trust *trust, struct err *e)
{
    static const char *const pem[] = { "etc/ssl/certs/ca-certificates.crt", "etc/ssl/cert.pem", "etc/ssl/ca-bundle.pem",
                                       "etc/pki/tls/certs/ca-bundle.crt",
                                       "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem" };
    static const char *const java[] = { "etc/ssl/certs/java/cacerts", "etc/pki/ca-trust/extracted/java/cacerts" };
    const char *pem_file = &CERTIFICATES_OF_BOX[1], *java_file = &CERTIFICATES_OF_BOX_JAVA[1];

    if (!trust->pem)
        return 0;
    int r = add_file(p, pem_file, trust->pem, trust->pem_size, e);
    if (r == 0)
        r = add_file(p, java_file, trust->java, trust->java_size, e);
    if (r == 0)
        r = add_covers(p, pem_file, pem, sizeof pem / sizeof *pem, e);
    return r < 0 ? r : add_covers(p, java_file, java, sizeof java / sizeof *java, e);
}
