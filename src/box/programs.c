#include "box/programs.h"

/* The bytes of a file, and a NUL. */
#define TEXT_OF(name, path)                                                                                            \
    __asm__(".pushsection .rodata\n.global " #name "\n" #name ":\n.incbin \"" path "\"\n.byte 0\n.popsection\n")

TEXT_OF(programs_installer, "guest/box/installer");
TEXT_OF(programs_sitecustomize, "guest/box/sitecustomize.py");
