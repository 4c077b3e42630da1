/* Shared by the decoders of the kinds; the rest of the program uses object_decode(). */
#ifndef CARREL_CLUSTER_DECODE_H
#define CARREL_CLUSTER_DECODE_H

#include "base/buf.h"
#include "cluster/extension.h"

union draft {
    struct object    o;
    struct sandbox   sandbox;
    struct kernel    kernel;
    struct pod       pod;
    struct service   service;
    struct claim     claim;
    struct template  template;
    struct pool      pool;
    struct boxclaim  boxclaim;
    struct netpolicy netpolicy;
};

struct decoder {
    union draft d;
    struct buf  scratch;        /* strings; the draft's pointers are offsets + 1 until all is packed */
    struct { const char *name; bool is_template; } claims[CLAIMS_MAX];
    size_t      n_claims;
    struct err *e;
};

/* A copy of bytes; NULL stays NULL. */
const char *decode_keep(struct decoder *d, const char *data, size_t size);
const char *decode_raw(struct decoder *d, struct jsonslice value);
/* A string's text; NULL if the value is no string or empty. */
const char *decode_text(struct decoder *d, struct jsonslice value);
/* A kept text, valid until the next addition; "" for NULL. */
const char *decode_kept(const struct decoder *d, const char *kept);
char       *decode_copy(struct jsonslice v);        /* on the heap */
const char *decode_conditions(struct decoder *d, struct jsonslice conditions);
/* "10.0.0.1,fd00::1"; NULL: none. member: of each element, NULL if the elements are the addresses. */
const char *decode_ips(struct decoder *d, struct jsonslice list, const char *member);

bool    decode_is_object(struct jsonslice v);
bool    decode_is_true(struct jsonslice v);
uint8_t decode_truth(struct jsonslice v);           /* of "true" and "false", with quotes: enum truth */
int64_t decode_time(struct jsonslice v);            /* seconds; 0: none */
uint8_t decode_status(struct jsonslice v);          /* enum condition_status */
/* Reads a condition of this type into *to; false if it has another type. */
bool    decode_condition(struct decoder *d, struct jsonslice c, const char *type, struct condition *to);

/* Keeps a foreign condition, separated by commas. */
void    decode_foreign(struct buf *foreign, struct jsonslice c);

/* The API server accepts at most 3 MiB in one request, so this never cuts anything: the next write of the status would
 * delete the missing part. */
enum { FOREIGN_MAX = 8 << 20 };

struct decoded_meta {
    struct jsonslice labels, notes;
    int64_t          generation, created;
};
MUST_CHECK int decode_metadata(struct decoder *d, struct jsonslice whole, struct decoded_meta *ret);

MUST_CHECK int decode_sandbox(struct decoder *d, struct jsonslice whole);
MUST_CHECK int decode_pod(struct decoder *d, struct jsonslice whole);
MUST_CHECK int decode_template(struct decoder *d, struct jsonslice whole);
MUST_CHECK int decode_pool(struct decoder *d, struct jsonslice whole);
MUST_CHECK int decode_boxclaim(struct decoder *d, struct jsonslice whole);
MUST_CHECK int decode_netpolicy(struct decoder *d, struct jsonslice whole);

#endif
