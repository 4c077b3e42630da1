"""How the zygote's memory lies, so that a child copies little of it. The interpreter counts references in the objects themselves: to call a
function is to write to it and to its code, each time in another page. guest/zygote/memory.c and gather.c say how it is done."""

import ctypes
import gc
import sys
import types

OBJECTS = 2                 # PYMEM_DOMAIN_OBJ
STEP, LARGEST = 16, 512     # of the sizes that Python's own allocator serves
POOL = (16 << 10 if sys.version_info >= (3, 10) else 4 << 10) - 64      # as much memory as it dedicates to one size at a time
HOLES_MOST = 8 << 20        # bytes of one size
filling = []


class _Arenas(ctypes.Structure):
    _fields_ = [("context", ctypes.c_void_p), ("alloc", ctypes.c_void_p), ("free", ctypes.c_void_p)]


class _Allocator(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("context", "malloc", "calloc", "realloc", "free")]


def place_arenas(library):
    """From here on Python's memory comes from where it can be made cheap to fork."""
    functions = (ctypes.cast(f, ctypes.c_void_p) for f in (library.zygote_arena_alloc, library.zygote_arena_free))
    ctypes.pythonapi.PyObject_SetArenaAllocator(ctypes.byref(_Arenas(None, *functions)))


def codes_of(call):
    """The code objects that run in a call."""
    seen = {}

    def look(frame, event, _):
        if event == "call":
            seen[id(frame.f_code)] = frame.f_code

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def gather_code(library, call):
    """Functions used by a call get copies of their code that lie side by side. Nothing else of a function changes."""
    codes = codes_of(call)
    functions = [f for f in gc.get_objects() if type(f) is types.FunctionType and id(f.__code__) in codes]
    allocator = _Allocator()
    ctypes.pythonapi.PyMem_GetAllocator(OBJECTS, ctypes.byref(allocator))
    copies = dict.fromkeys(codes)
    if library.zygote_gather(ctypes.byref(allocator)) < 0:
        return
    ctypes.pythonapi.PyMem_SetAllocator(OBJECTS, ctypes.byref(allocator))
    try:
        for function in functions:
            number = id(function.__code__)
            if copies[number] is None:
                copies[number] = codes[number].replace()
            function.__code__ = copies[number]
    finally:
        library.zygote_gathered(ctypes.byref(allocator))
        ctypes.pythonapi.PyMem_SetAllocator(OBJECTS, ctypes.byref(allocator))


def fill_holes():
    """A child's allocations would go wherever memory was freed here, each to another page. So only memory that was never used
    is left free."""
    for size in range(STEP, LARGEST + STEP, STEP):
        before = len(filling)
        if not fill_holes_of(size):
            del filling[before:]    # it is another allocator


def fill_holes_of(size):
    count = 2 * POOL // size
    for _ in range(HOLES_MOST // (count * size)):
        things = [filler(size) for _ in range(count)]
        filling.append(things)
        if longest_row([id(thing) for thing in things], size) * size > POOL * 2 // 3:
            fill_pool(things, size)
            return True             # so many in a row: this was never used
    return False


def fill_pool(things, size):
    """A child's first object of a size then lies at the beginning of a pool, in the same page as the pool's own numbers."""
    for _ in range(2 * POOL // size):
        thing = filler(size)
        if id(thing) != id(things[-1]) + size:
            break
        things.append(thing)


def filler(size):
    return object() if size == STEP else float(size) if size == 2 * STEP else bytes(size - bytes.__basicsize__)


def longest_row(addresses, step):
    longest = row = 1
    for last, address in zip(addresses, addresses[1:]):
        row = row + 1 if address == last + step else 1
        longest = max(longest, row)
    return longest
