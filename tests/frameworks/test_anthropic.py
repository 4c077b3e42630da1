"""Anthropic's environment worker, unmodified, against a server on loopback that speaks its API: the tools run in a box,
the worker outside."""
import asyncio
import base64

import pytest
from anthropic import AsyncAnthropic
from anthropic.lib.tools.agent_toolset import AgentToolContext
from lifetimes import check_killed
from walls import LIMITS, check_walls
from work_server import WorkServer

from carrel import Carrel
from carrel.integrations.anthropic import carrel_tools


async def work(*calls, workdir, tools=None):
    """What the session got back from the worker."""
    server = WorkServer(calls)
    try:
        client = AsyncAnthropic(api_key="unused", base_url=server.url, max_retries=0)
        worker = client.beta.environments.work.worker(environment_id="env_1", environment_key="key-of-the-worker",
                                                      workdir=workdir, tools=tools or carrel_tools(**LIMITS))
        task = asyncio.ensure_future(worker.run())
        assert await asyncio.get_running_loop().run_in_executor(None, server.stopped.wait,
                                                                120), "the worker did not finish its item"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()
        assert server.tokens == {"Bearer key-of-the-worker"}
        return server.results
    finally:
        server.close()


def bash(line, **more):
    return "bash", {"command": line, **more}


async def test_a_session_writes_executes_edits_and_searches(tmp_path):
    results = await work(
        ("write", {"file_path": "src/calc.py", "content": "def add(a, b):\n    return a - b\n"}),
        bash("cd src && python3 -B -c 'import calc; assert calc.add(1, 2) == 3'"),
        ("edit", {"file_path": "src/calc.py", "old_string": "a - b", "new_string": "a + b"}),
        bash("pwd; python3 -B -c 'import calc; print(calc.add(1, 2))'"),
        ("read", {"file_path": "src/calc.py", "view_range": [2, 2]}),
        ("glob", {"pattern": "**/*.py"}),
        ("grep", {"pattern": r"return\s+a"}),
        ("grep", {"pattern": "nowhere"}), workdir=tmp_path)
    errors = [is_error for is_error, _ in results]
    assert errors == [False, True, False, False, False, False, False, False], results
    texts = [text for _, text in results]
    assert "AssertionError" in texts[1] and texts[3] == "/home/box/src\n3" and texts[4] == "    return a + b"
    assert texts[5] == "/home/box/src/calc.py" and texts[6].endswith(
        "calc.py:2:    return a + b") and texts[7] == "no matches"
    assert not list(tmp_path.iterdir()) and not Carrel().list()


async def test_files_and_their_errors(tmp_path):
    results = await work(("read", {"file_path": "missing"}), ("read", {"file_path": "/etc"}),
                         ("write", {"file_path": "/etc/x", "content": ""}),
                         ("edit", {"file_path": "missing", "old_string": "a", "new_string": "b"}),
                         bash("printf '\\211PNG' >p.png; printf '\\377' >b"), ("read", {"file_path": "p.png"}),
                         ("read", {"file_path": "b"}), ("write", {"file_path": "t", "content": "aa"}),
                         ("edit", {"file_path": "t", "old_string": "a", "new_string": "b"}),
                         ("edit", {"file_path": "t", "old_string": "a", "new_string": "b", "replace_all": True}),
                         ("glob", {"pattern": "/etc/*"}), workdir=tmp_path)
    texts = [text for _, text in results]
    assert texts[0] == "read: missing: no such file or directory" and "not a regular file" in texts[
        1] and "permission denied" in texts[2]
    assert "no such file" in texts[3] and base64.b64decode(texts[5][0]["source"]["data"]) == b"\x89PNG"
    assert "not valid UTF-8" in texts[6] and "2 times" in texts[8] and "2 replacement" in texts[
        9] and "relative" in texts[10]
    assert [e for e, _ in results] == [True, True, True, True, False, False, True, False, True, False, True]


async def test_a_part_of_a_long_file(tmp_path):
    results = await work(bash("seq 100000 >long"), ("read", {"file_path": "long"}),
                         ("read", {"file_path": "long", "view_range": [70000, 70001]}),
                         ("read", {"file_path": "long", "view_range": [99999, -1]}),
                         ("read", {"file_path": "long", "view_range": [1, -1]}), workdir=tmp_path)
    texts = [text for _, text in results]
    assert "exceeds 262144-byte limit" in texts[1] and texts[2] == "70000\n70001" and texts[
        3] == "99999\n100000" and "limit" in texts[4]


async def test_the_shell_keeps_its_state_and_a_timeout_gives_another(tmp_path):
    results = await work(bash("export A=1; cd /tmp; f() { echo from f; }"), bash("echo $A; pwd; f"),
                         bash("sleep 4711", timeout_ms=500), bash("echo ${A:-gone}; ps ax | grep '[s]leep 4711'; true"),
                         bash("exit 3"), bash("echo again"), ("bash", {"restart": True}), workdir=tmp_path)
    texts = [text for _, text in results]
    assert texts[1] == "1\n/tmp\nfrom f" and "timed out" in texts[2] and texts[3] == "gone" and "ended" in texts[
        4] and texts[5] == "again"
    assert texts[6] == "bash session restarted"


@pytest.mark.slow
async def test_output_of_100_mb_is_cut_to_its_end(tmp_path):
    ((is_error, text), ) = await work(bash("head -c 100000000 /dev/zero | tr '\\0' x; echo; echo the end"),
                                      workdir=tmp_path)
    assert not is_error and text.startswith("[output truncated]") and text.endswith("the end") and len(text) < 110_000


async def test_the_walls_hold_and_the_session_hears_why(tmp_path):
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, lambda: check_walls(
        lambda line: asyncio.run_coroutine_threadsafe(work(bash(line), workdir=tmp_path), loop).result()[0][1],
        hears_refusals=False))      # its shell lives on, and what it was refused is told when it ends


async def test_the_workers_key_is_not_in_the_box(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_ENVIRONMENT_KEY", "key-of-the-worker")
    ((_, text), ) = await work(bash("env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' ' '"),
                               workdir=tmp_path)
    assert "key-of-the-worker" not in text and "HOME=/home/box" in text


async def test_skills_and_memories_of_the_worker_are_in_the_box(tmp_path):
    skill, notes, fixed = tmp_path / "work/skills/one/SKILL.md", tmp_path / "notes", tmp_path / "fixed"
    skill.parent.mkdir(parents=True)
    skill.write_text("how to")
    for folder in (notes, fixed):
        folder.mkdir()
        folder.chmod(0o777)
        (folder / "n.md").write_text("noted")
    context = AgentToolContext(workdir=tmp_path / "work", allowed_roots=[notes, fixed], read_only_roots=[fixed])
    tools = {tool.name: tool for tool in carrel_tools(**LIMITS)(context)}
    try:
        assert await tools["read"].call({"file_path": "skills/one/SKILL.md"}) == "how to"
        assert await tools["read"].call({"file_path": f"{fixed}/n.md"}) == "noted"
        await tools["write"].call({"file_path": f"{notes}/new.md", "content": "new"})
        assert (notes / "new.md").read_text() == "new"
        with pytest.raises(Exception, match="permission denied"):
            await tools["write"].call({"file_path": f"{fixed}/new.md", "content": "new"})
    finally:
        await tools["bash"].close()


async def test_a_box_that_cannot_be_is_an_error_of_the_tool(tmp_path):
    ((is_error, text),) = await work(bash("true"), workdir=tmp_path, tools=carrel_tools(memory="1K"))
    assert is_error and "no box for this session" in text


@pytest.mark.slow
def test_nothing_is_left_after_kill_9(tmp_path):
    check_killed(f"""
import asyncio
from anthropic.lib.tools.agent_toolset import AgentToolContext
from carrel.integrations.anthropic import carrel_tools
async def main():
    tools = {{tool.name: tool for tool in carrel_tools()(AgentToolContext(workdir={str(tmp_path)!r}))}}
    await tools["bash"].call({{"command": "sleep 4711 &"}})
    print("ready", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
""")
