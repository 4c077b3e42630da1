/* A query has a header, exactly one question and perhaps an OPT record (EDNS). Its names are not compressed: there is
 * nothing before the question to point at. The rest of a message is not parsed, so it cannot mislead. */
#include "proto/dns.h"

#include <string.h>

enum {
    IS_RESPONSE = 0x8000,
    OPCODE = 0x7800,
    IS_CUT = 0x0200,
    RECURSION_DESIRED = 0x0100,
    RECURSION_AVAILABLE = 0x0080,
    CHECKING_DISABLED = 0x0010,
    CLASS_IN = 1,
    TYPE_OPT = 41,
    OPTION_ERROR = 15,          /* RFC 8914 */
    ERROR_BLOCKED = 15,
    UDP_SIZE = 1232,
    EXTRA_RECORDS = 16,         /* records searched for OPT */
};

static uint16_t get16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static size_t put16(uint8_t *at, unsigned value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
    return 2;
}

/* Skips a name in a record after the question. 0: it does not end within the message. */
static size_t skip_name(const uint8_t *message, size_t size, size_t at)
{
    while (at < size) {
        uint8_t length = message[at];
        if (length == 0)
            return at + 1;
        if ((length & 0xc0) == 0xc0)
            return at + 2 <= size ? at + 2 : 0;
        if (length > 63)
            return 0;
        at += 1u + length;
    }
    return 0;
}

/* Whether there is an OPT record among the additional ones. Queries have it last, usually alone. */
static bool has_opt(const uint8_t *message, size_t size, size_t at)
{
    unsigned before = get16(message + 6) + get16(message + 8), n = before + get16(message + 10);

    if (n > EXTRA_RECORDS)
        return false;
    for (unsigned i = 0; i < n; i++) {
        at = skip_name(message, size, at);
        if (at == 0 || at + 10 > size)
            return false;
        if (i >= before && get16(message + at) == TYPE_OPT)
            return true;
        at += 10u + get16(message + at + 8);
    }
    return false;
}

/* Reads the name as text; returns the number of bytes on the wire, 0 if it is invalid. */
static size_t read_name(const uint8_t *message, size_t size, size_t start, char ret[NET_NAME_SIZE])
{
    char text[256];
    size_t at = start, length = 0;

    for (;;) {
        if (at >= size || message[at] > 63 || at + 1 + message[at] > size)
            return 0;
        uint8_t label = message[at++];
        if (label == 0)
            break;
        if (at - start + label > 254)
            return 0;
        /* A dot inside a label would make it look like two labels in a text. */
        if (memchr(message + at, '.', label))
            return 0;
        memcpy(text + length, message + at, label);
        length += label;
        text[length++] = '.';
        at += label;
    }
    return net_name_clean(text, length, ret) ? at - start : 0;
}

enum dns_reading dns_read(const uint8_t *message, size_t size, struct dns_query *ret, enum dns_code *ret_code)
{
    if (size < DNS_HEADER || get16(message + 2) & IS_RESPONSE)
        return DNS_IS_NOTHING;
    *ret = (struct dns_query){ .id = get16(message), .flags = get16(message + 2) };
    *ret_code = ret->flags & OPCODE ? DNS_NOTIMP : DNS_FORMERR;
    if (ret->flags & (OPCODE | IS_CUT) || get16(message + 4) != 1 || size > DNS_QUERY)
        return DNS_IS_WRONG;
    size_t name = read_name(message, size, DNS_HEADER, ret->name), end = DNS_HEADER + name + 4;
    if (name == 0 || end > size)
        return DNS_IS_WRONG;
    ret->type = get16(message + end - 4);
    ret->class = get16(message + end - 2);
    ret->question_size = (uint16_t)(name + 4);
    memcpy(ret->question, message + DNS_HEADER, ret->question_size);
    ret->has_edns = has_opt(message, size, end);
    *ret_code = DNS_REFUSED;
    return ret->class == CLASS_IN ? DNS_IS_QUERY : DNS_IS_WRONG;
}

static size_t put_address(uint8_t *at, const uint8_t *address, uint32_t ttl)
{
    size_t n = put16(at, 0xc000 | DNS_HEADER);

    n += put16(at + n, DNS_A);
    n += put16(at + n, CLASS_IN);
    n += put16(at + n, ttl >> 16);
    n += put16(at + n, ttl & 0xffff);
    n += put16(at + n, 4);
    memcpy(at + n, address, 4);
    return n + 4;
}

static size_t put_opt(uint8_t *at, enum dns_code code)
{
    static const char text[] = "not allowed by the network policy of this box";
    size_t n = 0, length = sizeof text - 1;

    at[n++] = 0;
    n += put16(at + n, TYPE_OPT);
    n += put16(at + n, UDP_SIZE);
    n += put16(at + n, 0);
    n += put16(at + n, 0);
    if (code != DNS_BLOCKED)
        return n + put16(at + n, 0);
    n += put16(at + n, (unsigned)(6 + length));
    n += put16(at + n, OPTION_ERROR);
    n += put16(at + n, (unsigned)(2 + length));
    n += put16(at + n, ERROR_BLOCKED);
    memcpy(at + n, text, length);
    return n + length;
}

size_t dns_write(const struct dns_query *query, enum dns_code code, const uint8_t *address, uint32_t ttl,
                 uint8_t ret[DNS_REPLY])
{
    unsigned kept = query->flags & (OPCODE | RECURSION_DESIRED | CHECKING_DISABLED);
    unsigned rcode = code == DNS_BLOCKED ? DNS_NXDOMAIN : (unsigned)code;
    bool has_address = code == DNS_OK && address;
    size_t n = put16(ret, query->id);

    n += put16(ret + n, IS_RESPONSE | RECURSION_AVAILABLE | kept | rcode);
    n += put16(ret + n, query->question_size > 0);
    n += put16(ret + n, has_address);
    n += put16(ret + n, 0);
    n += put16(ret + n, query->has_edns);
    memcpy(ret + n, query->question, query->question_size);
    n += query->question_size;
    if (has_address)
        n += put_address(ret + n, address, ttl);
    if (query->has_edns)
        n += put_opt(ret + n, code);
    return n;
}
