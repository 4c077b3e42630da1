/* Words and numbers for faults and statuses. */
#include "http/parse.h"

static const struct {
    int status;
    const char *text;
} faults[HTTP_FAULTS] = {
    [HTTP_OK] = { 200, "ok" },
    [HTTP_BARE_LF] = { 400, "a line ends with LF alone" },
    [HTTP_BARE_CR] = { 400, "a CR without LF" },
    [HTTP_BAD_METHOD] = { 400, "malformed method" },
    [HTTP_BAD_TARGET] = { 400, "malformed request target" },
    [HTTP_BAD_ESCAPE] = { 400, "bad percent-escape in the path" },
    [HTTP_DOT_SEGMENT] = { 400, "dot segment in the path" },
    [HTTP_LONG_TARGET] = { 414, "the request target is too long" },
    [HTTP_BAD_VERSION] = { 400, "malformed HTTP version" },
    [HTTP_OTHER_VERSION] = { 505, "only HTTP/1.1 and HTTP/1.0 are spoken here" },
    [HTTP_BAD_STATUS] = { 400, "malformed status line" },
    [HTTP_BAD_NAME] = { 400, "malformed field name" },
    [HTTP_SPACE_BEFORE_COLON] = { 400, "space between field name and colon" },
    [HTTP_FOLDED_FIELD] = { 400, "folded field" },
    [HTTP_BAD_VALUE] = { 400, "illegal byte in a field value" },
    [HTTP_MANY_FIELDS] = { 431, "too many fields" },
    [HTTP_LONG_HEAD] = { 431, "the message head is too long" },
    [HTTP_NO_HOST] = { 400, "no Host" },
    [HTTP_MANY_HOSTS] = { 400, "more than one Host" },
    [HTTP_BAD_HOST] = { 400, "malformed Host" },
    [HTTP_OTHER_HOST] = { 400, "the target names another host than Host does" },
    [HTTP_BAD_LENGTH] = { 400, "malformed Content-Length" },
    [HTTP_MANY_LENGTHS] = { 400, "more than one Content-Length" },
    [HTTP_LENGTH_AND_CODING] = { 400, "both Content-Length and Transfer-Encoding" },
    [HTTP_MANY_CODINGS] = { 400, "more than one Transfer-Encoding" },
    [HTTP_OTHER_CODING] = { 501, "only the chunked transfer coding is spoken here" },
    [HTTP_OTHER_EXPECTATION] = { 417, "unknown expectation" },
    [HTTP_NO_TUNNELS] = { 501, "CONNECT is not spoken here" },
    [HTTP_BAD_CHUNK_SIZE] = { 400, "malformed chunk size" },
    [HTTP_BAD_CHUNK_EXT] = { 400, "malformed chunk extension" },
    [HTTP_LONG_CHUNK_EXT] = { 400, "chunk extensions are too long" },
    [HTTP_BAD_CHUNK_END] = { 400, "a chunk does not end with CRLF" },
    [HTTP_BAD_TRAILER] = { 400, "malformed trailer" },
    [HTTP_LONG_TRAILER] = { 431, "the trailer is too long" },
};

int http_fault_status(enum http_fault f)
{
    return f < HTTP_FAULTS ? faults[f].status : 400;
}

const char *http_fault_text(enum http_fault f)
{
    return f < HTTP_FAULTS ? faults[f].text : "bad request";
}

const char *http_status_text(int status)
{
    switch (status) {
    case 100: return "Continue";
    case 101: return "Switching Protocols";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 206: return "Partial Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 303: return "See Other";
    case 304: return "Not Modified";
    case 307: return "Temporary Redirect";
    case 308: return "Permanent Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 406: return "Not Acceptable";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 411: return "Length Required";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 416: return "Range Not Satisfiable";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 423: return "Locked";
    case 424: return "Failed Dependency";
    case 426: return "Upgrade Required";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    case 507: return "Insufficient Storage";
    default:  return "Status";
    }
}
