/* Any bytes: the scanner reads nothing beyond them, agrees with itself, and what it finds is JSON and inside the text.
 * */
#include "fuzz.h"

#include "base/jsonscan.h"

static void look_inside(struct jsonslice text)
{
    static const char *const names[] = { "a", "msg_id", "execution_state", "", "\xc3\xa9" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct jsonslice value = jsonscan_find(text, names[i]);
        char own[16];
        unsigned long long number;
        if (!value.data)
            continue;
        HOLDS(value.data > text.data && value.data + value.size < text.data + text.size);
        HOLDS(jsonscan_is_value(value.data, value.size));
        if (jsonscan_text(value, own, sizeof own)) {
            HOLDS(strlen(own) < sizeof own && jsonscan_inside(value).data);
            HOLDS(jsonscan_is(value, own) || strlen(own) > 100);
        }
        struct jsonslice inside = jsonscan_inside(value);
        for (size_t bound = 0, bytes; inside.data && bound < 8; bound++) {
            size_t cut = jsonscan_cut(inside, bound, &bytes);
            HOLDS(cut <= inside.size && bytes <= bound && bytes <= cut && (cut > 0 || bytes == 0));
        }
        if (jsonscan_number(value, &number))
            HOLDS(value.data[0] >= '0' && value.data[0] <= '9');
        if (jsonscan_is_object(value.data, value.size))
            look_inside(value);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size ? size : 1);

    HOLDS(text);
    if (size)
        memcpy(text, data, size);
    bool is_object = jsonscan_is_object(text, size), is_value = jsonscan_is_value(text, size);
    HOLDS(!is_object || is_value);
    if (is_object)
        look_inside((struct jsonslice){ .data = text, .size = size });
    free(text);
    return 0;
}
