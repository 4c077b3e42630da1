/* Where the API server is and who we are: a kubeconfig file, or what Kubernetes gives a pod. */
#ifndef CARREL_KUBE_CONFIG_H
#define CARREL_KUBE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <time.h>

#include "base/err.h"

enum { KUBE_EXEC_ARGS_MAX = 64 };

/* Owned strings; NULL where there is none. */
struct kube_config {
    char *url;              /* for messages */
    char *host, *port;
    char *prefix;           /* path before /api, without a slash at its end; "" mostly */
    bool  tls, insecure;    /* insecure: the server's certificate is not checked, because the file says so */
    char *server_name;      /* what the certificate must name; the host if NULL */
    char *ca_pem, *cert_pem, *key_pem;
    char *token;
    char *token_file;       /* read again when it changes */
    struct timespec token_read;
    char *namespace;        /* the context's, or the pod's */
    bool  in_cluster;
    /* A credential plugin: argv and NAME=value, NULL at the end. */
    char *exec_argv[KUBE_EXEC_ARGS_MAX + 1], *exec_env[KUBE_EXEC_ARGS_MAX + 1];
    char *exec_version;
};

/* One file's text. folder: what relative paths in it start from. name: for messages. */
struct kube_config_source {
    const char *name, *text, *folder;
    size_t      size;
};

/* The file, if it is given; else those of KUBECONFIG; else the pod's own; else ~/.kube/config. */
MUST_CHECK int kube_config_find(const char *file, const char *context, struct kube_config *ret, struct err *e);
/* Several count as one, the first that says something first. */
MUST_CHECK int kube_config_parse(const struct kube_config_source *from, size_t n, const char *context,
                                 struct kube_config *ret, struct err *e);
/* Of a pod: environment and files below root ("" in a pod). */
MUST_CHECK int kube_config_in_cluster(const char *root, struct kube_config *ret, struct err *e);
void kube_config_done(struct kube_config *c);

/* Takes the token anew from its file if that has changed. 0 or -errno; the old one stays on failure. */
MUST_CHECK int kube_config_refresh(struct kube_config *c, struct err *e);

/* Runs the credential plugin, if there is one, and takes token and certificate from what it prints. Waits for it. */
MUST_CHECK int kube_config_run_plugin(struct kube_config *c, struct err *e);
MUST_CHECK int kube_config_take_credential(struct kube_config *c, const char *text, size_t size, struct err *e);

/* Standard base64; blanks are skipped. The bytes with a NUL after them, or NULL (errno EINVAL or ENOMEM). */
char *kube_base64_decode(const char *text, size_t size, size_t *ret_size);

/* A whole file of at most most_bytes, NUL-terminated; NULL with *e set. */
char *kube_file_read(const char *path, size_t most_bytes, size_t *ret_size, struct err *e);

#endif
