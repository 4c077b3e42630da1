/* The API server's address and our credentials: from a kubeconfig file, or from a pod's environment. */
#ifndef CARREL_KUBE_CONFIG_H
#define CARREL_KUBE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <time.h>

#include "base/err.h"

enum { KUBE_EXEC_ARGS_MAX = 64 };

/* Owned strings; NULL if missing. */
struct kube_config {
    char *url;              /* for messages */
    char *host, *port;
    char *prefix;           /* path before /api, without a slash at its end; usually "" */
    bool  tls, insecure;    /* insecure: the file says not to check the server's certificate */
    char *server_name;      /* the name in the server's certificate; the host if NULL */
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

/* One file's text. folder: the start of its relative paths. name: for messages. */
struct kube_config_source {
    const char *name, *text, *folder;
    size_t      size;
};

/* The given file, if any; else those of KUBECONFIG; else the pod's own; else ~/.kube/config. */
MUST_CHECK int kube_config_find(const char *file, const char *context, struct kube_config *ret, struct err *e);
/* Merges several files; earlier ones win. */
MUST_CHECK int kube_config_parse(const struct kube_config_source *from, size_t n, const char *context,
                                 struct kube_config *ret, struct err *e);
/* A pod's configuration: environment and files below root ("" in a pod). */
MUST_CHECK int kube_config_in_cluster(const char *root, struct kube_config *ret, struct err *e);
void kube_config_done(struct kube_config *c);

/* Reads the token again if its file has changed. 0 or -errno; the old token stays on failure. */
MUST_CHECK int kube_config_refresh(struct kube_config *c, struct err *e);

/* Runs the credential plugin, if there is one, and takes token and certificate from its output. Blocks. */
MUST_CHECK int kube_config_run_plugin(struct kube_config *c, struct err *e);
MUST_CHECK int kube_config_take_credential(struct kube_config *c, const char *text, size_t size, struct err *e);

/* Standard base64; blanks are skipped. The bytes with a NUL after them, or NULL (errno EINVAL or ENOMEM). */
char *kube_base64_decode(const char *text, size_t size, size_t *ret_size);

/* A whole file of at most most_bytes, NUL-terminated; NULL with *e set. */
char *kube_file_read(const char *path, size_t most_bytes, size_t *ret_size, struct err *e);

#endif
