/* A box's network has only `lo`. To give its programs connections, every outside address is made local to the box, and
 * every TCP connection is redirected to one listener:
 *
 *   1. an address of its own on lo, beside loopback: programs check for one before they look up any name
 *   2. table 100: all addresses are local, with that address as the source
 *   3. rules: TCP, UDP, and packets with our mark, use that table; all else is prohibited (EACCES at once)
 *   4. nftables, before routing: packets that are not TCP or stay in the box pass; the first packet of a connection is
 *      logged to egress and dropped (EGRESS_HOLD); the others go to the listener by TPROXY; the rest is reset.
 *      At output: UDP that leaves the box is logged to egress and dropped (EPERM at once)
 *   5. sockets: DNS at 127.0.0.53, listeners for TCP, the first packets, and raw ones to send packets again
 *
 * No interface, bridge or firewall of the host is touched, and it works without root. Our ports are below 1024, where
 * the box's users cannot bind, so no process of the box can take them first.
 *
 * A box's process has no capability over this network, so it cannot change any of it. Even if it could, it would only
 * harm itself: egress decides which destinations are allowed.
 *
 * Init prepares the network before it drops its rights; for a running box egress_job.c does. */
#define _GNU_SOURCE
#include "box/egress.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/in6.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/nlmsg.h"

enum { LOOPBACK_INDEX = 1, TABLE = 100, PRIORITY = 100, MARK = 1, LOG_GROUP = 1, PORT = 808, BACKLOG = 1024 };

/* RFC 7600's dummy address, and a private one: no network uses them, so they hide nothing. */
static const uint8_t own4[4] = { 192, 0, 0, 8 };
static const uint8_t own6[16] = { 0xfd, 'c', 'a', 'r', 'r', 'e', 'l', 0, [15] = 1 };

#define TABLE_NAME "carrel"
#define CONNECTIONS "connections"
#define DATAGRAMS "datagrams"

/* --- addresses and routes --- */

static void add_address(struct nlmsg *m, uint8_t family, const void *address, size_t size)
{
    struct ifaddrmsg body = { .ifa_family = family, .ifa_prefixlen = (uint8_t)(size * 8), .ifa_index = LOOPBACK_INDEX,
                              .ifa_flags = IFA_F_NODAD };

    nlmsg_begin(m, RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, &body, sizeof body);
    nlmsg_put(m, IFA_LOCAL, address, size);
    nlmsg_put(m, IFA_ADDRESS, address, size);
    nlmsg_end(m);
}

static void add_route(struct nlmsg *m, uint8_t family, uint8_t table, uint8_t type, const void *source, size_t size)
{
    struct rtmsg body = { .rtm_family = family, .rtm_table = table, .rtm_protocol = RTPROT_STATIC, .rtm_type = type,
                          .rtm_scope = type == RTN_LOCAL && family == AF_INET ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE };

    nlmsg_begin(m, RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, &body, sizeof body);
    if (type == RTN_LOCAL)
        nlmsg_put_u32(m, RTA_OIF, LOOPBACK_INDEX);
    if (source)
        nlmsg_put(m, RTA_PREFSRC, source, size);
    nlmsg_end(m);
}

/* For one protocol, or for packets with our mark. */
static void add_rule(struct nlmsg *m, uint8_t family, uint8_t protocol)
{
    struct fib_rule_hdr body = { .family = family, .table = TABLE, .action = FR_ACT_TO_TBL };

    nlmsg_begin(m, RTM_NEWRULE, NLM_F_ACK | NLM_F_CREATE, &body, sizeof body);
    nlmsg_put_u32(m, FRA_PRIORITY, protocol ? PRIORITY : PRIORITY + 1);
    if (protocol)
        nlmsg_put(m, FRA_IP_PROTO, &protocol, sizeof protocol);
    else
        nlmsg_put_u32(m, FRA_FWMARK, MARK);
    nlmsg_end(m);
}

static int make_routes(uint8_t family, const void *own, size_t size, struct err *e)
{
    struct nlmsg m;
    FD fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

    if (fd < 0)
        return err_at(e, errno, STEP_NETWORK, 0, "netlink");
    nlmsg_init(&m);
    add_address(&m, family, own, size);
    add_route(&m, family, TABLE, RTN_LOCAL, own, size);
    add_route(&m, family, RT_TABLE_MAIN, RTN_PROHIBIT, NULL, 0);
    add_rule(&m, family, IPPROTO_TCP);
    add_rule(&m, family, 0);
    add_rule(&m, family, IPPROTO_UDP);
    int r = nlmsg_send(fd, &m);
    /* The rules exist from an earlier time. */
    return r < 0 && r != -EEXIST ? err_at(e, -r, STEP_NETWORK, 0, "routes of the box") : 0;
}

/* --- nftables: one rule is a list of expressions over registers --- */

struct nft_rule {
    struct nlmsg *m;
    size_t        list;
};

static struct nft_rule nft_rule_begin(struct nlmsg *m, const char *chain)
{
    struct nfgenmsg body = { .nfgen_family = NFPROTO_INET };
    struct nft_rule rule = { .m = m };

    nlmsg_begin(m, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWRULE, NLM_F_ACK | NLM_F_CREATE | NLM_F_APPEND, &body,
                sizeof body);
    nlmsg_put_text(m, NFTA_RULE_TABLE, TABLE_NAME);
    nlmsg_put_text(m, NFTA_RULE_CHAIN, chain);
    rule.list = nlmsg_nest(m, NFTA_RULE_EXPRESSIONS);
    return rule;
}

static void nft_rule_end(struct nft_rule *rule)
{
    nlmsg_unnest(rule->m, rule->list);
    nlmsg_end(rule->m);
}

struct expression {
    struct nlmsg *m;
    size_t        element, data;
};

static struct expression expression_begin(const struct nft_rule *rule, const char *name)
{
    struct expression x = { .m = rule->m, .element = nlmsg_nest(rule->m, NFTA_LIST_ELEM) };

    nlmsg_put_text(x.m, NFTA_EXPR_NAME, name);
    x.data = nlmsg_nest(x.m, NFTA_EXPR_DATA);
    return x;
}

static void expression_end(const struct expression *x)
{
    nlmsg_unnest(x->m, x->data);
    nlmsg_unnest(x->m, x->element);
}

static void put_value(struct nlmsg *m, uint16_t type, const void *value, size_t size)
{
    size_t nest = nlmsg_nest(m, type);

    nlmsg_put(m, NFTA_DATA_VALUE, value, size);
    nlmsg_unnest(m, nest);
}

static void load_meta(const struct nft_rule *rule, uint32_t key)
{
    struct expression x = expression_begin(rule, "meta");

    nlmsg_put_be32(x.m, NFTA_META_KEY, key);
    nlmsg_put_be32(x.m, NFTA_META_DREG, NFT_REG_1);
    expression_end(&x);
}

static void load_packet(const struct nft_rule *rule, uint32_t base, uint32_t offset, uint32_t size)
{
    struct expression x = expression_begin(rule, "payload");

    nlmsg_put_be32(x.m, NFTA_PAYLOAD_DREG, NFT_REG_1);
    nlmsg_put_be32(x.m, NFTA_PAYLOAD_BASE, base);
    nlmsg_put_be32(x.m, NFTA_PAYLOAD_OFFSET, offset);
    nlmsg_put_be32(x.m, NFTA_PAYLOAD_LEN, size);
    expression_end(&x);
}

static void compare(const struct nft_rule *rule, uint32_t how, const void *value, size_t size)
{
    struct expression x = expression_begin(rule, "cmp");

    nlmsg_put_be32(x.m, NFTA_CMP_SREG, NFT_REG_1);
    nlmsg_put_be32(x.m, NFTA_CMP_OP, how);
    put_value(x.m, NFTA_CMP_DATA, value, size);
    expression_end(&x);
}

static void compare_byte(const struct nft_rule *rule, uint32_t how, uint8_t value)
{
    compare(rule, how, &value, sizeof value);
}

static void mask_byte(const struct nft_rule *rule, uint8_t mask)
{
    const uint8_t none = 0;
    struct expression x = expression_begin(rule, "bitwise");

    nlmsg_put_be32(x.m, NFTA_BITWISE_SREG, NFT_REG_1);
    nlmsg_put_be32(x.m, NFTA_BITWISE_DREG, NFT_REG_1);
    nlmsg_put_be32(x.m, NFTA_BITWISE_LEN, 1);
    put_value(x.m, NFTA_BITWISE_MASK, &mask, 1);
    put_value(x.m, NFTA_BITWISE_XOR, &none, 1);
    expression_end(&x);
}

static void give_verdict(const struct nft_rule *rule, uint32_t verdict)
{
    struct expression x = expression_begin(rule, "immediate");

    nlmsg_put_be32(x.m, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
    size_t data = nlmsg_nest(x.m, NFTA_IMMEDIATE_DATA), inner = nlmsg_nest(x.m, NFTA_DATA_VERDICT);
    nlmsg_put_be32(x.m, NFTA_VERDICT_CODE, verdict);
    nlmsg_unnest(x.m, inner);
    nlmsg_unnest(x.m, data);
    expression_end(&x);
}

static void set_register(const struct nft_rule *rule, uint32_t number, const void *value, size_t size)
{
    struct expression x = expression_begin(rule, "immediate");

    nlmsg_put_be32(x.m, NFTA_IMMEDIATE_DREG, number);
    put_value(x.m, NFTA_IMMEDIATE_DATA, value, size);
    expression_end(&x);
}

static struct nft_rule begin_for(struct nlmsg *m, const char *chain, uint8_t protocol)
{
    struct nft_rule rule = nft_rule_begin(m, chain);

    load_meta(&rule, NFT_META_NFPROTO);
    compare_byte(&rule, NFT_CMP_EQ, protocol);
    return rule;
}

/* Lets packets pass that stay in the box: all other protocols, and this one to its loopback and its address. */
static void add_own(struct nlmsg *m, const char *chain, uint8_t which)
{
    static const uint8_t loopback6[16] = { [15] = 1 };
    struct {
        uint8_t     protocol;
        uint32_t    offset, size;
        const void *value;
    } const own[] = {
        { NFPROTO_IPV4, 16, 1, (const uint8_t[]){ 127 } },
        { NFPROTO_IPV4, 16, 4, own4 },
        { NFPROTO_IPV6, 24, 16, loopback6 },
        { NFPROTO_IPV6, 24, 16, own6 },
    };
    struct nft_rule rule = nft_rule_begin(m, chain);

    load_meta(&rule, NFT_META_L4PROTO);
    compare_byte(&rule, NFT_CMP_NEQ, which);
    give_verdict(&rule, NF_ACCEPT);
    nft_rule_end(&rule);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        rule = begin_for(m, chain, own[i].protocol);
        load_packet(&rule, NFT_PAYLOAD_NETWORK_HEADER, own[i].offset, own[i].size);
        compare(&rule, NFT_CMP_EQ, own[i].value, own[i].size);
        give_verdict(&rule, NF_ACCEPT);
        nft_rule_end(&rule);
    }
}

/* To the listener of this family. Without one, while there is no egress, the rule ends here and the next is tried. */
static void add_redirect(const struct nft_rule *rule, uint8_t protocol)
{
    static const uint8_t loopback4[4] = { 127, 0, 0, 1 }, loopback6[16] = { [15] = 1 };
    const uint16_t port = htons(PORT);
    bool is_v4 = protocol == NFPROTO_IPV4;

    set_register(rule, NFT_REG_1, is_v4 ? loopback4 : loopback6, is_v4 ? sizeof loopback4 : sizeof loopback6);
    set_register(rule, NFT_REG_2, &port, sizeof port);
    struct expression x = expression_begin(rule, "tproxy");
    nlmsg_put_be32(x.m, NFTA_TPROXY_FAMILY, protocol);
    nlmsg_put_be32(x.m, NFTA_TPROXY_REG_ADDR, NFT_REG_1);
    nlmsg_put_be32(x.m, NFTA_TPROXY_REG_PORT, NFT_REG_2);
    expression_end(&x);
}

static void log_packet(const struct nft_rule *rule)
{
    struct expression x = expression_begin(rule, "log");

    nlmsg_put_be16(x.m, NFTA_LOG_GROUP, LOG_GROUP);
    nlmsg_put_be16(x.m, NFTA_LOG_QTHRESHOLD, 1);
    expression_end(&x);
}

/* The first packet of a connection, unless egress sends it again, is logged to egress and dropped. The redirection only
 * checks that there is a listener. */
static void add_hold(struct nlmsg *m, uint8_t protocol)
{
    enum { FLAGS_OFFSET = 13, SYN = 0x02, SYN_ACK_RST_FIN = 0x17 };
    const uint32_t mark = MARK;
    struct nft_rule rule = begin_for(m, CONNECTIONS, protocol);

    load_packet(&rule, NFT_PAYLOAD_TRANSPORT_HEADER, FLAGS_OFFSET, 1);
    mask_byte(&rule, SYN_ACK_RST_FIN);
    compare_byte(&rule, NFT_CMP_EQ, SYN);
    load_meta(&rule, NFT_META_MARK);
    compare(&rule, NFT_CMP_NEQ, &mark, sizeof mark);
    add_redirect(&rule, protocol);
    log_packet(&rule);
    give_verdict(&rule, NF_DROP);
    nft_rule_end(&rule);
}

static void add_datagrams(struct nlmsg *m, enum egress_way way)
{
    add_own(m, DATAGRAMS, IPPROTO_UDP);
    struct nft_rule rule = nft_rule_begin(m, DATAGRAMS);
    if (way == EGRESS_HOLD)
        log_packet(&rule);
    give_verdict(&rule, NF_DROP);
    nft_rule_end(&rule);
}

static void add_tproxy(struct nlmsg *m, uint8_t protocol)
{
    struct nft_rule rule = begin_for(m, CONNECTIONS, protocol);

    add_redirect(&rule, protocol);
    give_verdict(&rule, NF_ACCEPT);
    nft_rule_end(&rule);
}

/* Without a listener a connection must not hang: only transparent sockets could answer it. */
static void add_reset(struct nlmsg *m)
{
    struct nft_rule rule = nft_rule_begin(m, CONNECTIONS);
    struct expression x = expression_begin(&rule, "reject");

    nlmsg_put_be32(m, NFTA_REJECT_TYPE, NFT_REJECT_TCP_RST);
    expression_end(&x);
    nft_rule_end(&rule);
}

static void batch_edge(struct nlmsg *m, uint16_t type)
{
    struct nfgenmsg body = { .nfgen_family = AF_UNSPEC, .res_id = htons(NFNL_SUBSYS_NFTABLES) };

    nlmsg_begin(m, type, 0, &body, sizeof body);
    nlmsg_end(m);
}

static void add_chain(struct nlmsg *m, const char *name, uint32_t hook_number)
{
    const struct nfgenmsg body = { .nfgen_family = NFPROTO_INET };

    nlmsg_begin(m, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWCHAIN, NLM_F_ACK | NLM_F_CREATE, &body, sizeof body);
    nlmsg_put_text(m, NFTA_CHAIN_TABLE, TABLE_NAME);
    nlmsg_put_text(m, NFTA_CHAIN_NAME, name);
    size_t hook = nlmsg_nest(m, NFTA_CHAIN_HOOK);
    nlmsg_put_be32(m, NFTA_HOOK_HOOKNUM, hook_number);
    nlmsg_put_be32(m, NFTA_HOOK_PRIORITY, (uint32_t)-150);
    nlmsg_unnest(m, hook);
    nlmsg_put_text(m, NFTA_CHAIN_TYPE, "filter");
    nlmsg_end(m);
}

/* replaces: deletes an existing table with its rules and adds the new one in one step. */
static void add_table(struct nlmsg *m, bool replaces)
{
    struct nfgenmsg body = { .nfgen_family = NFPROTO_INET };

    if (replaces) {
        nlmsg_begin(m, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_DELTABLE, NLM_F_ACK, &body, sizeof body);
        nlmsg_put_text(m, NFTA_TABLE_NAME, TABLE_NAME);
        nlmsg_end(m);
    }
    nlmsg_begin(m, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWTABLE, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &body,
                sizeof body);
    nlmsg_put_text(m, NFTA_TABLE_NAME, TABLE_NAME);
    nlmsg_end(m);
    add_chain(m, CONNECTIONS, NF_INET_PRE_ROUTING);
    add_chain(m, DATAGRAMS, NF_INET_LOCAL_OUT);
}

static int send_filter(enum egress_way way, bool has_v6, bool replaces)
{
    static const uint8_t protocols[] = { NFPROTO_IPV4, NFPROTO_IPV6 };
    static struct nlmsg m;
    FD fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);

    if (fd < 0)
        return -errno;
    nlmsg_init(&m);
    batch_edge(&m, NFNL_MSG_BATCH_BEGIN);
    add_table(&m, replaces);
    add_datagrams(&m, way);
    add_own(&m, CONNECTIONS, IPPROTO_TCP);
    for (size_t i = 0; i < (has_v6 ? 2u : 1u); i++) {
        if (way == EGRESS_HOLD)
            add_hold(&m, protocols[i]);
        add_tproxy(&m, protocols[i]);
    }
    add_reset(&m);
    batch_edge(&m, NFNL_MSG_BATCH_END);
    return nlmsg_send(fd, &m);
}

/* A deletion makes the kernel wait for all processors (RCU) when the socket is closed, for some milliseconds; so a
 * table is replaced only if there is one. */
static int make_filter(enum egress_way way, bool has_v6)
{
    int r = send_filter(way, has_v6, false);

    return r == -EEXIST ? send_filter(way, has_v6, true) : r;
}

/* --- sockets --- */

static void keep(struct egress_sockets *s, enum egress_socket which, int fd)
{
    s->has |= which;
    s->fd[s->n++] = fd;
}

static int open_bound(int family, int type, const void *address, uint16_t port)
{
    const int on = 1;
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(port) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    FD fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0)
        return -errno;
    /* Accepted connections answer from the address that the program connected to. */
    if (port == PORT && setsockopt(fd, family == AF_INET ? SOL_IP : SOL_IPV6,
                                   family == AF_INET ? IP_TRANSPARENT : IPV6_TRANSPARENT, &on, sizeof on) < 0)
        return -errno;
    memcpy(family == AF_INET ? (void *)&v4.sin_addr : (void *)&v6.sin6_addr, address, family == AF_INET ? 4 : 16);
    if (bind(fd, family == AF_INET ? (void *)&v4 : (void *)&v6, family == AF_INET ? sizeof v4 : sizeof v6) < 0 ||
        (type == SOCK_STREAM && listen(fd, BACKLOG) < 0))
        return -errno;
    return TAKE_FD(fd);
}

/* Receives packets of LOG_GROUP, one message each, at once. Binding needs a capability; reading does not. */
static int open_log(void)
{
    const struct nfgenmsg body = { .nfgen_family = AF_UNSPEC, .res_id = htons(LOG_GROUP) };
    const struct nfulnl_msg_config_cmd bind_group = { .command = NFULNL_CFG_CMD_BIND };
    const struct nfulnl_msg_config_mode mode = { .copy_range = htonl(256), .copy_mode = NFULNL_COPY_PACKET };
    struct nlmsg m;
    FD fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_NETFILTER);

    if (fd < 0)
        return -errno;
    nlmsg_init(&m);
    nlmsg_begin(&m, NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG, 0, &body, sizeof body);
    nlmsg_put(&m, NFULA_CFG_CMD, &bind_group, sizeof bind_group);
    nlmsg_put(&m, NFULA_CFG_MODE, &mode, sizeof mode);
    nlmsg_put_be32(&m, NFULA_CFG_QTHRESH, 1);
    nlmsg_end(&m);
    int r = nlmsg_send(fd, &m);
    /* The kernel answers only if it refuses. */
    char answer[512];
    ssize_t n = r < 0 ? 0 : recv(fd, answer, sizeof answer, 0);
    int error = 0;
    if (n >= (ssize_t)NLMSG_LENGTH(sizeof error))
        memcpy(&error, NLMSG_DATA(answer), sizeof error);
    return r < 0 ? r : error < 0 ? error : TAKE_FD(fd);
}

static int open_raw(int family)
{
    const int on = 1, mark = MARK;
    FD fd = socket(family, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_RAW);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof mark) < 0 ||
        (family == AF_INET6 && setsockopt(fd, SOL_IPV6, IPV6_HDRINCL, &on, sizeof on) < 0))
        return -errno;
    return TAKE_FD(fd);
}

static int open_sockets(bool has_v6, struct egress_sockets *s, struct err *e)
{
    static const uint8_t resolver[4] = { 127, 0, 0, 53 }, loopback4[4] = { 127, 0, 0, 1 }, loopback6[16] = { [15] = 1 };
    const struct {
        enum egress_socket which;
        int                family, type;
        const uint8_t     *address;
        uint16_t           port;
        bool               wanted;
        const char        *name;
    } list[] = {
        { EGRESS_DNS_UDP, AF_INET, SOCK_DGRAM, resolver, 53, true, "127.0.0.53:53 of the box" },
        { EGRESS_DNS_TCP, AF_INET, SOCK_STREAM, resolver, 53, true, "127.0.0.53:53 of the box" },
        { EGRESS_TCP4, AF_INET, SOCK_STREAM, loopback4, PORT, true, "the listener for connections" },
        { EGRESS_TCP6, AF_INET6, SOCK_STREAM, loopback6, PORT, has_v6, "the listener for connections" },
        { EGRESS_SYN, 0, 0, NULL, 0, s->way == EGRESS_HOLD, "the log of connections" },
        { EGRESS_RAW4, AF_INET, SOCK_RAW, NULL, 0, s->way == EGRESS_HOLD, "raw socket" },
        { EGRESS_RAW6, AF_INET6, SOCK_RAW, NULL, 0, s->way == EGRESS_HOLD && has_v6, "raw socket" },
    };

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (!list[i].wanted)
            continue;
        int fd = list[i].address          ? open_bound(list[i].family, list[i].type, list[i].address, list[i].port)
               : list[i].type == SOCK_RAW ? open_raw(list[i].family)
                                          : open_log();
        if (fd < 0)
            return err_at(e, -fd, STEP_NETWORK, i, list[i].name);
        keep(s, list[i].which, fd);
    }
    return 0;
}

int egress_prepare(struct egress_sockets *ret, struct err *e)
{
    struct egress_sockets *s = ret;

    s->n = 0;
    s->has = 0;
    FD probe = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool has_v6 = probe >= 0, has_filter = false;
    int r = make_routes(AF_INET, own4, sizeof own4, e);
    if (r < 0)
        return r;
    /* IPv6 is switched off for all interfaces (disable_ipv6): the box then has IPv4 only, like the host. */
    if (has_v6 && (r = make_routes(AF_INET6, own6, sizeof own6, e)) < 0) {
        if (r != -EACCES && r != -EAFNOSUPPORT && r != -EOPNOTSUPP)
            return r;
        has_v6 = false;
        *e = (struct err){ 0 };
    }
    for (s->way = EGRESS_HOLD; s->way <= EGRESS_TPROXY; s->way++) {
        if ((r = make_filter((enum egress_way)s->way, has_v6)) < 0)
            continue;
        has_filter = true;
        *e = (struct err){ 0 };
        if ((r = open_sockets(has_v6, s, e)) == 0)
            return 0;
        egress_sockets_close(s);
        s->has = 0;
    }
    if (has_filter)
        return r;       /* *e names the socket that could not be opened */
    return err_set(e, -r, STEP_NETWORK,
                   "this kernel cannot direct a box's connections: it needs nf_tables with nft_tproxy and "
                   "nft_reject_inet; load these modules, or run the box without network");
}

void egress_sockets_close(struct egress_sockets *sockets)
{
    for (size_t i = 0; i < sockets->n; i++)
        sockets->fd[i] = fd_close(sockets->fd[i]);
    sockets->n = 0;
}
