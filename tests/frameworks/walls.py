"""What every framework's agent must meet: it cannot read the user's home, has no network, dies at the memory limit, and
the framework hears why."""
import os
import pathlib
import secrets

CONNECT = "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
EAT = "x = bytearray(1 << 30); x[::4096] = b'x' * len(x[::4096])"
HOLDS_MEMORY = os.geteuid() == 0       # an ordinary user's limits need cgroups that were handed over
LIMITS = {"memory": "128M"} if HOLDS_MEMORY else {}


class Secret:
    """A file in the user's home, and what is in it."""

    def __enter__(self):
        self.path = pathlib.Path.home() / f".carrel-secret-{secrets.token_hex(4)}"
        self.text = secrets.token_hex(16)
        self.path.write_text(self.text)
        return self

    def __exit__(self, *exc):
        self.path.unlink()


def check_walls(run, hears_refusals=True):
    """run(line): what the agent sees of a line for the shell, or of the error, as text. hears_refusals: also what the
    network refused to it."""
    with Secret() as secret:
        seen = run(f"cat {secret.path}; ls -a {secret.path.parent}; echo looked")
        assert "looked" in seen and secret.text not in seen and secret.path.name not in seen.replace(
            str(secret.path), ""), seen
    assert "unreachable" in run(f'python3 -c "{CONNECT}" 2>&1').lower()
    seen = run("getent ahosts index.example.org")
    assert not hears_refusals or "has no network: index.example.org was refused; allow it with allow=[" in seen, seen
    if HOLDS_MEMORY:
        assert "out of memory" in run(f'python3 -c "{EAT}"')


def check_walls_python(run):
    """The same for frameworks that run Python. run(code): what the agent sees."""
    with Secret() as secret:
        seen = run(
            f"import os\nprint('looked', os.path.exists({str(secret.path)!r}))\nopen({str(secret.path)!r}).read()")
        assert "looked False" in seen and "No such file" in seen and secret.text not in seen, seen
    assert "unreachable" in run(CONNECT).lower()
    if HOLDS_MEMORY:
        assert "out of memory" in run(EAT)
