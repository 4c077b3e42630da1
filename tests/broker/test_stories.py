"""What the pages tell, against loopback servers: a hosted model with a key that is in the broker."""

import os
import pathlib
import shutil
import sys

import pytest
from keys import HOST, VALUE
from outside import CARREL

from support.users import ORDINARY, user_command

TOP = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The SDK, the examples and the programs where an ordinary user reads them."""
    folder = tmp_path_factory.mktemp("stories")
    for one in (folder, *folder.parents[:2]):
        one.chmod(0o755)
    shutil.copytree(TOP / "sdk/python/carrel", folder / "sdk/carrel")
    shutil.copytree(TOP / "examples", folder / "examples")
    shutil.copytree(pathlib.Path(CARREL).parent / "guest", folder / "bin/guest", symlinks=True)
    for name in ("carrel", "carrel-server", "carrel-egress", "carrel-broker"):
        shutil.copy(pathlib.Path(CARREL).parent / name, folder / "bin" / name)
    return folder


def run(upstream, place, user, *words, key=VALUE, **variables):
    python = os.environ.get("KERNEL_PYTHON", sys.executable)
    settings = {"PYTHONPATH": place / "sdk", "CARREL_GUEST": place / "bin/guest", "PATH": f"{place}/bin:/usr/bin:/bin", **variables}
    if key:
        settings["OPENAI_API_KEY"] = key
    return upstream.world.host.run(*user_command(user), "env", *[f"{k}={v}" for k, v in settings.items()], python, "-B", *words,
                                   check=False, capture_output=True, text=True, cwd="/", timeout=120)  # fmt: skip


@pytest.mark.parametrize("user", [None, ORDINARY])
def test_a_scoped_sandbox_whose_function_asks_a_hosted_model(upstream, place, user):
    upstream.requests()
    done = run(upstream, place, user, place / "examples/hosted-model/main.py", "Which city?", OPENAI_BASE_URL=f"https://{HOST}/v1")
    assert done.stdout == "hello None\n", done.stdout + done.stderr
    assert f"Authorization: Bearer {VALUE}\r\n" in upstream.heads()[0]
    assert VALUE not in done.stdout + done.stderr


SDK = f"""
import asyncio, sys
from carrel import AsyncCarrel, Box, Carrel
ASK = "curl -sS --max-time 20 -H 'Authorization: Bearer '$API_KEY https://{HOST}/hello"
server = Carrel()
server.create_secret("api", sys.argv[1])
with Box(server=server, template=None, keys=["API_KEY=api@{HOST}"]) as box:
    print(box.raw["keys"][0]["header"], box.exec(["sh", "-c", ASK]).stdout.strip())
with Box(server=server, template=None, keys=[{{"secret": "api", "name": "API_KEY", "host": "{HOST}"}}]) as box:
    print(box.exec(["sh", "-c", ASK]).stdout.strip())
for bad in (["API_KEY"], "API_KEY@host", ["API_KEY=@host"]):
    try: Box(server=server, keys=bad)
    except (TypeError, ValueError) as error: print(type(error).__name__)
async def main():
    async with AsyncCarrel(server.url) as carrel:
        box = await carrel.create(template=None, keys=["API_KEY=api@{HOST}"])
        print((await box.exec(["sh", "-c", ASK])).stdout.strip())
        await box.delete()
asyncio.run(main())
"""


@pytest.mark.parametrize("user", [None, ORDINARY])
def test_boxes_of_the_sdk(upstream, place, user):
    done = run(upstream, place, user, "-c", SDK, VALUE, key=None)
    assert done.stdout == "Authorization: Bearer {} hello\nhello\nValueError\nTypeError\nValueError\nhello\n", done.stdout + done.stderr


def test_a_sandbox_refuses_keys_that_it_would_have_itself(upstream, place):
    code = "from carrel.environment import Sandbox, SandboxConfig\nSandbox(SandboxConfig(keys=[%r], env={'A': 'x'}))"
    for key, words in (("A@api.keys.test", "would have the value of A itself by env"), ("A=b@api.keys.test", "a key is NAME@HOST"), ("A", "a key is NAME@HOST")):
        done = run(upstream, place, None, "-c", code % key)
        assert words in done.stderr, done.stderr


@pytest.mark.parametrize("user", [None, ORDINARY])
def test_a_coding_assistant_in_a_box(upstream, place, user, tmp_path_factory):
    """examples/coding-cli with the broker: what Claude Code sends to its model, from the project's box."""
    project = tmp_path_factory.mktemp("project")
    for one in (project, *project.parents[:2]):
        one.chmod(0o755)
    if user:
        shutil.chown(project, user, user)
    upstream.requests()
    ask = f'curl -sS --max-time 20 -H "x-api-key: $ANTHROPIC_API_KEY" -d "{{}}" https://{HOST}/v1/messages; echo x >changed'
    words = [*user_command(user), "env", f"PATH={place}/bin:/usr/bin:/bin", f"ANTHROPIC_API_KEY={VALUE}", "sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", project,
             "/usr/bin/python3", place / "examples/coding-cli/boxed", f"--option=--key=ANTHROPIC_API_KEY@{HOST}:x-api-key: {{}}", "--", "sh", "-c", ask]  # fmt: skip
    done = upstream.world.host.run(*words, check=False, capture_output=True, text=True, timeout=60)
    assert '"text": "hello"' in done.stdout, done.stdout + done.stderr
    assert f"x-api-key: {VALUE}\r\n" in upstream.heads()[0] and (project / "changed").read_text() == "x\n"
