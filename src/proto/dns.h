/* DNS messages: a program's query, and our answer. Pure; fuzzed. */
#ifndef CARREL_PROTO_DNS_H
#define CARREL_PROTO_DNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/net.h"

enum {
    DNS_HEADER = 12,
    DNS_QUESTION = 255 + 4,     /* a name on the wire, type and class */
    DNS_REPLY = 512,            /* holds each of our answers: one question, one address, one OPT record */
    DNS_QUERY = 4096,           /* longer queries are ignored */
};

enum dns_type { DNS_A = 1 };

/* Response codes as on the wire; DNS_BLOCKED is NXDOMAIN with the extended error "Blocked". */
enum dns_code {
    DNS_OK = 0,
    DNS_FORMERR = 1,
    DNS_SERVFAIL = 2,
    DNS_NXDOMAIN = 3,
    DNS_NOTIMP = 4,
    DNS_REFUSED = 5,
    DNS_BLOCKED = 256,
};

/* The part of a question that its answer repeats. */
struct dns_query {
    uint16_t id;
    uint16_t flags;
    uint16_t type, class;
    bool     has_edns;
    uint16_t question_size;             /* 0: unreadable */
    uint8_t  question[DNS_QUESTION];
    char     name[NET_NAME_SIZE];
};

enum dns_reading {
    DNS_IS_QUERY,       /* all of *ret is set */
    DNS_IS_WRONG,       /* answer with *ret_code; the header of *ret is set, and its question if it was readable */
    DNS_IS_NOTHING,     /* too short for an answer, or an answer itself */
};

enum dns_reading dns_read(const uint8_t *message, size_t size, struct dns_query *ret, enum dns_code *ret_code);

/* address: 4 bytes, only with DNS_OK; NULL: the name exists and has no record of this type. Returns the size. */
size_t           dns_write(const struct dns_query *query, enum dns_code code, const uint8_t *address, uint32_t ttl,
                           uint8_t ret[DNS_REPLY]);

#endif
