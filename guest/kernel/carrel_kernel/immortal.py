"""Objects of the zygote that are never counted: from Python 3.12 on a certain reference count means that. A child then copies the pages that it
changes, and not those of everything that it calls. guest/zygote/immortal.c does it; here is where it begins, and whether it may.

It writes into objects, so it is only done where their layout is known, and was tried: otherwise they stay as they are, which costs memory and
time and nothing else. docs/decisions/030-immortal-objects.md says what a program can notice."""

import ctypes
import gc
import sys
import types

FROM, TO = (3, 12), (3, 13)         # 3.14 has another count
IMMORTAL = 0xFFFFFFFF


class _Python(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("is_collectable", "slot", "next", "flags")]


def _count(thing):
    return ctypes.c_uint64.from_address(id(thing)).value


def _has_type(thing):
    return ctypes.c_uint64.from_address(id(thing) + 8).value == id(type(thing))


def doubt(library):
    """Why the objects of this interpreter are left alone; None if they need not be."""
    if sys.implementation.name != "cpython" or not FROM <= sys.version_info[:2] <= TO:
        return "not known for %s %d.%d" % (sys.implementation.name, *sys.version_info[:2])
    if sys.abiflags or ctypes.sizeof(ctypes.c_void_p) != 8 or sys.byteorder != "little":
        return "not known for this build of Python"
    inner = object()
    key = "-".join(("a key", str(id(inner))))
    probe = [{key: (inner, probe_function())}]
    before = _count(inner)
    others = [inner] * 5
    if _count(inner) != before + 5 or not all(_has_type(thing) for thing in (inner, key, probe, None)):
        return "objects have another layout"
    if _count(None) != IMMORTAL or sys.getrefcount(None) != IMMORTAL:
        return "immortal objects have another count"
    if mark(library, [probe]) < 4:
        return "too few of the objects of a test were reached"
    others += [inner, key, probe] * 5
    del others
    if any(_count(thing) != IMMORTAL for thing in (inner, key, probe, probe[0], probe[0][key])):
        return "the objects of a test were counted nevertheless"
    return None


def probe_function():
    def inner():
        pass

    return inner


def mark(library, things):
    functions = (getattr(ctypes.pythonapi, name) for name in ("PyObject_IS_GC", "PyType_GetSlot", "PyDict_Next", "PyType_GetFlags"))
    python = _Python(*(ctypes.cast(f, ctypes.c_void_p) for f in functions))
    library.zygote_make_immortal.restype = ctypes.c_long
    return library.zygote_make_immortal(ctypes.byref(python), (ctypes.c_void_p * len(things))(*map(id, things)), ctypes.c_size_t(len(things)))


def forget_names():
    """Of attributes that the interpreter looked up and remembers: names made while running live there only, where nothing finds them, and each is
    freed when a child looks up another. What rehearsals look up is remembered again."""
    if sys.version_info >= FROM:
        ctypes.pythonapi.PyType_ClearCache()


def all_types():
    found, todo = {object}, [object]
    while todo:
        for each in type.__subclasses__(todo.pop()):
            if each not in found:
                found.add(each)
                todo.append(each)
    return found


def all_codes(things):
    found, todo = {}, [thing.__code__ for thing in things if type(thing) is types.FunctionType]
    while todo:
        code = todo.pop()
        if id(code) not in found:
            found[id(code)] = code
            todo += [each for each in code.co_consts if type(each) is types.CodeType]
    return found.values()


def make_all(library):
    """All that the collector knows and all that it leads to; and what it does not lead to: types of C, and the parts of code. Returns how many."""
    things = gc.get_objects()
    codes = all_codes(things)
    classes = all_types()
    for name in ("__mro__", "__bases__"):
        get = type.__dict__[name].__get__
        things += [get(each) for each in classes]
    for code in codes:
        things += [code, code.co_consts, code.co_names, code.co_name, code.co_qualname, code.co_filename]
    return mark(library, things)
