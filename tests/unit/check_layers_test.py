"""tools/check-layers finds what it must find: run on small trees with one offence each."""
import pathlib
import subprocess
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check-layers"


def check(**files):
    """Exit status and output for a tree of files; a name like src__base__x_c stands for src/base/x.c."""
    with tempfile.TemporaryDirectory() as top:
        for name, text in files.items():
            path = pathlib.Path(top, *name.split("__")).with_suffix("")
            stem, dot, suffix = path.name.rpartition("_")
            path = path.with_name(stem + "." + suffix if dot else path.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([TOOL, top], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout


class CheckLayers(unittest.TestCase):
    def test_a_good_tree_passes(self):
        status, text = check(src__box__x_c='#include "base/err.h"\n#include "box/x.h"\n/* strcpy( */ char *s = "system(";\n',
                             src__front__x_c='#include "proto/keeper.h"\n')
        self.assertEqual((status, text), (0, "check-layers: 2 files in order\n"))

    def assert_offence(self, expected, **files):
        status, text = check(**files)
        self.assertEqual(status, 1)
        self.assertIn(expected, text)

    def test_upward_includes(self):
        self.assert_offence("src/sys/x.c:2: src/sys must not include box/spec.h", src__sys__x_c='\n#include "box/spec.h"\n')
        self.assert_offence("must not include keeper/keeper.h", src__front__x_c='#include "keeper/keeper.h"\n')
        self.assert_offence("must not include sys/clone.h", src__http__x_h='#include "sys/clone.h"\n')
        self.assert_offence("src/front/boxes must not include front/execs/execs.h", src__front__boxes__x_c='#include "front/execs/execs.h"\n')
        self.assert_offence("src/front/links must not include front/kernels/kernels.h", src__front__links__x_c='#include "front/kernels/kernels.h"\n')
        self.assert_offence("front/boxes/box_private.h is private to its folder", src__front__execs__x_c='#include "front/boxes/box_private.h"\n')
        self.assert_offence("write the folder too", src__base__x_c='#include "err.h"\n')
        self.assert_offence("not in the table of layers", src__odd__x_c="\n")

    def test_sizes(self):
        self.assert_offence("601 lines; the most is 600", src__base__x_c="\n" * 601)
        self.assert_offence("201 lines; the most is 200", src__base__x_h="\n" * 201)
        self.assert_offence("x.c:1: 121 columns; the most is 120", tests__x_c="/" * 121 + "\n")
        self.assert_offence("41 lines; the most is 40", src__base__README_md="\n" * 41, src__base__x_c="\n")

    def test_files_that_readmes_name(self):
        self.assert_offence("src/base/README.md:2: names gone, which does not exist", src__base__x_c="\n",
                            src__base__README_md="| `x`, `x.c` | `y` |\n| `gone` | |\n")
        self.assert_offence("src/base/README.md:1: names sys/gone.c, which does not exist", src__base__x_c="\n",
                            src__base__README_md="See `sys/gone.c` and `base/x.c`, `src/base/x.c`.\n")
        status, text = check(src__base__x_c="\n", src__base__y_private_h="\n", src__base__sub__z_c="\n",
                             src__base__README_md="| `x`, `y_*` | nothing of `z` |\n| `sub/` | |\n")
        self.assertEqual(status, 0, text)

    def test_words_that_hide_who_does_what(self):
        self.assert_offence("x.c:1: 'whoever' occurs 1 times in src; the most is 0", src__base__x_c="/* freed by whoever holds it */\n")
        self.assert_offence("docs/a.md:1: 'Nobody' occurs 1 times in docs, sdk and guest; the most is 0", src__base__x_c="\n", docs__a_md="Nobody may.\n")
        self.assert_offence("docs/decisions/001_b.md:1: a second decision 001; the first is 001_a.md", src__base__x_c="\n",
                            docs__decisions__001_a_md="\n", docs__decisions__001_b_md="\n")
        self.assert_offence("README.md:1: 'is told' occurs 1 times in src; the most is 0", src__base__x_c="\n",
                            src__base__README_md="The front is told.\n")
        status, text = check(src__base__x_c="enum { NOBODY = 65534 };\nvoid start_anew(void);\n")
        self.assertEqual(status, 0, text)

    def test_banned_functions(self):
        self.assert_offence("x.c:1: strcpy is banned", src__base__x_c="int a = strcpy (b, c);\n")
        self.assert_offence("x.c:2: system is banned", guest__x_c='/* a\n */ int a = system("x");\n')

    def test_one_name_for_one_thing(self):
        self.assert_offence("y.c:1: a second struct, union or enum called thing; the first is in x.h",
                            src__base__x_h="struct thing {\n    int a;\n};\n", src__front__y_c="struct thing { int b; };\n")
        self.assert_offence("y.c:2: a second function called do_it; the first is in x.c",
                            src__base__x_c="int do_it(int a)\n{\n}\n", src__front__y_c="\nvoid do_it(void)\n{\n}\n")
        status, text = check(src__base__x_c="static int a(void)\n{\n}\nstruct b *c;\n", src__base__y_c="static int a(void)\n{\n}\nstruct b *d;\n",
                             src__front__z_c="struct plan { int a; };\n", src__cluster__z_c="struct plan { int a; };\n")
        self.assertEqual((status, text), (0, "check-layers: 4 files in order\n"))

    def test_an_empty_tree_is_not_a_success(self):
        self.assert_offence("no source files")


if __name__ == "__main__":
    unittest.main()
