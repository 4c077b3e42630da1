"""What a forked child must not have in common with its siblings.

The fork is none of libc's or Python's: handlers that libraries registered for forks are not called, and process ids tell nothing, for
in its own pid namespace a child may well have the zygote's number. So it is all done here by name. What stays equal among siblings is the
seed of str hashes and the layout of the address space; docs/SECURITY.md says so."""

import ctypes
import gc
import os
import sys
import threading

TWISTER_WORDS = 624         # then the position, at whose end new words are made


def forget_paths():
    """In the zygote: what was remembered of its own files."""
    matplotlib = sys.modules.get("matplotlib")
    for name in ("get_configdir", "get_cachedir"):
        clear = getattr(getattr(matplotlib, name, None), "cache_clear", None)
        if clear:
            clear()


class Renewal:
    def __init__(self):
        """In the zygote: notes what there is to be renewed. Afterwards the garbage collector is told to forget all of it."""
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
            self.twisters = [(g, g.ctypes.state_address) for g in twisters]
            self.bit_generators = [g for g in self.bit_generators if type(g) is not numpy.MT19937]
        if random is not None and all(random._inst is not r for r in self.randoms):
            self.randoms.append(random._inst)

    def run(self):
        """In the child."""
        for _, address in self.twisters:
            ctypes.memmove(address, os.urandom(4 * TWISTER_WORDS) + TWISTER_WORDS.to_bytes(4, sys.byteorder), 4 * TWISTER_WORDS + 4)
        for generator in self.bit_generators:
            generator.state = type(generator)(int.from_bytes(os.urandom(16), "little")).state
        for generator in self.randoms:
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


def give_back_threads():
    """In the child, after its first cell: the libraries were imported with one thread each."""
    count = processors()
    if count < 2:
        return
    seen = set()
    try:
        with open("/proc/self/maps") as file:
            seen = {line.split(None, 5)[5].strip() for line in file if "/" in line}
    except (OSError, IndexError):
        pass
    for path in seen:
        base = os.path.basename(path)
        if "blas" in base:
            names = ("openblas_set_num_threads", "openblas_set_num_threads64_", "scipy_openblas_set_num_threads",
                     "scipy_openblas_set_num_threads64_")
        elif "gomp" in base or "iomp" in base:
            names = ("omp_set_num_threads",)
        elif "mkl_rt" in base:
            names = ("MKL_Set_Num_Threads",)
        else:
            continue
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for name in names:
            function = getattr(library, name, None)
            if function is not None:
                function(count)
    if "numexpr" in sys.modules:
        sys.modules["numexpr"].set_num_threads(count)
