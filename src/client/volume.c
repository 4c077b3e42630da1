/* carrel volume create|list|inspect|resize|share|rm, and --volume of the commands that make boxes. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "client/client.h"
#include "client/commands.h"

static const char usage[] =
    "usage: carrel volume create NAME [--size 10G] [--many] [--share IDENTITY|all]...\n"
    "       carrel volume list [--everybody]\n"
    "       carrel volume inspect NAME\n"
    "       carrel volume resize NAME SIZE\n"
    "       carrel volume share NAME IDENTITY...|all|none\n"
    "       carrel volume rm NAME...\n"
    "\n"
    "A volume is a directory that outlives boxes: 'carrel create --volume NAME:/data' (NAME:/data:ro to read alone).\n"
    "One box writes to it at a time, any number reads; with --many any number writes. Others may read what is shared\n"
    "with them, as OWNER/NAME. A volume grows while no box has it.\n"
    "\n"
    "  --json  --url URL\n";

struct volume_words {
    json_t *body, *share;
    bool    everybody;
};

/* NAME:/PATH[:ro|rw]. A name may have colons: uid:1000/models. */
int take_volume(const char *option, const char *value, json_t *body, struct err *e)
{
    const char *colon = strstr(value, ":/");
    size_t length = colon ? strlen(colon + 1) : 0;
    bool ro = length > 3 && strcmp(colon + 1 + length - 3, ":ro") == 0;
    bool rw = length > 3 && strcmp(colon + 1 + length - 3, ":rw") == 0;
    json_t *list = json_object_get(body, "volumes");

    if (!colon || colon == value)
        return err_set(e, EINVAL, STEP_USAGE, "%s wants NAME:/PATH or NAME:/PATH:ro, not '%s'", option,
                       parse_quote(value).text);
    if (!list && json_object_set_new(body, "volumes", list = json_array()) < 0)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, option);
    json_t *one = json_pack("{s:s%,s:s%,s:b}", "name", value, (size_t)(colon - value), "path", colon + 1,
                            length - (ro || rw ? 3 : 0), "read_only", ro);
    return json_array_append_new(list, one) < 0
               ? err_set(e, EINVAL, STEP_USAGE, "%s %s is not UTF-8", option, parse_quote(value).text) : 0;
}

static int set_size(void *into, const char *value, struct err *e)
{
    return take_size("--size", value, ((struct volume_words *)into)->body, "size", e);
}

static int set_many(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    return json_object_set_new(((struct volume_words *)into)->body, "many", json_true());
}

static int add_share(void *into, const char *value, struct err *e)
{
    return json_array_append_new(((struct volume_words *)into)->share, json_string(value)) < 0
               ? err_set(e, EINVAL, STEP_USAGE, "--share is not UTF-8") : 0;
}

static int set_everybody(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    ((struct volume_words *)into)->everybody = true;
    return 0;
}

/* "all", or a list; "none" is an empty one. */
static void put_share(struct volume_words *w)
{
    const char *first = json_string_value(json_array_get(w->share, 0));
    bool is_single = json_array_size(w->share) == 1;

    if (is_single && strcmp(first, "all") == 0)
        json_object_set_new(w->body, "shared_with", json_string("all"));
    else if (is_single && strcmp(first, "none") == 0)
        json_object_set_new(w->body, "shared_with", json_array());
    else if (json_array_size(w->share))
        json_object_set(w->body, "shared_with", w->share);
}

/* A name that can be none is refused here: in a path it would mean something else. */
static const char *target_volume(const struct client *c, const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    static char text[1024];
    const char *slash = strrchr(name, '/');
    const char *last = slash ? slash + 1 : name;
    char owner[256];
    struct buf target;

    if (!last[0] || last[strspn(last, letters)] || strncmp(name, "../", 3) == 0 || strncmp(name, "./", 2) == 0
        || slash == name || (slash && memchr(name, '/', (size_t)(slash - name)))) {
        (void)client_misused(c, "'%s' is not the name of a volume: NAME or OWNER/NAME", parse_quote(name).text);
        return NULL;
    }

    buf_init_fixed(&target, text, sizeof text - 1);
    snprintf(owner, sizeof owner, "%.*s", slash ? (int)(slash - name) : 0, name);
    if (slash)
        target_add(&target, "/v1/volumes/", owner);
    target_add(&target, slash ? "/" : "/v1/volumes/", last);
    text[buf_error(&target) < 0 ? 0 : target.length] = '\0';
    return text;
}

/* "data 10G": its name and size, or its id with --json. */
static int show_one(const struct client *c, json_t *answer, const char *what)
{
    if (c->json)
        print_json(answer);
    else
        printf("%s%s\n", text_of(answer, "name"), what);
    json_decref(answer);
    return 0;
}

static int create(const struct client *c, struct volume_words *w, const struct words *words)
{
    json_t *answer = NULL;

    if (words->n != 2)
        return client_misused(c, "create wants one name, e.g. 'carrel volume create data --size 10G'");
    if (json_object_set_new(w->body, "name", json_string(words->at[1])) < 0)
        return client_misused(c, "the name is not UTF-8");
    put_share(w);
    if (client_call(c, "POST", "/v1/volumes", json_incref(w->body), &answer) < 0)
        return EXIT_CLIENT;
    return show_one(c, answer, "");
}

static const char *show_boxes(const json_t *volume)
{
    size_t n = json_array_size(json_object_get(volume, "boxes"))
             + (size_t)json_integer_value(json_object_get(volume, "other_boxes"));

    return n ? show_number(n) : "";
}

static const char *show_shared(const json_t *volume)
{
    const json_t *shared = json_object_get(volume, "shared_with");
    size_t n = json_array_size(shared);

    return json_is_string(shared) ? json_string_value(shared)
           : n == 1               ? json_string_value(json_array_get(shared, 0))
           : n                    ? show_format("%zu identities", n)
                                  : "";
}

static int list(const struct client *c, const struct volume_words *w)
{
    static const char *const titles[] = { "NAME", "SIZE", "USED", "WRITERS", "BOXES", "SHARED", "AGE", "PHASE", NULL };
    json_t *answer = NULL, *v;
    struct table t;
    size_t i;

    if (client_call(c, "GET", w->everybody ? "/v1/volumes?all=true" : "/v1/volumes", NULL, &answer) < 0)
        return EXIT_CLIENT;
    if (c->json) {
        print_json(json_object_get(answer, "volumes"));
    } else {
        table_init(&t, titles, 1u << 1 | 1u << 2 | 1u << 4 | 1u << 6);
        json_array_foreach(json_object_get(answer, "volumes"), i, v) {
            json_t *used = json_object_get(v, "used");
            table_add(&t, text_of(v, "name"),
                      show_bytes((uint64_t)json_integer_value(json_object_get(v, "size"))),
                      json_is_null(used) ? "-" : show_bytes((uint64_t)json_integer_value(used)),
                      json_is_true(json_object_get(v, "many")) ? "many" : "one", show_boxes(v), show_shared(v),
                      show_age(text_of(v, "created_at")), text_of(v, "phase"));
        }
        table_print(&t);
        table_done(&t);
    }
    json_decref(answer);
    return 0;
}

static int inspect(const struct client *c, const struct words *words)
{
    json_t *answer = NULL;

    if (words->n != 2)
        return client_misused(c, "inspect wants the name of one volume");
    const char *target = target_volume(c, words->at[1]);
    if (!target || client_call(c, "GET", target, NULL, &answer) < 0)
        return EXIT_CLIENT;
    print_json(answer);
    json_decref(answer);
    return 0;
}

static int change(const struct client *c, struct volume_words *w, const struct words *words)
{
    json_t *answer = NULL;

    const char *target = target_volume(c, words->at[1]);
    if (!target || client_call(c, "PATCH", target, json_incref(w->body), &answer) < 0)
        return EXIT_CLIENT;
    return show_one(c, answer, "");
}

static int resize(const struct client *c, struct volume_words *w, const struct words *words)
{
    struct err e = { 0 };

    if (words->n != 3)
        return client_misused(c, "resize wants a name and a size, e.g. 'carrel volume resize data 20G'");
    if (take_size("SIZE", words->at[2], w->body, "size", &e) < 0)
        return client_complain(&e);
    return change(c, w, words);
}

static int share(const struct client *c, struct volume_words *w, const struct words *words)
{
    struct err e = { 0 };

    if (words->n < 3)
        return client_misused(c, "share wants a name, then identities, 'all' or 'none'");
    for (int i = 2; i < words->n; i++)
        if (add_share(w, words->at[i], &e) < 0)
            return client_complain(&e);
    put_share(w);
    return change(c, w, words);
}

static int rm(const struct client *c, const struct words *words)
{
    int status = 0;

    if (words->n < 2)
        return client_misused(c, "rm wants the names of volumes; 'carrel volume list' shows them");
    for (int i = 1; i < words->n; i++) {
        const char *target = target_volume(c, words->at[i]);
        if (!target || client_call(c, "DELETE", target, NULL, NULL) < 0)
            status = EXIT_CLIENT;
    }
    return status;
}

int client_volume(int argc, char **argv)
{
    static const struct flag flags[] = {
        { "size", 0, true, set_size },
        { "many", 0, false, set_many },
        { "share", 0, true, add_share },
        { "everybody", 0, false, set_everybody },
    };
    struct client c = { .name = "volume", .usage = usage };
    struct volume_words w = { json_object(), json_array(), false };
    struct words words;
    int status = client_begin(&c, argc, argv, flags, sizeof flags / sizeof *flags, &w, false, &words);
    const char *word = status < 0 && words.n ? words.at[0] : "";

    if (status >= 0)
        ;
    else if (strcmp(word, "create") == 0)
        status = create(&c, &w, &words);
    else if ((strcmp(word, "list") == 0 || strcmp(word, "ls") == 0) && words.n == 1)
        status = list(&c, &w);
    else if (strcmp(word, "inspect") == 0)
        status = inspect(&c, &words);
    else if (strcmp(word, "resize") == 0)
        status = resize(&c, &w, &words);
    else if (strcmp(word, "share") == 0)
        status = share(&c, &w, &words);
    else if (strcmp(word, "rm") == 0)
        status = rm(&c, &words);
    else
        status = client_misused(&c, word[0] ? "there is no 'volume %s'; name create, list, inspect, resize, share or rm"
                                            : "name an action: create, list, inspect, resize, share or rm%s",
                                parse_quote(word).text);
    json_decref(w.body);
    json_decref(w.share);
    return status;
}
