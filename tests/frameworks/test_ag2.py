"""AG2: its shell and code tools over a box, driven by its own scripted model."""
import asyncio
import json
from pathlib import PurePosixPath

import pytest
from ag2 import Agent
from ag2.events import ToolCallEvent
from ag2.exceptions import ToolExecutionError
from ag2.testing import TestConfig
from ag2.tools import SandboxCodeTool, SandboxShellTool
from ag2.tools.sandbox import CodeAdapter, Sandbox, SandboxFactory, WorkdirAware
from lifetimes import check_killed
from walls import LIMITS, check_walls, check_walls_python

from carrel import Carrel
from carrel.integrations.ag2 import CarrelEnvironment, CarrelSandbox


@pytest.fixture
async def sandbox():
    async with CarrelSandbox(**LIMITS) as made:
        yield made


async def run(tool, **arguments):
    """A model that calls the tool once."""
    call = ToolCallEvent(name=tool.name, arguments=json.dumps(arguments))
    await Agent("tester", config=TestConfig(call, "done"), tools=[tool]).ask("go")


def test_it_is_what_the_framework_calls_a_sandbox():
    assert isinstance(CarrelSandbox(), Sandbox) and isinstance(CarrelEnvironment(), (SandboxFactory, WorkdirAware))


async def test_an_agent_runs_code_and_commands_in_one_box():
    async with CarrelEnvironment(**LIMITS) as environment:
        shell, code = SandboxShellTool(environment), SandboxCodeTool(environment)
        await run(shell, command="echo from the shell >shared")
        await run(code, code="open('copy', 'w').write(open('shared').read())", language="python")
        async with environment.open() as sandbox:
            assert (await sandbox.exec(["cat", "copy"])).output == "from the shell"
        name = environment.sandbox.box().id
    assert name not in [box.id for box in Carrel().list()]


async def test_code_errors_and_files(sandbox):
    adapter = CodeAdapter(sandbox)
    assert (await adapter.run("print(6 * 7)", "python")).output == "42"
    failed = await adapter.run("1 / 0", "python")
    assert failed.exit_code == 1 and "ZeroDivisionError" in failed.output
    assert (await adapter.run("echo $((6 * 7)); exit 3", "bash")).exit_code == 3
    await sandbox.put_file(PurePosixPath("deep/a"), b"\xff")
    assert (await sandbox.exec(["od", "-An", "-tx1", "deep/a"])).output == "ff"
    await sandbox.remove_file(PurePosixPath("deep/a"))
    assert (await sandbox.exec(["ls", "deep"])).output == ""
    for outside in ("/etc/x", "../x"):
        with pytest.raises(ValueError):
            await sandbox.put_file(PurePosixPath(outside), b"")


async def test_the_walls_hold_and_the_agent_hears_why(sandbox):
    loop = asyncio.get_running_loop()

    def of(*words):
        return lambda code: asyncio.run_coroutine_threadsafe(sandbox.exec([*words, code]), loop).result().output

    await loop.run_in_executor(None, lambda: (check_walls(of("sh", "-c")), check_walls_python(of("python3", "-c"))))


async def test_a_command_that_never_ends_is_ended_at_its_timeout(sandbox):
    assert (await sandbox.exec(["sleep", "4711"], timeout=0.5)).exit_code == 124


@pytest.mark.slow
async def test_output_of_100_mb_is_cut_and_said_to_be(sandbox):
    result = await sandbox.exec(["sh", "-c", "head -c 100000000 /dev/zero | tr '\\0' x"])
    assert len(result.output) < 200_000 and "truncated" in result.output and result.exit_code == 0


async def test_cancelling_ends_the_command(sandbox):
    task = asyncio.ensure_future(sandbox.exec(["sleep", "4711"]))

    async def running():
        return (await sandbox.exec(["sh", "-c", "ps ax | grep '[s]leep 4711'"])).exit_code == 0

    while not await running():
        assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):
        while await running():
            pass


async def test_errors_are_the_frameworks_own(sandbox):
    with pytest.raises(ToolExecutionError, match="No box"):
        await CarrelSandbox(memory="1K").exec(["true"])
    sandbox.box().delete()
    with pytest.raises(ToolExecutionError, match="did not run"):
        await sandbox.exec(["true"])


@pytest.mark.slow
def test_nothing_is_left_after_kill_9():
    check_killed("""
import asyncio
from carrel.integrations.ag2 import CarrelSandbox
async def main():
    sandbox = CarrelSandbox(timeout=6000)
    sleeping = asyncio.ensure_future(sandbox.exec(["sleep", "4711"]))
    while (await sandbox.exec(["sh", "-c", "ps ax | grep '[s]leep 4711'"])).exit_code: pass
    print("ready", flush=True)
    await sleeping
asyncio.run(main())
""")
