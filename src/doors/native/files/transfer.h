/* One request about files: its conversation with the helper, and the HTTP answer. */
#ifndef CARREL_DOORS_NATIVE_FILES_TRANSFER_H
#define CARREL_DOORS_NATIVE_FILES_TRANSFER_H

#include "doors/native/door.h"
#include "front/files/box_files.h"
#include "front/files/file_entry.h"

struct transfer {
    struct ask          *ask;
    struct box_files_user   user;
    const char          *path;          /* in the box */
    void (*on_done)(struct transfer *t, const struct files_done *done);     /* success; the helper can be used again */
    struct files_entry   entry;         /* of STAT and READ */
    char                 link[256];     /* the target of a symbolic link, cut */
    bool                 has_entry, started, uploading;
    uint64_t             from, length;  /* the requested part of a file */
    bool                 is_range;
    struct buf           list;          /* entries as JSON */
    uint64_t             listed;
};

/* --- transfer.c --- */
/* Opens a helper for the request, or answers it and returns NULL. */
struct transfer *transfer_new(struct ask *a, const char *path);
/* Sends a request; calls t->on_done on success, and answers errors itself. */
void transfer_ask(struct transfer *t, struct files_request *q, const char *other,
                  void (*on_done)(struct transfer *, const struct files_done *));
/* Sends a request, and the HTTP request's body after it. */
void transfer_upload(struct transfer *t, struct files_request *q,
                     void (*on_done)(struct transfer *, const struct files_done *));
/* Ends the conversation; the HTTP request is not answered yet. */
void transfer_over(struct transfer *t);
void transfer_fail(struct transfer *t, int code, const char *text);

/* Passes DATA to the client as it arrives; the answer must have been started. */
void transfer_hand_down(struct transfer *t, const char *data, size_t size);

#endif
