"""Ordinary users, for tests that root runs."""
import os
import pwd
import subprocess

from support.waiting import wait_for

ORDINARY = "carreltest"


def make_user(name=ORDINARY):
    """An ordinary user; parallel tests may be making the same one."""
    wait_for(lambda: not subprocess.run(["id", name], capture_output=True).returncode
             or not subprocess.run(["useradd", "--create-home", name], capture_output=True).returncode, f"there is a user {name}")
    return pwd.getpwnam(name)


def as_user(name, **variables):
    """Arguments that make Popen start a process as that user: nothing of root's, and nothing of a session of theirs. None: as the present user. A number: a user
    without an entry in /etc/passwd."""
    if not name:
        return {"env": {**os.environ, **variables}}
    environment = {k: v for k, v in os.environ.items() if not k.startswith("XDG_")}
    if isinstance(name, int):
        return {"user": name, "group": name, "extra_groups": [], "env": {**environment, **variables}}
    them = make_user(name)
    return {"user": them.pw_uid, "group": them.pw_gid, "extra_groups": [], "cwd": "/",
            "env": {**environment, "HOME": them.pw_dir, "USER": name, "LOGNAME": name, **variables}}


def user_command(name):
    """The beginning of a command line that goes on as that user, with an environment that is theirs."""
    return ["runuser", "-u", name, "--", "env", "-u", "XDG_RUNTIME_DIR", f"HOME=/home/{name}"] if name else []
