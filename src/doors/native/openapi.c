/* The description is a file of its own, for people and tools; the assembler includes it here. Paths are relative to
 * where make runs. */
#include "doors/native/native.h"

__asm__(".section .rodata\n"
        ".global native_openapi\n"
        ".global native_openapi_size\n"
        "native_openapi:\n"
        ".incbin \"src/doors/native/openapi.json\"\n"
        "native_openapi_end:\n"
        ".byte 0\n"
        ".balign 8\n"
        "native_openapi_size:\n"
        ".quad native_openapi_end - native_openapi\n"
        ".type native_openapi, @object\n"
        ".type native_openapi_size, @object\n"
        ".size native_openapi_size, 8\n"
        ".previous\n");
