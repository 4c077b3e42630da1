"""What bash offers after TAB."""
import subprocess

import pytest

from support import REPOSITORY

SCRIPT = REPOSITORY / "tools/carrel.bash"


def offered(place, url, *words):
    line = " ".join(f"'{w}'" for w in ("carrel", *words))
    code = (f"source {SCRIPT}; PATH={place}:$PATH; compopt() {{ :; }}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _carrel; "
            'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", code], env={"PATH": "/usr/bin:/bin", "CARREL_URL": url}, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("words, has", [
    (("ex",), "exec"), (("create", "--mem"), "--memory"), (("create", "--profile", "st"), "strict"), (("token", "r"), "revoke"),
    (("config", ""), "check"), (("serve", "--l"), "--listen"), (("exec", "o"), "one"), (("rm", ""), "one"), (("jobs", "--q"), "--quiet"), (("kill", "o"), "one"), (("cp", "o"), "one:"),
    (("run", "--mem"), "--memory"),
])
def test_completion(server, box, place, words, has):
    assert has in offered(place, server.url, *words)


def test_completion_without_a_server_offers_nothing_and_is_silent(place):
    assert offered(place, "unix:/nosuch", "exec", "") == []


def test_every_command_of_the_help_is_offered(place):
    shown = subprocess.run([place / "carrel", "help"], capture_output=True, text=True).stdout
    commands = {line.split()[0] for line in shown.splitlines() if line.startswith("  ")}
    assert commands <= set(offered(place, "unix:/nosuch", ""))
