/* Requests that are almost right. For diff.c. */
#ifndef CARREL_TESTS_HTTP_MUTATE_H
#define CARREL_TESTS_HTTP_MUTATE_H

#include <stdint.h>
#include <string.h>

#define MESSAGE_MAX 4096

static uint64_t mutate_seed;

static uint32_t chance(uint32_t n)
{
    mutate_seed ^= mutate_seed << 13;
    mutate_seed ^= mutate_seed >> 7;
    mutate_seed ^= mutate_seed << 17;
    return (uint32_t)((mutate_seed >> 32) % n);
}

static const char *const seeds[] = {
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /a/b%20c?d=e&f HTTP/1.1\r\nHost: box.example:8080\r\nAccept: */*\r\nUser-Agent: x y\r\n\r\n",
    "POST /v1/boxes HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\nContent-Type: text/plain\r\n\r\nhello world",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nTrailer: x\r\nB: c\r\n\r\n",
    "HEAD http://a/x HTTP/1.1\r\nHost: a\r\n\r\n",
    "OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "DELETE /v1/boxes/a HTTP/1.1\r\nHost: [::1]:80\r\nX-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        "abcGET / HTTP/1.1\r\nHost: b\r\n\r\n",
    "GET /ws HTTP/1.1\r\nHost: a\r\nX: \xc3\xbc\r\nCookie: a=b; c=d\r\nAuthorization: Bearer abc\r\n\r\n",
    "PATCH /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
    "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n",
};
static const char *const pieces[] = {
    "\r\n", "\n", "\r", " ", "\t", ":", ";", ",", "0", "1", "f", "\r\n\r\n", "\r\n ", " \r\n", ": ", " :",
    "Host: a\r\n", "Host: b\r\n", "Content-Length: 5\r\n", "Content-Length: 0\r\n", "content-length:3\r\n",
    "Content-Length: 1, 1\r\n", "Content-Length: +3\r\n", "Transfer-Encoding: chunked\r\n",
    "transfer-encoding: Chunked\r\n", "Transfer-Encoding: identity\r\n", "Transfer-Encoding: gzip, chunked\r\n",
    "Transfer-Encoding : chunked\r\n", "Transfer-Encoding:\tchunked\r\n", "X: chunked\r\n", "HTTP/1.1", "HTTP/1.0",
    "HTTP/2.0", "GET ", "POST ", "BREW ", "/../", "/./", "%2e", "%00", "%", "http://a", "Expect: x\r\n",
    "Connection: upgrade\r\n", "Upgrade: websocket\r\n", "0\r\n\r\n", "5\r\nhello\r\n", ";a=b", "\x7f", "\x80",
    "\x01", "#", "?", "\"", "00000", "ffffffff",
};

/* One request, changed in up to three places. Returns its size. */
static size_t mutate_request(char out[static MESSAGE_MAX])
{
    const char *from = seeds[chance(sizeof seeds / sizeof *seeds)];
    size_t size = strlen(from);
    memcpy(out, from, size);
    for (uint32_t times = chance(4); times; times--) {
        size_t at = chance((uint32_t)size + 1), n, room = MESSAGE_MAX / 2 - size;
        const char *piece;
        switch (chance(6)) {
        case 0:
            if (at < size)
                out[at] = (char)chance(256);
            break;
        case 1:
        case 2:
            piece = pieces[chance(sizeof pieces / sizeof *pieces)];
            n = strlen(piece);
            if (n > room)
                break;
            if (chance(2) && chance(2))         /* at the start of a line rather */
                for (; at < size && at && out[at - 1] != '\n'; at++)
                    ;
            memmove(out + at + n, out + at, size - at);
            memcpy(out + at, piece, n);
            size += n;
            break;
        case 3:
            n = chance(8);
            if (n > size - at)
                n = size - at;
            memmove(out + at, out + at + n, size - at - n);
            size -= n;
            break;
        case 4:
            n = chance(40);
            if (n > size - at)
                n = size - at;
            if (n > room)
                break;
            memmove(out + at + n, out + at, size - at);
            size += n;
            break;
        default:
            piece = seeds[chance(sizeof seeds / sizeof *seeds)];
            n = strlen(piece);
            size_t skip = chance((uint32_t)n);
            if (n - skip > MESSAGE_MAX / 2 - at)
                break;
            memcpy(out + at, piece + skip, n - skip);
            size = at + n - skip;
        }
    }
    return size;
}

#endif
