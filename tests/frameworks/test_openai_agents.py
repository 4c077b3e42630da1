"""The OpenAI Agents SDK: whole runs with its own scripted model, then its sessions."""
import asyncio
import io
import json
import pathlib
import urllib.request

import pytest
from agents import RunConfig, Runner
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.errors import (ConfigurationError, ExecTimeoutError, ExecTransportError, InvalidManifestPathError,
                                   PtySessionNotFoundError, WorkspaceArchiveReadError, WorkspaceArchiveWriteError,
                                   WorkspaceReadNotFoundError)
from agents.sandbox.snapshot import LocalSnapshotSpec
from agents.testing import ScriptedModel, assistant_message, function_call
from lifetimes import check_killed
from walls import HOLDS_MEMORY, LIMITS, check_walls

from carrel import Carrel
from carrel.integrations.openai_agents import CarrelSandboxClient, CarrelSandboxClientOptions

P = pathlib.Path


@pytest.fixture
async def client():
    return CarrelSandboxClient(**LIMITS)


@pytest.fixture
async def session(client):
    made = await client.create(options=CarrelSandboxClientOptions(exposed_ports=(8000,)))
    async with made:
        yield made
    await client.delete(made)


async def run(client, *calls):
    """What the tools answered to a script."""
    steps = [[function_call(tool, arguments, call_id=str(n))] for n, (tool, arguments) in enumerate(calls)]
    model = ScriptedModel([*steps, [assistant_message("done")]])
    agent = SandboxAgent(name="tester", model=model, instructions="Do it.")
    result = await Runner.run(agent, "go", run_config=RunConfig(sandbox=SandboxRunConfig(client=client),
                                                                tracing_disabled=True))
    assert result.final_output == "done"
    model.assert_complete()
    return [item["output"] for item in model.calls[-1].input if item.get("type", "").endswith("_output")]


async def test_an_agent_writes_executes_and_fixes_a_file(client):
    test = "python3 -B -c 'import calc; assert calc.add(1, 2) == 3; print(\"right\")'"
    before = {box.id for box in Carrel().list()}
    wrong, fixed, right = await run(
        client, ("exec_command", {"cmd": f"printf 'def add(a, b):\\n    return a - b\\n' >calc.py; {test}"}),
        ("exec_command", {"cmd": "sed -i 's/a - b/a + b/' calc.py; cat calc.py"}), ("exec_command", {"cmd": test}))
    assert "code 1" in wrong and "AssertionError" in wrong and "a + b" in fixed and "right" in right
    assert {box.id for box in Carrel().list()} == before


async def test_a_terminal_outlives_its_call(client):
    (first,) = await run(client, ("exec_command", {"cmd": "cat", "tty": True, "yield_time_ms": 300}))
    assert "Process running with session ID" in first


async def test_the_walls_hold_and_the_session_hears_why(session):
    async def seen(line):
        result = await session.exec(line)
        return (result.stdout + result.stderr).decode()

    loop = asyncio.get_running_loop()
    await loop.run_in_executor(
        None, lambda: check_walls(lambda line: asyncio.run_coroutine_threadsafe(seen(line), loop).result()))


@pytest.mark.skipif(not HOLDS_MEMORY, reason="memory cannot be limited")
async def test_the_agent_itself_hears_why_its_command_died(client):
    (said, ) = await run(
        client, ("exec_command", {"cmd": "python3 -c \"x = bytearray(1 << 30); x[::4096] = b'x' * len(x[::4096])\""}))
    assert "out of memory" in said and "137" in said


async def test_files_are_exact_in_content_and_in_errors(session):
    content = bytes(range(256)) * 1000
    await session.write(P("deep/er/a.bin"), io.BytesIO(content))
    assert (await session.read(P("deep/er/a.bin"))).read() == content
    assert await session.read_bounded(P("deep/er/a.bin"), max_bytes=10) == content[:10]
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(P("missing"))
    with pytest.raises(WorkspaceArchiveReadError):
        await session.read(P("deep"))
    with pytest.raises(WorkspaceArchiveWriteError):
        await session.write(P("deep"), io.BytesIO(b""))
    await session.exec("ln -s /etc leads-out")
    for outside in ("/etc/passwd", "../a", "leads-out/passwd"):
        with pytest.raises(InvalidManifestPathError):
            await session.read(P(outside))
    assert [entry.path for entry in await session.ls("deep")] == ["/home/box/workspace/deep/er"]
    await session.mv("deep/er/a.bin", "b.bin")
    await session.rm("deep", recursive=True)
    assert (await session.exec("ls")).stdout == b"b.bin\nleads-out\n"


async def test_a_terminal_reads_and_ends(session):
    update = await session.pty_exec_start("cat", tty=True, yield_time_s=0.3)
    update = await session.pty_write_stdin(session_id=update.process_id, chars="hello\n", yield_time_s=0.5)
    assert update.output.count(b"hello") == 2 and update.exit_code is None
    number = update.process_id
    update = await session.pty_write_stdin(session_id=number, chars="\x04", yield_time_s=10)
    assert update.exit_code == 0
    with pytest.raises(PtySessionNotFoundError):
        await session.pty_write_stdin(session_id=number, chars="")


async def test_a_port_of_the_box_is_one_of_this_machine(session):
    await session.write(P("page"), io.BytesIO(b"served"))
    await session.pty_exec_start("python3 -u -m http.server 8000 2>&1", yield_time_s=0.3)
    async with asyncio.timeout(60):
        while not (await session.exec("grep -q :1F40 /proc/net/tcp")).ok():
            pass
    end = await session.resolve_exposed_port(8000)
    assert end.host == "127.0.0.1"
    assert await asyncio.to_thread(
        lambda: urllib.request.urlopen(f"http://127.0.0.1:{end.port}/page", timeout=60).read()) == b"served"


async def test_users_of_a_box_are_two(session):
    assert (await session.exec("id -un", user="root")).stdout == b"root\n"
    with pytest.raises(ConfigurationError, match="alice"):
        await session.exec("id", user="alice")


async def test_a_timeout_is_the_frameworks_own_error(session):
    with pytest.raises(ExecTimeoutError):
        await session.exec("sleep 4711", timeout=0.5)


@pytest.mark.slow
async def test_output_of_100_mb_has_beginning_and_end(session):
    result = await session.exec("echo begun; head -c 100000000 /dev/zero; echo ended")
    assert result.stdout.startswith(b"begun\n") and result.stdout.endswith(b"ended\n")
    assert len(result.stdout) < 12_000_000
    assert "of output left out".encode() in result.stdout and result.exit_code == 0


async def test_cancelling_ends_the_command(session):
    task = asyncio.ensure_future(session.exec("sleep 4711"))

    async def running():
        return (await session.exec("ps ax | grep '[s]leep 4711'")).ok()

    while not await running():
        assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):
        while await running():
            pass


async def test_a_box_that_is_gone_is_the_frameworks_own_error(session):
    await session._inner.box.delete()
    with pytest.raises(ExecTransportError):
        await session.exec("true")


async def test_a_session_goes_on_from_its_snapshot_in_another_box(client, tmp_path):
    made = await client.create(snapshot=LocalSnapshotSpec(base_path=tmp_path))
    async with made:
        await made.write(P("kept"), io.BytesIO(b"kept"))
    payload = json.loads(json.dumps(client.serialize_session_state(made.state)))
    await client.delete(made)
    again = await client.resume(client.deserialize_session_state(payload))
    async with again:
        assert again.state.box_id != payload["box_id"]
        assert (await again.read(P("kept"))).read() == b"kept"
    await client.delete(again)


async def test_what_a_box_cannot_have_is_named():
    with pytest.raises(ConfigurationError, match="gpu_count"):
        await CarrelSandboxClient(gpu_count=1).create()
    client = CarrelSandboxClient()
    made = await client.create(manifest=Manifest(root="/srv/app"))
    with pytest.raises(ConfigurationError, match="/srv"):
        await made.start()
    await client.delete(made)


@pytest.mark.slow
def test_nothing_is_left_after_kill_9():
    check_killed("""
import asyncio
from carrel.integrations.openai_agents import CarrelSandboxClient
async def main():
    session = await CarrelSandboxClient().create()
    await session.start()
    sleeping = asyncio.ensure_future(session.exec("sleep 4711"))
    while not (await session.exec("ps ax | grep '[s]leep 4711'")).ok(): pass
    print("ready", flush=True)
    await sleeping
asyncio.run(main())
""")
