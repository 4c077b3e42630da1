/* One request about files: what it asks the helper, and how the answer becomes HTTP. */
#ifndef CARREL_DOORS_NATIVE_FILES_TRANSFER_H
#define CARREL_DOORS_NATIVE_FILES_TRANSFER_H

#include "doors/native/door.h"
#include "front/files/box_files.h"
#include "front/files/file_entry.h"

struct transfer {
    struct ask          *ask;
    struct box_files_user   user;
    const char          *path;          /* in the box */
    void (*on_done)(struct transfer *t, const struct files_done *done);     /* it worked; the helper is still ours */
    struct files_entry   entry;         /* of STAT and READ */
    char                 link[256];     /* the target of a symbolic link, cut */
    bool                 has_entry, started, uploading;
    uint64_t             from, length;  /* what is asked for of a file */
    bool                 is_range;
    struct buf           list;          /* entries as JSON */
    uint64_t             listed;
};

/* --- transfer.c --- */
/* Opens a helper for the request, or answers it and returns NULL. */
struct transfer *transfer_new(struct ask *a, const char *path);
/* Asks; t->on_done is called when it worked, otherwise the error is answered. */
void transfer_ask(struct transfer *t, struct files_request *q, const char *other,
                  void (*on_done)(struct transfer *, const struct files_done *));
/* Asks, and sends the request's body after it. */
void transfer_upload(struct transfer *t, struct files_request *q,
                     void (*on_done)(struct transfer *, const struct files_done *));
/* The conversation is over; the request is yet to be answered. */
void transfer_over(struct transfer *t);
void transfer_fail(struct transfer *t, int code, const char *text);

/* DATA goes to the client as it comes; the answer must have been started. */
void transfer_hand_down(struct transfer *t, const char *data, size_t size);

#endif
