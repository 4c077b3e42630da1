"""--key with bad input: a clear error before anything is started, which never has the value in it."""

import os
import subprocess

import pytest
from keys import HOST, VALUE, command, variables
from outside import CARREL

BAD = {
    "API_KEY": "use NAME@HOST",
    "@api.keys.test": "use NAME@HOST",
    "1KEY@api.keys.test": "use NAME@HOST",
    "API_KEY@": "is no name of a host",
    "API_KEY@*.keys.test": "is no name of a host",
    "API_KEY@10.0.0.1": "is no name of a host",
    "API_KEY@localhost": "is no name of a host",
    "API_KEY@https://api.keys.test": "https is no name of a host",
    "API_KEY@api.keys.test/v1": "is no name of a host",
    "API_KEY@api.keys.test:443": "a key goes to port 443 only",
    "API_KEY@api.keys.test:x-api-key": "is no header with the key's place",
    "API_KEY@api.keys.test:x-api-key: value": "is no header with the key's place",
    "API_KEY@api.keys.test:x-api-key: {}{}": "is no header with the key's place",
    "API_KEY@api.keys.test:x key: {}": "is no header with the key's place",
    "API_KEY@api.keys.test:Host: {}": "Host is no header for a key",
    "API_KEY@api.keys.test:content-length: {}": "content-length is no header for a key",
    "API_KEY@api.keys.test:x: " + "a" * 200 + "{}": "127 printable characters at most",
    "NO_SUCH@api.keys.test": "your environment has no NO_SUCH",
    "SHORT@api.keys.test": "has 5 bytes; a key has at least 8",
    "LONG@api.keys.test": "has more than 4096 bytes",
    "LINE@api.keys.test": "byte 9 of the value in your environment is a blank, a control character",
    "API_KEY=/nowhere@api.keys.test": "/nowhere: No such file or directory",
    "API_KEY=/dev/zero@api.keys.test": "has more than 4096 bytes",
    "API_KEY=/tmp@api.keys.test": "Is a directory",
    "API_KEY=@api.keys.test": "the file's name is missing",
}
ENVIRONMENT = {**os.environ, "API_KEY": VALUE, "SHORT": "abcde", "LONG": "x" * 5000, "LINE": "sk-real-\nInjected: 1"}


def run(*options):
    return subprocess.run([os.path.abspath(CARREL), "run", *options, "--", "true"], capture_output=True, text=True, env=ENVIRONMENT, timeout=30)


@pytest.mark.parametrize("text", BAD)
def test_a_bad_key_is_refused(text):
    done = run("--key", text)
    assert done.returncode == 125 and BAD[text] in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert VALUE not in done.stderr and "Injected" not in done.stderr


@pytest.mark.parametrize("options, words", [
    (["--env", "API_KEY=mine"], "the box would get API_KEY itself"),
    (["--pass-env", "API_KEY"], "the box would get API_KEY itself"),
    (["--deny", "api.keys.test"], "api.keys.test is denied by --deny"),
    (["--zygote", "python3"], "--zygote"),
])  # fmt: skip
def test_what_does_not_go_with_a_key_is_refused(options, words):
    done = run("--key", "API_KEY@api.keys.test", *options)
    assert done.returncode == 125 and words in done.stderr, done.stderr


def test_more_keys_than_a_box_can_have():
    done = run(*[f"--key=API_KEY@a{i}.keys.test" for i in range(17)])
    assert done.returncode == 125 and "more than 16 keys" in done.stderr


def test_a_plan_shows_no_value():
    done = subprocess.run([os.path.abspath(CARREL), "plan", "--key", "API_KEY@api.keys.test", "--", "true"], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0 and VALUE not in done.stdout + done.stderr


def test_a_key_from_a_file(upstream, tmp_path):
    file = tmp_path / "key"
    file.write_text(VALUE + "\n")
    upstream.requests()
    done = upstream.world.host.run(*command(None, [], "sh", "-c", f'curl -sS -H "Authorization: Bearer $API_KEY" https://{HOST}/hello', key=f"API_KEY={file}@{HOST}"),
                                   env=variables("another-value"), capture_output=True, text=True)  # fmt: skip
    assert done.stdout == "hello\n" and VALUE in upstream.heads()[0], done.stderr
