"""pip that may start no program: `python carrel_pip.py install ...`.

pip's --only-binary only covers an index. A wheel can still require a source from elsewhere ("x @ https://..."), and pip would run
that code to build it, outside of a box."""

import runpy
import sys

STARTS = {"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile", "os.system", "pty.spawn"}


def refuse(event, arguments):
    if event in STARTS:
        raise PermissionError(1, "only wheels are installed, and nothing is built: refused to run %s" % (arguments[0] if arguments else "a program"))


sys.addaudithook(refuse)
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
