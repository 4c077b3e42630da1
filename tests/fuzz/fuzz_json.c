/* Any bytes become a JSON string: quoted, plain ASCII controls escaped, valid UTF-8. */
#include "fuzz.h"

#include "base/jsonout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf out;
    struct jsonout j;

    buf_init(&out, 6 * size + 2);
    jsonout_init(&j, &out);
    jsonout_bytes(&j, NULL, (const char *)data, size);
    HOLDS(jsonout_finish(&j) == 0);
    const char *text = buf_string(&out);
    size_t length = out.length;
    HOLDS(length >= 2 && text[0] == '"' && text[length - 1] == '"' && strlen(text) == length);
    for (size_t i = 1; i < length - 1; i++) {
        HOLDS((unsigned char)text[i] >= 0x20 && text[i] != '"');
        if (text[i] == '\\')
            HOLDS(strchr("\"\\bfnrtu", text[++i]) && i < length - 1);
    }
    buf_done(&out);
    return 0;
}
