"""The state that a forked child must not share with its siblings.

The fork is neither libc's nor Python's: handlers that libraries registered for forks are not called, and process ids are no hint,
because in its own pid namespace a child may have the zygote's number. So everything is done here by name. Siblings still share the
seed of str hashes and the layout of the address space; docs/SECURITY.md says so."""

import _random
import ctypes
import gc
import os
import sys
import threading

TWISTER_WORDS = 624         # then the position; at its end new words are generated


def forget_paths():
    """In the zygote: the recorded state of its own files."""
    matplotlib = sys.modules.get("matplotlib")
    for name in ("get_configdir", "get_cachedir"):
        clear = getattr(getattr(matplotlib, name, None), "cache_clear", None)
        if clear:
            clear()


class Renewal:
    def __init__(self):
        """In the zygote: records everything that must be renewed. Afterwards the garbage collector ignores all of it."""
        self.bit_generators = []
        self.twisters = []
        self.randoms = []
        numpy = sys.modules.get("numpy.random")
        random = sys.modules.get("random")
        for thing in gc.get_objects():
            kind = type(thing)
            if numpy is not None and issubclass(kind, numpy.BitGenerator):
                self.bit_generators.append(thing)
            elif random is not None and issubclass(kind, random.Random) and not issubclass(kind, random.SystemRandom):
                self.randoms.append(thing)
        if numpy is not None:
            numpy.seed()                # forgets the second of a pair of normal numbers
            generator = numpy.mtrand._rand._bit_generator
            if all(generator is not g for g in self.bit_generators):
                self.bit_generators.append(generator)
            # Of a Mersenne twister the state is written as it lies in memory: to make another would touch fifty times the pages.
            twisters = [g for g in self.bit_generators if type(g) is numpy.MT19937]
            self.twisters = [(g, memoryview((ctypes.c_ubyte * (4 * TWISTER_WORDS + 4)).from_address(g.ctypes.state_address)).cast("B"))
                             for g in twisters]
            self.bit_generators = [g for g in self.bit_generators if type(g) is not numpy.MT19937]
        self.seed = random.Random.seed if random is not None else None
        if random is not None and all(random._inst is not r for r in self.randoms):
            self.randoms.append(random._inst)

    def run(self):
        """In the child."""
        for _, state in self.twisters:
            state[:] = os.urandom(4 * TWISTER_WORDS) + TWISTER_WORDS.to_bytes(4, sys.byteorder)
        for generator in self.bit_generators:
            generator.state = type(generator)(int.from_bytes(os.urandom(16), "little")).state
        for generator in self.randoms:
            if type(generator).seed is self.seed:
                _random.Random.seed(generator, int.from_bytes(os.urandom(64), "little"))    # of text it would take a digest first
                generator.gauss_next = None
            else:
                generator.seed(os.urandom(32))
        modules = sys.modules
        if "tempfile" in modules:
            modules["tempfile"]._name_sequence = None
        if "uuid" in modules:
            modules["uuid"]._last_timestamp = None
        if "_ssl" in modules:
            modules["_ssl"].RAND_add(os.urandom(32), 32.0)
        if "multiprocessing.process" in modules:
            modules["multiprocessing.process"].current_process()._config["authkey"] = \
                modules["multiprocessing.process"].AuthenticationString(os.urandom(32))
        if "torch" in modules:
            modules["torch"].manual_seed(int.from_bytes(os.urandom(7), "little"))
        threading.main_thread()._set_native_id()


def processors():
    """How many the box says it has, unless its environment says how many to use."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return int(value)
    try:
        count = len(os.sched_getaffinity(0))
    except OSError:
        return 1                        # a profile that hides it gives no more
    try:
        with open("/proc/cpuinfo") as file:
            count = min(count, sum(line.startswith("processor") for line in file) or count)
    except OSError:
        pass
    return count


THREADS_OF = {
    "blas": ("openblas_set_num_threads", "openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "scipy_openblas_set_num_threads64_"),
    "gomp": ("omp_set_num_threads",),
    "iomp": ("omp_set_num_threads",),
    "mkl_rt": ("MKL_Set_Num_Threads",),
}


class _Loaded(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]        # and more that are not needed


def loaded_libraries():
    """Uses the loader, because the zygote has no /proc."""
    found = []

    def take(library, _size, _data):
        if library.contents.name:
            found.append(os.fsdecode(library.contents.name))
        return 0

    ctypes.CDLL(None).dl_iterate_phdr(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Loaded), ctypes.c_size_t, ctypes.c_void_p)(take), None)
    return found


class Threads:
    """The libraries were imported with one thread each. A kernel gets the others when it has shown that it stays: to make them takes longer
    than a short cell, and a thread of OpenBLAS that has nothing to do takes a processor for a while until it believes it."""

    def __init__(self):
        """In the zygote."""
        self.setters = []
        for path in loaded_libraries():
            for part, names in THREADS_OF.items():
                if part in os.path.basename(path):
                    self.setters += functions_of(path, names)

    def give_back(self):
        """In the child."""
        count = processors()
        if count < 2:
            return
        for function in self.setters:
            function(count)
        if "numexpr" in sys.modules:
            sys.modules["numexpr"].set_num_threads(count)


def functions_of(path, names):
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return []
    return [getattr(library, name) for name in names if hasattr(library, name)]
