/* libyaml loads a kubeconfig as one document (JSON is YAML too). current-context leads by name to a context, a cluster
 * and a user, whose known members are read. An unknown member is ignored, as in kubectl; a member of a wrong kind is an
 * error with file and line.
 *
 * Several files are merged by kubectl's rules: the first file that sets current-context wins, and for each name the
 * first file that has such an element; elements are taken whole, and paths in them are relative to their own file.
 *
 * Keys and certificates stay in memory: OpenSSL gets them as PEM text, and no file is written. */
#include "kube/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#include "base/buf.h"
#include "base/fd.h"

enum { FILE_MAX_BYTES = 4 << 20, FILES_MAX = 64 };

/* One file. */
struct reader {
    const char     *name, *folder;
    yaml_document_t document;
    struct err     *e;
};

/* All of them. */
struct readers {
    struct reader of[FILES_MAX];
    size_t        n;
};

static int PRINTF_LIKE(3, 4) fail(struct reader *r, const yaml_node_t *node, const char *format, ...)
{
    char what[160];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    size_t length = strlen(r->name);
    return err_set(r->e, EINVAL, STEP_USAGE, "%s:%zu: %s", length > 60 ? r->name + length - 60 : r->name,
                   node ? node->start_mark.line + 1 : 1, what);
}

static yaml_node_t *member(struct reader *r, yaml_node_t *map, const char *key)
{
    if (!map || map->type != YAML_MAPPING_NODE)
        return NULL;
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        yaml_node_t *k = yaml_document_get_node(&r->document, p->key);
        if (k && k->type == YAML_SCALAR_NODE && strcmp((char *)k->data.scalar.value, key) == 0)
            return yaml_document_get_node(&r->document, p->value);
    }
    return NULL;
}

/* A scalar's text; NULL for none, for null and for "". */
static const char *scalar(yaml_node_t *node)
{
    if (!node || node->type != YAML_SCALAR_NODE)
        return NULL;
    const char *text = (const char *)node->data.scalar.value;
    bool is_null = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && (!strcmp(text, "~") || !strcmp(text, "null"));
    return *text && !is_null ? text : NULL;
}

static int take_text(struct reader *r, yaml_node_t *map, const char *key, char **ret)
{
    yaml_node_t *node = member(r, map, key);
    if (node && node->type != YAML_SCALAR_NODE)
        return fail(r, node, "%s must be a string", key);
    const char *text = scalar(node);
    if (!text)
        return 0;
    free(*ret);
    *ret = strdup(text);
    return *ret ? 0 : err_at(r->e, ENOMEM, STEP_MEMORY, 0, NULL);
}

static bool take_bool(struct reader *r, yaml_node_t *map, const char *key)
{
    const char *text = scalar(member(r, map, key));

    return text && (!strcasecmp(text, "true") || !strcasecmp(text, "yes"));
}

char *kube_file_read(const char *path, size_t most_bytes, size_t *ret_size, struct err *e)
{
    struct buf b;
    FD fd = open(path, O_RDONLY | O_CLOEXEC);

    buf_init(&b, most_bytes);
    *ret_size = 0;
    if (fd < 0) {
        err_set(e, errno, STEP_USAGE, "cannot read %s: %s", path, strerror(errno));
        return NULL;
    }
    for (;;) {
        char piece[4096];
        ssize_t n = read(fd, piece, sizeof piece);
        int code = n < 0 ? errno : 0;
        if (n > 0)
            buf_add(&b, piece, (size_t)n);
        if (code || buf_error(&b) < 0) {
            code = code ? code : b.failure;
            err_set(e, code, STEP_USAGE, "cannot read %s: %s", path, strerror(code));
            buf_done(&b);
            return NULL;
        }
        if (n == 0)
            break;
    }
    if (!b.data)
        return strdup("");
    *ret_size = b.length;
    return b.data;
}

char *kube_base64_decode(const char *text, size_t size, size_t *ret_size)
{
    unsigned char *out = malloc(size / 4 * 3 + 4);
    uint32_t word = 0;
    size_t n = 0, bits = 0, pads = 0;

    if (!out)
        return NULL;
    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        int v = c >= 'A' && c <= 'Z'   ? c - 'A'
                : c >= 'a' && c <= 'z' ? c - 'a' + 26
                : c >= '0' && c <= '9' ? c - '0' + 52
                : c == '+'             ? 62
                : c == '/'             ? 63
                                       : -1;
        if (isspace(c))
            continue;
        if (c == '=' && pads < 2) {
            pads++;
            continue;
        }
        if (v < 0 || pads) {
            free(out);
            errno = EINVAL;
            return NULL;
        }
        word = word << 6 | (uint32_t)v;
        if ((bits += 6) >= 8) {
            bits -= 8;
            out[n++] = (unsigned char)(word >> bits);
        }
    }
    out[n] = '\0';
    *ret_size = n;
    return (char *)out;
}

/* KEY-data in base64, or the contents of the file that KEY names. */
static int take_pem(struct reader *r, yaml_node_t *map, const char *key, char **ret)
{
    char data_key[64];
    size_t size;

    snprintf(data_key, sizeof data_key, "%s-data", key);
    yaml_node_t *node = member(r, map, data_key);
    const char *data = scalar(node), *path = scalar(member(r, map, key));
    if (data) {
        char *pem = kube_base64_decode(data, strlen(data), &size);
        if (!pem)
            return fail(r, node, "%s is not base64", data_key);
        free(*ret);
        *ret = pem;
    } else if (path) {
        char *whole = NULL;
        if (path[0] != '/' && asprintf(&whole, "%s/%s", r->folder, path) < 0)
            return err_at(r->e, ENOMEM, STEP_MEMORY, 0, NULL);
        char *pem = kube_file_read(whole ? whole : path, FILE_MAX_BYTES, &size, r->e);
        free(whole);
        if (!pem)
            return -r->e->code;
        free(*ret);
        *ret = pem;
    }
    return 0;
}

static yaml_node_t *root_of(struct reader *r)
{
    return yaml_document_get_root_node(&r->document);
}

/* Finds the first element of list with this name. *ret is its contents; returns its file. NULL if there is none; the
 * error says so. */
static struct reader *named(struct readers *all, const char *list, const char *name, const char *inner,
                            yaml_node_t **ret)
{
    for (size_t f = 0; f < all->n; f++) {
        struct reader *r = &all->of[f];
        yaml_node_t *elements = member(r, root_of(r), list);
        if (!elements || elements->type != YAML_SEQUENCE_NODE)
            continue;
        for (yaml_node_item_t *i = elements->data.sequence.items.start; i < elements->data.sequence.items.top; i++) {
            yaml_node_t *each = yaml_document_get_node(&r->document, *i);
            const char *own = scalar(member(r, each, "name"));
            if (own && strcmp(own, name) == 0) {
                *ret = member(r, each, inner);
                return r;
            }
        }
    }
    yaml_node_t *elements = member(&all->of[0], root_of(&all->of[0]), list);
    (void)fail(&all->of[0], elements ? elements : root_of(&all->of[0]),
                "there is no %s named \"%.60s\"%s; see `kubectl config view`", inner, name,
                all->n > 1 ? ", nor in the files after this one" : "");
    return NULL;
}

static int bad_url(struct err *e, const char *url)
{
    return err_set(e, EINVAL, STEP_USAGE, "server \"%.100s\" is not http(s)://HOST[:PORT][/PATH]", url);
}

static int take_url(struct kube_config *c, struct err *e)
{
    const char *at = c->url, *host, *end;

    if (strncmp(at, "https://", 8) == 0) {
        c->tls = true;
        at += 8;
    } else if (strncmp(at, "http://", 7) == 0) {
        at += 7;
    } else {
        return bad_url(e, c->url);
    }
    host = at;
    if (*host == '[') {
        host++;
        end = strchr(host, ']');
        if (!end)
            return bad_url(e, c->url);
        at = end + 1;
    } else {
        end = at = host + strcspn(host, ":/");
    }
    for (const char *p = host; p < end; p++)
        if (!isalnum((unsigned char)*p) && !strchr(".-:_%", *p))
            return bad_url(e, c->url);
    if (end == host)
        return bad_url(e, c->url);
    c->host = strndup(host, (size_t)(end - host));
    if (*at == ':') {
        size_t n = strspn(at + 1, "0123456789");
        if (n == 0 || n > 5)
            return bad_url(e, c->url);
        c->port = strndup(at + 1, n);
        at += 1 + n;
    } else {
        c->port = strdup(c->tls ? "443" : "80");
    }
    if (*at && *at != '/')
        return bad_url(e, c->url);
    size_t n = strlen(at);
    while (n > 0 && at[n - 1] == '/')
        n--;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)at[i] <= ' ' || (unsigned char)at[i] >= 0x7f)
            return bad_url(e, c->url);
    c->prefix = strndup(at, n);
    return c->host && c->port && c->prefix ? 0 : err_at(e, ENOMEM, STEP_MEMORY, 0, NULL);
}

static int take_cluster(struct reader *r, yaml_node_t *cluster, struct kube_config *c)
{
    int ret;

    if ((ret = take_text(r, cluster, "server", &c->url)) < 0 ||
        (ret = take_text(r, cluster, "tls-server-name", &c->server_name)) < 0 ||
        (ret = take_pem(r, cluster, "certificate-authority", &c->ca_pem)) < 0)
        return ret;
    if (!c->url)
        return fail(r, cluster, "the cluster has no server");
    if (scalar(member(r, cluster, "proxy-url")))
        return fail(r, cluster, "proxy-url is not supported; connect directly");
    c->insecure = take_bool(r, cluster, "insecure-skip-tls-verify");
    return take_url(c, r->e);
}

/* A relative path starts at the file's own folder. */
static int take_path(struct reader *r, char **path)
{
    char *whole;

    if ((*path)[0] == '/')
        return 0;
    if (asprintf(&whole, "%s/%s", r->folder, *path) < 0)
        return err_at(r->e, ENOMEM, STEP_MEMORY, 0, NULL);
    free(*path);
    *path = whole;
    return 0;
}

/* Whether the text may stand in a header. */
static bool is_token(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text <= ' ' || (unsigned char)*text >= 0x7f)
            return false;
    return true;
}

static int take_exec(struct reader *r, yaml_node_t *plugin, struct kube_config *c)
{
    int ret;
    yaml_node_t *args = member(r, plugin, "args"), *env = member(r, plugin, "env");
    size_t n = 1;

    if ((ret = take_text(r, plugin, "command", &c->exec_argv[0])) < 0 ||
        (ret = take_text(r, plugin, "apiVersion", &c->exec_version)) < 0)
        return ret;
    if (!c->exec_argv[0])
        return fail(r, plugin, "exec has no command");
    if (strchr(c->exec_argv[0], '/') && (ret = take_path(r, &c->exec_argv[0])) < 0)
        return ret;
    if (args && args->type == YAML_SEQUENCE_NODE)
        for (yaml_node_item_t *i = args->data.sequence.items.start; i < args->data.sequence.items.top; i++) {
            yaml_node_t *arg = yaml_document_get_node(&r->document, *i);
            if (!arg || arg->type != YAML_SCALAR_NODE || n == KUBE_EXEC_ARGS_MAX)
                return fail(r, args, "args of exec must be a list of at most %d strings", KUBE_EXEC_ARGS_MAX - 1);
            c->exec_argv[n++] = strdup((char *)arg->data.scalar.value);
        }
    n = 0;
    if (env && env->type == YAML_SEQUENCE_NODE)
        for (yaml_node_item_t *i = env->data.sequence.items.start; i < env->data.sequence.items.top; i++) {
            yaml_node_t *each = yaml_document_get_node(&r->document, *i), *value = member(r, each, "value");
            const char *name = scalar(member(r, each, "name"));
            if (!name || n == KUBE_EXEC_ARGS_MAX)
                return fail(r, env, "env of exec must be a list of at most %d {name, value}", KUBE_EXEC_ARGS_MAX);
            if (asprintf(&c->exec_env[n++], "%s=%s", name,
                         value && value->type == YAML_SCALAR_NODE ? (char *)value->data.scalar.value : "") < 0)
                return err_at(r->e, ENOMEM, STEP_MEMORY, 0, NULL);
        }
    return 0;
}

static int take_user(struct reader *r, yaml_node_t *user, struct kube_config *c)
{
    int ret;

    if ((ret = take_pem(r, user, "client-certificate", &c->cert_pem)) < 0 ||
        (ret = take_pem(r, user, "client-key", &c->key_pem)) < 0 ||
        (ret = take_text(r, user, "token", &c->token)) < 0 ||
        (ret = take_text(r, user, "tokenFile", &c->token_file)) < 0)
        return ret;
    if (c->token && !is_token(c->token))
        return fail(r, member(r, user, "token"), "token has blanks or line ends in it");
    if (c->token_file && ((ret = take_path(r, &c->token_file)) < 0 || (ret = kube_config_refresh(c, r->e)) < 0))
        return ret;
    if (member(r, user, "auth-provider"))
        return fail(r, user, "auth-provider is gone since Kubernetes 1.26; use exec, a token or a certificate");
    if (scalar(member(r, user, "username")))
        return fail(r, user,
                    "username and password are gone since Kubernetes 1.19; use exec, a token or a certificate");
    if (!c->cert_pem != !c->key_pem)
        return fail(r, user, "client-certificate and client-key belong together, and one is missing");
    yaml_node_t *plugin = member(r, user, "exec");
    return plugin ? take_exec(r, plugin, c) : 0;
}

static int take_all(struct readers *all, const char *wanted, struct kube_config *c)
{
    struct reader *first = &all->of[0];
    yaml_node_t *context = NULL, *cluster = NULL, *user = NULL;
    int ret;

    for (size_t i = 0; i < all->n; i++) {
        struct reader *r = &all->of[i];
        if (!root_of(r) ? all->n == 1 : root_of(r)->type != YAML_MAPPING_NODE)
            return fail(r, root_of(r), "this is no kubeconfig");
        if (!wanted)
            wanted = scalar(member(r, root_of(r), "current-context"));
    }
    if (!wanted)
        return fail(first, root_of(first), "no current-context is set; see `kubectl config use-context`");
    struct reader *in = named(all, "contexts", wanted, "context", &context);
    if (!in)
        return -EINVAL;
    const char *cluster_name = scalar(member(in, context, "cluster"));
    const char *user_name = scalar(member(in, context, "user"));
    if (!cluster_name)
        return fail(in, context ? context : root_of(in), "the context names no cluster");
    if ((ret = take_text(in, context, "namespace", &c->namespace)) < 0)
        return ret;
    if (!(in = named(all, "clusters", cluster_name, "cluster", &cluster)))
        return -EINVAL;
    if ((ret = take_cluster(in, cluster, c)) < 0 || !user_name)
        return ret;
    if (!(in = named(all, "users", user_name, "user", &user)))
        return -EINVAL;
    return user ? take_user(in, user, c) : 0;
}

/* Adds a file to all->of; the caller must delete its document. */
static int read_document(struct readers *all, const struct kube_config_source *from, struct err *e)
{
    struct reader *r = &all->of[all->n];
    yaml_parser_t parser;
    int result = 0;

    *r = (struct reader){ .name = from->name, .folder = from->folder, .e = e };
    if (!yaml_parser_initialize(&parser))
        return err_at(e, ENOMEM, STEP_MEMORY, 0, NULL);
    yaml_parser_set_input_string(&parser, (const unsigned char *)from->text, from->size);
    if (yaml_parser_load(&parser, &r->document))
        all->n++;
    else
        result = err_set(e, EINVAL, STEP_USAGE, "%.80s:%zu: %s", from->name, parser.problem_mark.line + 1,
                         parser.problem ? parser.problem : "this is no YAML");
    yaml_parser_delete(&parser);
    return result;
}

int kube_config_parse(const struct kube_config_source *from, size_t n, const char *context, struct kube_config *ret,
                      struct err *e)
{
    struct readers *all = calloc(1, sizeof *all);
    struct kube_config c = { 0 };
    int result = all ? 0 : err_at(e, ENOMEM, STEP_MEMORY, 0, NULL);

    if (n == 0 || n > FILES_MAX)
        result = err_set(e, E2BIG, STEP_USAGE, "KUBECONFIG names more than %d files", FILES_MAX);
    for (size_t i = 0; result == 0 && i < n; i++)
        result = read_document(all, &from[i], e);
    if (result == 0)
        result = take_all(all, context, &c);
    for (size_t i = 0; all && i < all->n; i++)
        yaml_document_delete(&all->of[i].document);
    free(all);
    if (result < 0)
        kube_config_done(&c);
    else
        *ret = c;
    return result;
}

int kube_config_refresh(struct kube_config *c, struct err *e)
{
    struct stat st;
    size_t size;

    if (!c->token_file)
        return 0;
    if (stat(c->token_file, &st) < 0)
        return err_set(e, errno, STEP_USAGE, "cannot read %.150s: %s", c->token_file, strerror(errno));
    if (c->token && st.st_mtim.tv_sec == c->token_read.tv_sec && st.st_mtim.tv_nsec == c->token_read.tv_nsec)
        return 0;
    char *token = kube_file_read(c->token_file, 65536, &size, e);
    if (!token)
        return -e->code;
    while (size > 0 && isspace((unsigned char)token[size - 1]))
        token[--size] = '\0';
    if (size == 0 || strlen(token) != size || !is_token(token)) {
        free(token);
        return err_set(e, EINVAL, STEP_USAGE, "%.150s holds no token", c->token_file);
    }
    free(c->token);
    c->token = token;
    c->token_read = st.st_mtim;
    return 0;
}

int kube_config_in_cluster(const char *root, struct kube_config *ret, struct err *e)
{
    static const char place[] = "/var/run/secrets/kubernetes.io/serviceaccount";
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    struct kube_config c = { .in_cluster = true };
    char path[4096];
    size_t size;
    int r = 0;

    if (!host || !port)
        return err_set(e, ENOENT, STEP_USAGE, "there is no kubeconfig, and this is no pod; use --kubeconfig FILE");
    if (asprintf(&c.url, strchr(host, ':') ? "https://[%s]:%s" : "https://%s:%s", host, port) < 0)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, NULL);
    r = take_url(&c, e);
    snprintf(path, sizeof path, "%s%s/ca.crt", root, place);
    if (r == 0 && !(c.ca_pem = kube_file_read(path, FILE_MAX_BYTES, &size, e)))
        r = -e->code;
    snprintf(path, sizeof path, "%s%s/namespace", root, place);
    if (r == 0 && !(c.namespace = kube_file_read(path, 65536, &size, e)))
        r = -e->code;
    snprintf(path, sizeof path, "%s%s/token", root, place);
    if (r == 0 && !(c.token_file = strdup(path)))
        r = err_at(e, ENOMEM, STEP_MEMORY, 0, NULL);
    if (r == 0)
        r = kube_config_refresh(&c, e);
    if (r < 0)
        kube_config_done(&c);
    else
        *ret = c;
    return r;
}

static void free_source(struct kube_config_source *s)
{
    free((char *)s->name);
    free((char *)s->folder);
    explicit_bzero((char *)s->text, s->size);
    free((char *)s->text);
}

static bool read_source(const char *path, size_t length, struct kube_config_source *ret, struct err *e)
{
    char *name = strndup(path, length), *slash = name ? strrchr(name, '/') : NULL, *text = NULL;
    char *folder = slash ? strndup(name, slash == name ? 1 : (size_t)(slash - name)) : strdup(".");
    size_t size;

    if (!name || !folder)
        err_at(e, ENOMEM, STEP_MEMORY, 0, NULL);
    else
        text = kube_file_read(name, FILE_MAX_BYTES, &size, e);
    if (!text) {
        free(name);
        free(folder);
        return false;
    }
    *ret = (struct kube_config_source){ .name = name, .folder = folder, .text = text, .size = size };
    return true;
}

/* Files, separated by colons. Missing files are skipped, unless only one is named. */
static int load(const char *list, bool is_one, const char *context, struct kube_config *ret, struct err *e)
{
    struct kube_config_source all[FILES_MAX];
    size_t n = 0;
    int r = 0;

    for (const char *at = list; r == 0 && *at;) {
        size_t length = is_one ? strlen(at) : strcspn(at, ":");
        if (length > 0 && n == FILES_MAX)
            r = err_set(e, E2BIG, STEP_USAGE, "KUBECONFIG names more than %d files", FILES_MAX);
        else if (length > 0 && read_source(at, length, &all[n], e))
            n++;
        else if (length > 0 && (is_one || e->code != ENOENT))
            r = -e->code;
        at += length + (at[length] == ':');
    }
    if (r == 0 && n == 0)
        r = err_set(e, ENOENT, STEP_USAGE, "KUBECONFIG is \"%.120s\", and none of it exists", list);
    if (r == 0)
        r = kube_config_parse(all, n, context, ret, e);
    for (size_t i = 0; i < n; i++)
        free_source(&all[i]);
    return r;
}

int kube_config_find(const char *file, const char *context, struct kube_config *ret, struct err *e)
{
    const char *list = getenv("KUBECONFIG"), *home = getenv("HOME");
    char path[4096];

    if (file && *file)
        return load(file, true, context, ret, e);
    if (list && *list)
        return load(list, false, context, ret, e);
    if (getenv("KUBERNETES_SERVICE_HOST"))
        return kube_config_in_cluster("", ret, e);
    snprintf(path, sizeof path, "%s/.kube/config", home ? home : "");
    if (home && access(path, F_OK) == 0)
        return load(path, true, context, ret, e);
    return kube_config_in_cluster("", ret, e);
}

void kube_config_done(struct kube_config *c)
{
    char **all[] = { &c->url, &c->host, &c->port, &c->prefix, &c->server_name, &c->ca_pem, &c->cert_pem, &c->key_pem,
                     &c->token, &c->token_file, &c->namespace, &c->exec_version };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (*all[i])
            explicit_bzero(*all[i], strlen(*all[i]));
        free(*all[i]);
    }
    for (size_t i = 0; i < KUBE_EXEC_ARGS_MAX; i++) {
        free(c->exec_argv[i]);
        free(c->exec_env[i]);
    }
    *c = (struct kube_config){ 0 };
}
