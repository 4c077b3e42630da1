/* Any bytes as a DNS message of a box: what is answered fits, repeats the question and parses as an answer. */
#include "fuzz.h"

#include "proto/dns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = (uint8_t *)fuzz_string(data, size), reply[DNS_REPLY], address[4] = { 198, 18, 1, 2 };
    char clean[NET_NAME_SIZE];
    struct dns_query q, again;
    enum dns_code code = 0;

    enum dns_reading reading = dns_read(copy, size, &q, &code);
    if (reading != DNS_IS_NOTHING) {
        const enum dns_code codes[] = { DNS_OK, DNS_BLOCKED, DNS_SERVFAIL, code };
        for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
            size_t n = dns_write(&q, codes[i], i == 0 ? address : NULL, 60, reply);
            HOLDS(n >= DNS_HEADER && n <= DNS_REPLY && reply[0] == data[0] && reply[1] == data[1] && reply[2] & 0x80);
            HOLDS(dns_read(reply, n, &again, &code) == DNS_IS_NOTHING);
        }
    }
    if (reading == DNS_IS_QUERY) {
        HOLDS(net_name_clean(q.name, strlen(q.name), clean) && strcmp(clean, q.name) == 0);
        HOLDS(q.question_size > 5 && size >= DNS_HEADER + q.question_size);
    }
    free(copy);
    return 0;
}
