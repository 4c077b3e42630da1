"""What a fork of the zygote copies, by counters and not by time; and that a program does not notice that the zygote's objects are never counted."""

import json
import os
import pathlib
import statistics
import struct
import subprocess

import pytest

import ways
from client import BoxKernel

FAULTS_MOST, PRIVATE_MOST = 600, 2000       # KiB; 1,000 and 3,500 where references are counted
WRITE, EXECUTE = 1, 2

STARTUP = """
import weakref
import numpy as np
class Watched:
    def __del__(self):
        print('deleted')
watched, array, nothing = Watched(), np.arange(4), []
weakref.finalize(watched, print, 'finalized')
"""


@pytest.fixture(scope="module", params=["3.12", "3.13"])
def counted(request):
    """A family whose interpreter has immortal objects."""
    boxes = ways.boxes(way=request.param)
    boxes.way = request.param
    yield boxes
    boxes.close()


@pytest.fixture
def forked(counted):
    k = BoxKernel(counted)
    yield k
    k.close()


def faults(pid):
    return int(pathlib.Path("/proc/%d/stat" % pid).read_text().rsplit(")", 1)[1].split()[7])


def private_kib(pid):
    for line in pathlib.Path("/proc/%d/smaps_rollup" % pid).read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1])
    raise AssertionError("no Private_Dirty")


def mappings(pid):
    """(start, end, rights, name) of each."""
    found = []
    for line in pathlib.Path("/proc/%d/maps" % pid).read_text().splitlines():
        words = line.split(None, 5)
        start, end = (int(n, 16) for n in words[0].split("-"))
        found.append((start, end, words[1], words[5] if len(words) > 5 else ""))
    return found


# --- what is copied ---

def test_a_child_copies_few_pages_up_to_the_end_of_its_first_cell(counted):
    figures = []
    for _ in range(5):
        k = BoxKernel(counted)
        assert k.run("1+1").text == "2"
        figures.append((faults(k.pid), private_kib(k.pid)))
        k.close()
    pages, kib = (statistics.median(column) for column in zip(*figures))
    assert pages <= FAULTS_MOST and kib <= PRIVATE_MOST, figures


def test_the_first_cell_of_a_parked_kernel_touches_what_its_second_does(counted):
    figures = []
    for _ in range(7):
        k = BoxKernel(counted, counted.park_warm())
        k.request("kernel_info_request")        # it serves now
        before = faults(k.pid)
        k.run("1+1")
        first = faults(k.pid)
        k.run("1+1")
        figures.append((first - before, faults(k.pid) - first))
        k.close()
    first, second = (statistics.median(column) for column in zip(*figures))
    assert first <= second + 20, figures


def read_only_after_relocation(path, start):
    """Whole pages of that library, as its program headers say."""
    with open(path, "rb") as file:
        head = file.read(64)
        assert head[:5] == b"\x7fELF\x02"
        at, (size, count) = struct.unpack_from("<Q", head, 32)[0], struct.unpack_from("<HH", head, 54)
        file.seek(at)
        table = file.read(size * count)
    parts = [struct.unpack_from("<IIQQQQQQ", table, i * size) for i in range(count)]
    base = start - (min(p[3] for p in parts if p[0] == 1) & ~4095)
    for kind, _, _, address, _, _, length, _ in parts:
        if kind == 0x6474e552:
            return (base + address) & ~4095, (base + address + length) & ~4095
    return 0, 0


def test_each_library_is_mapped_three_times_and_never_writable_and_executable(family):
    """Its code with what belongs to it, once, from its file; what is read-only after relocation stays so."""
    with ways.kernel("box", family) as k:
        k.run("1+1")
        found = mappings(k.pid)
        cold = ways.cold(family)
        cold.run("import numpy, pandas, matplotlib.pyplot")
        before = mappings(cold.pid)
        cold.close()
    libraries = {name: [m for m in found if m[3] == name and m[2] != "---p"] for name in {m[3] for m in found} if ".so" in name}
    several = {name: parts for name, parts in libraries.items() if len(parts) > 1}
    assert len(libraries) > 50 and len(several) <= len(libraries) // 20, several
    assert len(found) < 0.8 * len(before), (len(found), len(before))
    protected = 0
    for name, parts in libraries.items():
        start, end = read_only_after_relocation(name, parts[0][0])
        covering = [m for m in found if m[0] < end and m[1] > start]
        assert all(m[2] in ("r--p", "r-xp") for m in covering), (name, covering)
        protected += end > start
    assert protected > 50
    both = [m for m in found if "w" in m[2] and "x" in m[2]]
    assert all(m[3] == "" and m[1] - m[0] <= 4096 for m in both) and len(both) <= 1, both       # a callback of ctypes


# --- what a program notices, and what it does not ---

def test_new_objects_are_counted_freed_and_collected(forked):
    assert forked.run("import gc, sys, weakref\nclass C:\n    def __del__(self): print('gone')\nc = C(); w = weakref.ref(c, lambda _: print('told'))\n"
                      "n = sys.getrefcount(c); del c; n, w()").text == "(2, None)"
    ran = forked.run("c = C(); c.itself = c; w = weakref.ref(c); del c; gc.collect(); w() is None")
    assert ran.stdout == "gone\n" and ran.text == "True"
    assert forked.run("s = 'a' * 1000; before = id(s)\nfor _ in range(100): s += 'b'\nlen(s)").text == "1100"
    assert forked.run("import numpy as np\na = np.arange(4); a.resize(8); a.sum()").text.endswith("6)")
    assert forked.run("gc.unfreeze(); gc.collect() >= 0, gc.freeze(), 1 + 1").text == "(True, None, 2)"


def test_differences_of_the_zygotes_objects_are_those_that_are_documented(counted, tmp_path):
    (tmp_path / "00-things.py").write_text(STARTUP)
    tmp_path.chmod(0o755)
    boxes = ways.boxes("numpy", ["--startup", str(tmp_path)], [str(tmp_path)], way=counted.way)
    try:
        k = BoxKernel(boxes)
        assert k.run("import sys; sys.getrefcount(nothing), sys.getrefcount(Watched)").text == "(4294967295, 4294967295)"
        ran = k.run("del watched; import gc; gc.collect(); 'watched' in globals()")
        assert ran.stdout == "" and ran.text == "False"
        assert k.run("array.resize(8)").error["ename"] == "ValueError"
        assert k.run("array.resize(8, refcheck=False); array.size").text == "8"
        assert k.run("nothing.append(1); nothing").text == "[1]"
        k.close()
    finally:
        boxes.close()


# Quick ones that touch counts, weak references, copies, collection.
CPYTHON = ["test_gc", "test_weakset", "test_copy", "test_copyreg", "test_finalization", "test_generators", "test_dict", "test_class", "test_funcattrs", "test_code",
           "test_ctypes.test_refcounts"]
if os.environ.get("CARREL_LONG") == "1":
    CPYTHON += ["test_weakref", "test_pickle", "test_descr", "test_functools", "test_set", "test_ordered_dict", "test_coroutines", "test_collections", "test_itertools"]
RUN_TESTS = """
import io, json, os, sys, unittest
os.chdir('/tmp')
def results_of(name):
    run = unittest.TextTestRunner(stream=io.StringIO(), verbosity=0).run(unittest.defaultTestLoader.loadTestsFromName('test.' + name))
    return json.dumps([run.testsRun, sorted(str(test) for test, _ in run.failures + run.errors), len(run.skipped)])
"""


@pytest.mark.parametrize("module", CPYTHON)
def test_pythons_own_tests_give_in_a_fork_what_they_give_in_an_executed_kernel(counted, module):
    results = []
    for k in (BoxKernel(counted), ways.cold(counted, counted.way)):
        try:
            if k.run("import importlib.util; importlib.util.find_spec('test.%s') is None" % module).text == "True":
                pytest.skip("this Python was installed without its tests")
            k.run(RUN_TESTS)
            results.append(json.loads(eval(k.run("results_of(%r)" % module).text)))
        finally:
            k.close()
    assert results[0] == results[1] and results[0][0] > 0


# --- interpreters whose objects are left alone ---

LOOK = """
import ctypes, sys
sys.path.insert(0, %r)
from carrel_kernel import immortal
library = ctypes.PyDLL(%r)
%s
print(immortal.doubt(library))
"""


def doubt(way, lines=""):
    code = LOOK % (str(ways.GUEST), str(ways.GUEST / "libcarrel-zygote.so"), lines)
    return subprocess.run([ways.python(way), "-B", "-c", code], stdout=subprocess.PIPE, check=True, timeout=60).stdout.decode().strip()


def test_an_unknown_version_is_left_alone():
    assert doubt("new").startswith("not known for cpython 3.")


def test_an_interpreter_without_immortal_objects_is_found_out_by_trying():
    assert doubt("new", "immortal.FROM = (3, 8)") == "immortal objects have another count"


@pytest.mark.parametrize("lines, reason", [
    ("", "None"),
    ("immortal.TO = (3, 11)", "not known for cpython 3.12"),
    ("sys.abiflags = 't'", "not known for this build of Python"),
    ("immortal._count = lambda thing: ctypes.c_uint64.from_address(id(thing) + 8).value", "objects have another layout"),
    ("immortal.IMMORTAL = 3 << 30", "immortal objects have another count"),
    ("immortal.mark = lambda library, things: 0", "too few of the objects of a test were reached"),
    ("immortal.mark = lambda library, things: 9", "the objects of a test were counted nevertheless"),
])
@pytest.mark.parametrize("way", ["3.12"])
def test_an_interpreter_with_immortal_objects_is_tried_before_it_is_trusted(way, lines, reason):
    assert doubt(way, lines) == reason


@pytest.mark.parametrize("way", ["3.12"])
def test_a_zygote_that_doubts_says_so_and_serves(tmp_path, way):
    (tmp_path / "00-odd.py").write_text("import sys\nsys.modules['carrel_kernel.immortal'].TO = (3, 11)\n")
    tmp_path.chmod(0o755)
    boxes = ways.boxes("json", ["--startup", str(tmp_path)], [str(tmp_path)], way=way)
    try:
        k = BoxKernel(boxes)
        assert k.run("import sys; sys.getrefcount(sys) < 1000").text == "True"
        k.close()
        assert "references to objects are counted: not known for cpython 3.12" in boxes.errors()
    finally:
        boxes.close()
