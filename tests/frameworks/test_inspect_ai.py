"""Inspect: its own checks of a sandbox, whole evaluations with a scripted model, then what they do not ask."""
import asyncio
import os

import pytest
from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash, python, text_editor
from inspect_ai.util import OutputLimitExceededError, SandboxUnavailableError
from inspect_ai.util._sandbox.self_check import *  # noqa: F403
from lifetimes import check_killed
from walls import LIMITS, check_walls

from carrel.integrations.inspect_ai import CarrelSandboxConfig, CarrelSandboxEnvironment

# Each waits for seven seconds.
for check in (test_exec_timeout_kills_process, test_exec_timeout_kills_child_processes):  # noqa: F405
    pytest.mark.slow(check)
REFUSED = {"test_exec_as_user": "a box has its own user and root, who has no capabilities: nobody can add an account"}


async def made(config=None):
    return (await CarrelSandboxEnvironment.sample_init("test", config, {}))["default"]


async def ended(environment):
    await CarrelSandboxEnvironment.sample_cleanup("test", None, {"default": environment}, False)


@pytest.fixture
async def sandbox_env(request):
    name = request.node.originalname
    if name in REFUSED:
        request.node.add_marker(pytest.mark.xfail(reason=REFUSED[name], strict=True))
    environment = await made(CarrelSandboxConfig(**LIMITS) if "walls" in name else None)
    yield environment
    await ended(environment)


def call(tool, **arguments):
    return ModelOutput.for_tool_call("mockllm/model", tool, arguments)


def run(outputs, tools, sandbox="carrel", samples=1, tmp=None, **options):
    model = get_model("mockllm/model", custom_outputs=outputs)
    plan = Task(dataset=[Sample(input="go", target="4711", files={"given.txt": "4711"}) for _ in range(samples)],
                solver=[use_tools(*tools), generate()], scorer=includes(), sandbox=sandbox)
    (log,) = evaluate(plan, model=model, log_dir=str(tmp), **options)
    return log


def said(log, sample=0):
    """What the tools answered."""
    return "\n".join(m.text + (m.error.message if m.error else "") for m in log.samples[sample].messages
                     if m.role == "tool")


def test_the_name_is_enough_for_a_whole_evaluation(tmp_path):
    log = run([
        call("bash", command="cat given.txt; pwd"),
        call("python", code="print(6 * 7)"),
        ModelOutput.from_content("mockllm/model", "4711")
    ], [bash(), python()], tmp=tmp_path)
    assert log.status == "success" and log.results.scores[0].metrics["accuracy"].value == 1
    assert "4711/home/box" in said(log) and "42" in said(log)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's boxes have a root that root owns, which these tools demand")
def test_the_tools_that_inspect_puts_into_a_sandbox_work_in_a_box(tmp_path):
    log = run([
        call("text_editor", command="create", path="/home/box/a.txt", file_text="one\ntwo\n"),
        call("text_editor", command="str_replace", path="/home/box/a.txt", old_str="two", new_str="three"),
        call("bash", command="cat a.txt"),
        ModelOutput.from_content("mockllm/model", "4711")
    ], [bash(), text_editor()], tmp=tmp_path)
    assert log.status == "success" and "one\nthree" in said(log), said(log)


def test_options_come_from_a_file(tmp_path):
    (tmp_path / "carrel.yaml").write_text("disk: 64M\nenv:\n  COLOUR: green\n")
    log = run([call("bash", command="echo is $COLOUR"), ModelOutput.from_content("mockllm/model", "4711")], [bash()],
              ("carrel", str(tmp_path / "carrel.yaml")), tmp=tmp_path)
    assert log.status == "success" and "is green" in said(log)


@pytest.mark.parametrize("text, named", [("memroy: 64M\n", "memroy"), ("pids: many\n", "pids"), ("[", "carrel.yaml")])
def test_a_bad_file_of_options_is_named(tmp_path, text, named):
    (tmp_path / "carrel.yaml").write_text(text)
    with pytest.raises(PrerequisiteError) as failure:
        run([], [bash()], ("carrel", str(tmp_path / "carrel.yaml")), tmp=tmp_path)
    assert named in str(failure.value.message)


async def test_a_compose_file_is_refused():
    with pytest.raises(PrerequisiteError) as failure:
        await made("compose.yaml")
    assert "compose.yaml" in failure.value.message


@pytest.mark.slow
def test_a_hundred_samples_at_once(tmp_path):
    outputs = [ModelOutput.from_content("mockllm/model", "4711")] * 200
    plan = Task(dataset=[Sample(input="go", target="4711", files={"n": str(n)}) for n in range(100)], solver=generate(),
                scorer=includes(), sandbox="carrel")
    (log, ) = evaluate(plan, model=get_model("mockllm/model", custom_outputs=outputs), log_dir=str(tmp_path),
                       max_samples=100, max_sandboxes=100)
    assert log.status == "success" and len(log.samples) == 100 and not [s for s in log.samples if s.error], log.error


async def test_the_walls_hold_and_inspect_hears_why(sandbox_env):
    async def seen(line):
        result = await sandbox_env.exec(["sh", "-c", line])
        return result.stdout + result.stderr

    loop = asyncio.get_running_loop()
    await loop.run_in_executor(
        None, lambda: check_walls(lambda line: asyncio.run_coroutine_threadsafe(seen(line), loop).result()))


@pytest.mark.slow
async def test_output_of_100_mb_is_inspects_own_error(sandbox_env):
    with pytest.raises(OutputLimitExceededError):
        await sandbox_env.exec(["sh", "-c", "head -c 100000000 /dev/zero"])


async def test_cancelling_ends_the_command(sandbox_env):
    task = asyncio.ensure_future(sandbox_env.exec(["sleep", "4711"]))

    async def running():
        return (await sandbox_env.exec(["sh", "-c", "ps ax | grep '[s]leep 4711'"])).success

    while not await running():
        assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):
        while await running():
            pass


async def test_a_box_that_is_gone_is_inspects_own_error(sandbox_env):
    await sandbox_env.box.delete()
    with pytest.raises(SandboxUnavailableError):
        await sandbox_env.exec(["true"])


async def test_the_connection_is_a_command_that_works(sandbox_env):
    connection = await sandbox_env.connection()
    line = connection.command.replace("--tty ", "").replace("/bin/bash", "cat /etc/hostname")
    child = await asyncio.create_subprocess_shell(line, stdout=asyncio.subprocess.PIPE,
                                                  stdin=asyncio.subprocess.DEVNULL)
    assert (await child.communicate())[0] == b"box\n"


async def test_no_box_is_left_after_a_sample():
    environment = await made()
    server, name = environment.box._server, environment.box.id
    await ended(environment)
    assert name not in [box.id for box in await server.list()]


@pytest.mark.slow
def test_nothing_is_left_after_kill_9():
    check_killed("""
import asyncio
from carrel.integrations.inspect_ai import CarrelSandboxEnvironment
async def main():
    made = (await CarrelSandboxEnvironment.sample_init("test", None, {}))["default"]
    sleeping = asyncio.ensure_future(made.exec(["sleep", "4711"]))
    while not (await made.exec(["sh", "-c", "ps ax | grep '[s]leep 4711'"])).success: pass
    print("ready", flush=True)
    await sleeping
asyncio.run(main())
""")
