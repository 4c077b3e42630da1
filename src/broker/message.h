/* Heads of requests and answers as the broker passes them on: judged, and written by the broker itself, so that both
 * ends see the same message. Pure; fuzzed. */
#ifndef CARREL_BROKER_MESSAGE_H
#define CARREL_BROKER_MESSAGE_H

#include "broker/mask.h"
#include "http/parse.h"
#include "proto/broker.h"

_Static_assert((int)BROKER_VALUE_MOST <= (int)MASK_VALUE_MOST && (int)BROKER_KEYS <= (int)MASK_VALUES,
               "every value of a host is masked");

/* A key of one host. */
struct message_key {
    char              header[BROKER_HEADER_SIZE], before[BROKER_AFFIX_SIZE], after[BROKER_AFFIX_SIZE];
    char              placeholder[BROKER_PLACEHOLDER_SIZE];
    struct mask_value value;
};

struct message_host {
    char               name[NET_NAME_SIZE];
    size_t             n_keys;
    struct message_key key[BROKER_KEYS];
};

/* Why the broker answers itself. */
struct message_refusal {
    int  status;
    char why[400];
};

/* Appends the head that goes to the upstream, with the keys in their fields. False: it is refused, and out is unchanged
 * or to be thrown away. close: the connection ends after this exchange. */
MUST_CHECK bool message_request(const struct http_head *h, const struct message_host *host, struct buf *out,
                                struct message_refusal *ret);
/* Compressed, or in another Content-Encoding. */
bool            message_is_encoded(const struct http_head *h);
/* Appends the head that goes to the box; its values are masked. A body that ends with the connection is sent in chunks.
 * False: memory is short, or out is full. */
MUST_CHECK bool message_answer(const struct http_head *h, enum http_body body, bool close, struct mask *mask,
                               struct buf *out);
/* An answer of the broker's own, after which the connection ends. */
void            message_own(const struct message_refusal *why, bool with_body, struct buf *out);

#endif
