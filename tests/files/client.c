#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { DEADLINE_S = 60 };      /* a tree 100,000 deep takes seconds of a processor, and there may be little of it */

void client_init(int fd)
{
    struct timeval deadline = { .tv_sec = DEADLINE_S };

    assert_return_code(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline), errno);
    assert_return_code(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &deadline, sizeof deadline), errno);
}

/* In one call as far as the socket takes it: the helper may hang up as soon as it has seen a bad head. */
void client_send(int fd, const struct files_head *head, const void *data, size_t size)
{
    struct iovec  parts[] = { { (void *)head, sizeof *head }, { (void *)data, size } };
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
    size_t        sent = 0, whole = sizeof *head + size;

    while (sent < whole) {
        ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
        assert_return_code(n, errno);
        sent += (size_t)n;
        assert_true(sent >= sizeof *head);
        parts[0].iov_len = 0;
        parts[1] = (struct iovec){ (char *)data + (sent - sizeof *head), whole - sent };
    }
}

void client_frame(int fd, enum files_frame type, const void *data, size_t size)
{
    struct files_head head = { .type = (uint16_t)type, .size = (uint32_t)size };
    client_send(fd, &head, data, size);
}

void client_ask(int fd, struct files_request request, const char *path, const char *other)
{
    char frame[sizeof request + 2 * 70000];
    size_t path_size = strlen(path), other_size = other ? strlen(other) : 0;

    request.path_size = (uint16_t)path_size;
    request.other_size = (uint16_t)other_size;
    memcpy(frame, &request, sizeof request);
    memcpy(frame + sizeof request, path, path_size);
    if (other)
        memcpy(frame + sizeof request + path_size, other, other_size);
    client_frame(fd, FILES_REQUEST, frame, sizeof request + path_size + other_size);
}

static void receive(int fd, void *data, size_t size)
{
    for (char *at = data; size > 0;) {
        ssize_t n = recv(fd, at, size, 0);
        if (n <= 0)
            fail_msg("the helper is gone: %s", n < 0 ? strerror(errno) : "end");
        at += n;
        size -= (size_t)n;
    }
}

struct answer client_answer(int fd, bool discard)
{
    static char trash[FILES_DATA_MAX];
    struct answer answer = { 0 };

    for (;;) {
        struct files_head head;
        receive(fd, &head, sizeof head);
        assert_int_equal(head.reserved, 0);
        if (head.type == FILES_DONE) {
            assert_int_equal(head.size, sizeof answer.done);
            receive(fd, &answer.done, sizeof answer.done);
            assert_non_null(memchr(answer.done.text, 0, sizeof answer.done.text));
            assert_int_equal(answer.done.code != 0, answer.done.text[0] != 0);
            return answer;
        }
        assert_in_range(head.size, 1, head.type == FILES_DATA ? FILES_DATA_MAX : FILES_ENTRIES_MAX);
        if (head.type == FILES_DATA && discard) {
            receive(fd, trash, head.size);
            answer.size += head.size;
        } else if (head.type == FILES_DATA) {
            answer.data = realloc(answer.data, answer.size + head.size);
            receive(fd, answer.data + answer.size, head.size);
            answer.size += head.size;
        } else {
            assert_int_equal(head.type, FILES_ENTRIES);
            answer.entries = realloc(answer.entries, answer.entries_size + head.size);
            receive(fd, answer.entries + answer.entries_size, head.size);
            answer.entries_size += head.size;
        }
        answer.n_frames += head.type == FILES_DATA;
    }
}

void answer_free(struct answer *answer)
{
    free(answer->data);
    free(answer->entries);
    answer->data = answer->entries = NULL;
}

bool answer_next(const struct answer *answer, size_t *at, struct listed *ret)
{
    if (*at == answer->entries_size)
        return false;
    assert_true(*at + sizeof ret->entry <= answer->entries_size);
    memcpy(&ret->entry, answer->entries + *at, sizeof ret->entry);
    *at += sizeof ret->entry;
    size_t name = ret->entry.name_size, link = ret->entry.link_size;
    assert_true(name < sizeof ret->name && link < sizeof ret->link && *at + name + link <= answer->entries_size);
    memcpy(ret->name, answer->entries + *at, name);
    ret->name[name] = 0;
    memcpy(ret->link, answer->entries + *at + name, link);
    ret->link[link] = 0;
    *at += name + link;
    *at += -*at % 8;
    return true;
}

struct files_done client_do(int fd, struct files_request request, const char *path, const char *other)
{
    client_ask(fd, request, path, other);
    struct answer answer = client_answer(fd, true);
    answer_free(&answer);
    return answer.done;
}

struct files_done client_upload(int fd, struct files_request request, const char *path, const void *data, size_t size)
{
    client_ask(fd, request, path, NULL);
    for (size_t at = 0, part; at < size; at += part) {
        part = size - at < FILES_DATA_MAX ? size - at : FILES_DATA_MAX;
        client_frame(fd, FILES_DATA, (const char *)data + at, part);
    }
    client_frame(fd, FILES_END, NULL, 0);
    struct answer answer = client_answer(fd, true);
    answer_free(&answer);
    return answer.done;
}

bool client_is_over(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, 0);
    return n == 0 || (n < 0 && errno == ECONNRESET);
}
