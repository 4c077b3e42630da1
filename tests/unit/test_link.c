/* The engine's links, with a kernel that tells the end before the last message. It really does, about once in 300,000
 * times: a recvmsg that found nothing looks for the end afterwards, and both may have come in between. */
#define _GNU_SOURCE
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

static int early_ends;      /* how often the end is reported although there is a message */

static ssize_t hasty_recvmsg(int fd, struct msghdr *message, int flags)
{
    if (early_ends > 0) {
        early_ends--;
        message->msg_controllen = 0;
        message->msg_flags = 0;
        return 0;
    }
    return recvmsg(fd, message, flags);
}

#define recvmsg hasty_recvmsg
#include "../../src/base/fdpass.c"
#include "../../src/box/link.c"
#undef recvmsg

static void open_link(int pair[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    early_ends = 0;
}

static void the_last_word_of_a_peer_that_ended_is_heard(void **state)
{
    int pair[2], word = 7, heard = 0, null = open("/dev/null", O_RDONLY | O_CLOEXEC), fd;

    (void)state;
    open_link(pair);
    assert_int_equal(link_send(pair[1], &word, sizeof word, &null, 1), 0);
    close(pair[1]);
    early_ends = 1;
    assert_int_equal(link_receive(pair[0], &heard, sizeof heard, &fd, 1, false), 1);
    assert_int_equal(heard, 7);
    assert_true(fd >= 0);       /* the descriptor too */
    close(fd);
    close(null);
    assert_int_equal(link_receive(pair[0], &heard, sizeof heard, NULL, 0, false), -EPIPE);
    close(pair[0]);
}

static void the_end_is_the_end(void **state)
{
    int pair[2], heard;

    (void)state;
    open_link(pair);
    assert_int_equal(link_receive(pair[0], &heard, sizeof heard, NULL, 0, false), 0);
    close(pair[1]);
    assert_int_equal(link_receive(pair[0], &heard, sizeof heard, NULL, 0, false), -EPIPE);
    assert_int_equal(link_receive(pair[0], &heard, sizeof heard, NULL, 0, true), -EPIPE);
    close(pair[0]);
}

static void an_empty_message_is_told(void **state)
{
    int pair[2], null = open("/dev/null", O_RDONLY | O_CLOEXEC), fd;
    char heard;
    size_t n;

    (void)state;
    open_link(pair);
    assert_int_equal(link_send(pair[1], "", 0, NULL, 0), 0);
    assert_int_equal(link_receive_any(pair[0], &heard, 1, &fd, 1, &n), 0);
    assert_int_equal(link_send(pair[1], "", 0, &null, 1), 0);
    assert_int_equal(link_receive_any(pair[0], &heard, 1, &fd, 1, &n), 0);
    assert_int_equal(n, 1);     /* or it would stay open */
    close(fd);
    close(null);
    close(pair[0]);
    close(pair[1]);
}

static void what_a_peer_said_before_a_reset_is_heard(void **state)
{
    int pair[2], word = 7, heard = 0;

    (void)state;
    open_link(pair);
    assert_int_equal(link_send(pair[0], &word, sizeof word, NULL, 0), 0);   /* it does not read this */
    assert_int_equal(link_send(pair[1], &word, sizeof word, NULL, 0), 0);
    close(pair[1]);
    assert_int_equal(link_receive(pair[0], &heard, sizeof heard, NULL, 0, false), 1);
    assert_int_equal(link_receive(pair[0], &heard, sizeof heard, NULL, 0, false), -EPIPE);
    close(pair[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_word_of_a_peer_that_ended_is_heard),
        cmocka_unit_test(the_end_is_the_end),
        cmocka_unit_test(an_empty_message_is_told),
        cmocka_unit_test(what_a_peer_said_before_a_reset_is_heard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
