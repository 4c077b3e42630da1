/* A front's side of the file helper's protocol, for tests: it waits for every answer, with a deadline. */
#ifndef CARREL_TESTS_FILES_CLIENT_H
#define CARREL_TESTS_FILES_CLIENT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>

#include "proto/files.h"

/* All of an answer. */
struct answer {
    struct files_done done;
    char             *data;         /* DATA frames together */
    size_t            size;
    char             *entries;      /* ENTRIES frames together */
    size_t            entries_size;
    size_t            n_frames;     /* DATA frames */
};

struct listed {
    struct files_entry entry;
    char               name[256], link[FILES_PATH_MAX + 1];
};

/* Gives fd the deadline of all tests. */
void client_init(int fd);

void client_send(int fd, const struct files_head *head, const void *data, size_t size);
void client_frame(int fd, enum files_frame type, const void *data, size_t size);
void client_ask(int fd, struct files_request request, const char *path, const char *other);

/* Reads up to DONE. With discard, DATA is counted but not kept. */
struct answer client_answer(int fd, bool discard);
void          answer_free(struct answer *answer);
/* The next entry of an answer; false at its end. */
bool          answer_next(const struct answer *answer, size_t *at, struct listed *ret);

/* Ask, wait, and free all but DONE. */
struct files_done client_do(int fd, struct files_request request, const char *path, const char *other);
/* The same with an upload. */
struct files_done client_upload(int fd, struct files_request request, const char *path, const void *data, size_t size);
/* True if the helper has ended the conversation. */
bool client_is_over(int fd);

#define assert_done(d) \
    do { \
        struct files_done done_ = (d); \
        if (done_.code) \
            fail_msg("%s: %d %s", #d, done_.code, done_.text); \
    } while (0)

#endif
