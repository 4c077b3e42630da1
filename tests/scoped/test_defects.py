"""Defects of these interfaces' original that must not be here, unless another test has them."""
import asyncio
import io
import json
import os
import re
import select
import sys
import textwrap

import pytest
from model_server import text, use

from carrel.environment import ExecutionMode, ModelConfig, Sandbox, SandboxConfig, ScopedSandbox
from carrel.execution import create_cli_session, create_local_session, create_notebook_session
from carrel.harness import AgentError, run_agent, run_agent_interactive
from carrel.workspace import Library, Skill, Workspace
from support import SDK
from support.waiting import wait_for

NAME = "secretive/very-hidden-model"
TRANSFORMERS = '''
import types
class _Loader:
    @classmethod
    def from_pretrained(cls, path, **options):
        open(path + "/config.json").read()
        return types.SimpleNamespace(config=types.SimpleNamespace(_name_or_path=path), name_or_path=path)
class AutoModelForCausalLM(_Loader): pass
class AutoTokenizer(_Loader): pass
'''


@pytest.fixture
def models(tmp_path, monkeypatch):
    folder = tmp_path / "models" / NAME
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"_name_or_path": NAME, "kind": "very-hidden-model"}))
    (folder / "model.safetensors").write_bytes(b"\0" * 100)
    monkeypatch.setenv("CARREL_MODELS", str(tmp_path / "models"))


def test_no_token_and_no_address_is_in_what_the_agent_reads(tmp_path):
    (tmp_path / "one.py").write_text("@expose\ndef f():\n    return 1\n")
    with ScopedSandbox(SandboxConfig()) as scoped:
        library = scoped.serve(tmp_path / "one.py", expose_as="library", name="one_tools")
        token = json.load(open(scoped.services[0].holder))["token"]
        prompt = scoped.serve(tmp_path / "one.py", expose_as="prompt", name="two_tools")
        for said in (library.files["one_tools.py"], library.get_prompt_docs(), prompt):
            assert token not in said and "http://" not in said and "carrel_" not in said.replace("_carrel_", "")
        assert os.stat(scoped.services[0].holder).st_mode & 0o077 == 0


def test_a_hidden_model_has_its_name_nowhere_in_the_agents_box(models, tmp_path):
    with Sandbox(SandboxConfig(execution_mode=ExecutionMode.NOTEBOOK, models=[ModelConfig(NAME, hidden=True)])) as sandbox:
        session = create_notebook_session(sandbox, Workspace(libraries=[Library.from_code("transformers", TRANSFORMERS)]), notebook_dir=tmp_path / "out")
        assert session.model_info_text.count("<hidden>") == 1 and "hidden-model" not in session.agent_words()
        seen = session.exec(textwrap.dedent("""
            import glob, os
            print(In, model, tokenizer, dict(os.environ), open('/proc/self/mounts').read(), open('/proc/self/mountinfo').read())
            for path in glob.glob('/models/**', recursive=True) + glob.glob('/workspace/**', recursive=True) + glob.glob('/root/**', recursive=True):
                print(path)
                if os.path.isfile(path):
                    print(open(path, 'rb').read()[:10000])
        """)).stdout
        told = seen + open(session.notebook_path).read() + json.dumps(session.mcp_config)
        assert "/models/" in seen and "model.safetensors" in seen
        assert "very-hidden" not in told and "secretive" not in told
        session.terminate()


def test_a_hidden_model_has_its_name_in_nothing_that_a_scoped_sandbox_tells(models, tmp_path):
    """An agent makes functions fail on purpose: errors show lines of the interface."""
    (tmp_path / "interface.py").write_text(f"first = get_model_path({NAME!r})\n@expose\ndef load(name: str) -> str:\n    return get_model_path(name)\n"
                                           f"@expose\ndef fail(x: int) -> str:\n    return get_model_path({NAME!r} + str(1 / x)) # very-hidden-model\n")
    with ScopedSandbox(SandboxConfig(models=[ModelConfig(NAME, hidden=True)])) as scoped:
        skill = scoped.serve(tmp_path / "interface.py", expose_as="skill", name="told")
        library = scoped.serve(tmp_path / "interface.py", expose_as="library", name="hidden_tools")
        with create_local_session(Workspace(libraries=[library], skills=[skill]), workspace_dir=tmp_path / "w") as session:
            said = ["hidden" in skill.content, session.exec("print(open('.claude/skills/told/SKILL.md').read())").stdout, session.agent_words()]
            for code in ("load('other')", "fail(0)", "fail(1)"):
                with pytest.raises(RuntimeError, match="ValueError|ZeroDivisionError") as failed:
                    session.exec("import hidden_tools\nhidden_tools." + code, check=True)
                said += [str(failed.value), failed.value.traceback]
            assert "Remote traceback" in said[3]
            assert not re.search("very-hidden|secretive", str(said)), said


def test_each_hidden_model_has_a_script_that_loads_it(models, tmp_path, monkeypatch):
    import shutil
    shutil.copytree(tmp_path / "models" / NAME, tmp_path / "models/org/other-one")
    with Sandbox(SandboxConfig(models=[ModelConfig(NAME, hidden=True), ModelConfig("org/other-one", "second", hidden=True)])) as sandbox:
        create_cli_session(sandbox).terminate()
        scripts = [sandbox.read_file(f"/workspace/load_{name}.py") for name in ("model", "second")]
        assert [handle.volume_path in script for handle, script in zip(sandbox.model_handles, scripts)] == [True, True]


def test_models_that_were_not_loaded_are_not_said_to_be(models, tmp_path):
    with Sandbox(SandboxConfig(execution_mode=ExecutionMode.NOTEBOOK, models=[ModelConfig(NAME)])) as sandbox:
        session = create_notebook_session(sandbox, Workspace(preload_models=False), notebook_dir=tmp_path / "out")
        assert session.model_info_text == ""
        session.terminate()


def test_texts_are_data_and_never_shell_or_code(tmp_path):
    odd = "EOFMARKER\n'''\"\"\"$(touch /root/ran) `touch /root/ran` \\ \0end"
    with Sandbox(SandboxConfig()) as sandbox:
        sandbox.write_file("/root/a b/it's \"odd\" $(x)", odd)
        assert sandbox.read_file("/root/a b/it's \"odd\" $(x)") == odd
        assert sandbox.exec("ls /root") == "a b\n"


def test_skills_are_there_and_the_agent_is_told(tmp_path, model):
    script = model([[use("t1", "python", code="print(open('.claude/skills/adding/SKILL.md').read())")], [text("done")]])
    with create_local_session(workspace=Workspace(skills=[Skill("adding", "How to add.", "Use plus.")]), workspace_dir=tmp_path / "w") as session:
        async def collect():
            return [m async for m in run_agent(prompt="p", mcp_config={}, kwargs={"session": session})]
        result = asyncio.run(collect())[2].content[0].content[0]["text"]
    assert "Use plus." in result and "adding: How to add." in script.requests[0]["system"]


def test_a_talkative_cell_does_not_rewrite_its_notebook_for_each_line(tmp_path, monkeypatch):
    from carrel.execution import create_local_notebook_session
    from carrel.execution.notebook import NotebookFile
    written = []
    update = NotebookFile.update
    monkeypatch.setattr(NotebookFile, "update", lambda self, *words: written.append(words[1]) or update(self, *words))
    with create_local_notebook_session(notebook_dir=tmp_path / "out", workspace_dir=tmp_path / "w") as session:
        session.exec("import sys\nfor i in range(2000):\n    print(i)\n    sys.stdout.flush()", check=True)
        lines = "".join(session.notebook.read()["cells"][0]["outputs"][0]["text"]).splitlines()
    assert len(lines) == 2000 and written[-1] == "complete" and len(written) < 200


HOSTILE = {
    "says nonsense": "print('this is no message', flush=True); print('\\x00\\xff{{{', flush=True); sys.stdin.readline()",
    "ends at once": "sys.exit(3)",
    "answers with another shape": "sys.stdin.readline(); print('{\"jsonrpc\": \"2.0\", \"id\": 0, \"result\": 5}', flush=True); sys.exit(0)",
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_mcp_server_is_one_clear_error(model, tmp_path, how):
    model()
    (tmp_path / "server").mkdir()
    (tmp_path / "server/evil.py").write_text("import sys\n" + HOSTILE[how] + "\n")

    async def collect():
        config = {"evil": {"type": "stdio", "command": "/usr/bin/python3", "args": [str(tmp_path / "server/evil.py")]}}
        return [m async for m in run_agent(prompt="p", mcp_config=config)]
    with pytest.raises(AgentError, match="'evil'"):
        asyncio.run(asyncio.wait_for(collect(), 120))


LISTING = """
import json, sys
kind, page = sys.argv[1], 0
def tools():
    global page
    page += 1
    if kind == "endless":
        return {"tools": [], "nextCursor": str(page)}
    names = ["same", "same", "files.read", "files_read", "a b\\n\\x1b[2J", "x" * 500, "python"]
    return {"tools": [{"name": n, "description": "d" * 1000000, "inputSchema": {"type": "object"}} for n in names]}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
    elif message["method"] == "tools/list":
        answer["result"] = tools()
    elif message["method"] == "tools/call":
        answer["result"] = {"content": [{"type": "text", "text": "called " + repr(message["params"]["name"])}]}
    else:
        answer["error"] = {"code": -32601, "message": "no"}
    print(json.dumps(answer), flush=True)
"""


def listed_by(tmp_path, kind):
    (tmp_path / "server").mkdir()
    (tmp_path / "server/evil.py").write_text(LISTING)
    return {"evil": {"type": "stdio", "command": "/usr/bin/python3", "args": [str(tmp_path / "server/evil.py"), kind]}}


def test_tools_of_any_name_are_told_to_the_model_as_it_takes_them(model, tmp_path):
    script = model([[use("t1", "mcp__evil__files_read_2"), use("t2", "mcp__evil__same_2")], [text("done")]])

    async def collect():
        return [m async for m in run_agent(prompt="p", mcp_config=listed_by(tmp_path, "names"))]
    called = asyncio.run(collect())[2].content
    assert [c.content[0]["text"] for c in called] == ["called 'files_read'", "called 'same'"]
    tools = script.requests[0]["tools"]
    assert len({t["name"] for t in tools}) == 7 and all(re.fullmatch(r"mcp__evil__[a-zA-Z0-9_-]{1,117}", t["name"]) for t in tools)
    assert all(len(t["description"]) < 20000 for t in tools)


def test_a_list_of_tools_that_never_ends_is_given_up(model, tmp_path, monkeypatch):
    from carrel.harness import mcp
    model()
    monkeypatch.setattr(mcp, "_START", 2.0)

    async def collect():
        return [m async for m in run_agent(prompt="p", mcp_config=listed_by(tmp_path, "endless"))]
    with pytest.raises(AgentError, match="'evil' does not say what tools it has"):
        asyncio.run(asyncio.wait_for(collect(), 60))


def test_two_servers_whose_tools_are_called_the_same_are_one_clear_error():
    from carrel.harness.tools import Tool, Toolset
    with pytest.raises(AgentError, match="mcp__a__b__c"):
        Toolset([Tool("mcp__a__b__c", "", {}, None)] * 2, timeout=1, most=1)


def test_a_conversation_at_the_terminal(model, monkeypatch, capsys):
    script = model([[text("first answer")], [text("second answer")]])
    monkeypatch.setattr(sys, "stdin", io.StringIO("and then?\n\nexit\n"))
    monkeypatch.setattr("builtins.input", lambda prompt: sys.stdin.readline().rstrip("\n"))
    asyncio.run(run_agent_interactive(prompt="p", mcp_config={}, user_message="hello"))
    assert re.search("first answer.*second answer", capsys.readouterr().out, re.S)
    assert [m["content"][0]["text"] for m in script.requests[1]["messages"]] == ["hello", "first answer", "and then?"]


CONVERSATION = """
import asyncio, sys
from carrel.harness import run_agent_interactive
from carrel.execution import create_local_session
with create_local_session(workspace_dir=sys.argv[2]) as session:
    asyncio.run(run_agent_interactive("p", {}, provider="replay", kwargs={"transcript": sys.argv[1]}))
print("the program goes on")
"""


@pytest.mark.parametrize("key", [b"\x1b", b"\x03"], ids=["ESC", "Ctrl-C"])
def test_a_key_ends_the_answer_and_not_the_conversation(tmp_path, key):
    import pty
    calls = [[use("c1", "python", code="open('began', 'w').close()\nimport time; time.sleep(1000)")], [text("another answer")]]
    (tmp_path / "t").write_text("".join(json.dumps({"type": "assistant", "message": {"content": c}}) + "\n" for c in calls))
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["PYTHONPATH"] = str(SDK)
        os.execv(sys.executable, [sys.executable, "-B", "-c", CONVERSATION, str(tmp_path / "t"), str(tmp_path / "w")])
    seen = b""

    def until(words):
        nonlocal seen
        while words not in seen:
            assert select.select([terminal], [], [], 60)[0], (words, seen)
            seen += os.read(terminal, 4096)     # OSError if the program has ended
        seen = seen.partition(words)[2]
    with os.fdopen(terminal, "wb", buffering=0) as keyboard:
        until(b"> ")
        keyboard.write(b"first\n")
        wait_for((tmp_path / "w/began").exists, "the cell has begun")
        keyboard.write(key)
        until(b"cancelled")
        until(b"> ")
        keyboard.write(b"second\n")
        until(b"another answer")
        until(b"> ")
        keyboard.write(b"\x03")
        until(b"the program goes on")
        assert os.waitpid(pid, 0)[1] == 0


def test_a_dead_session_is_not_found_by_the_next_agent(model, tmp_path):
    script = model([[text("done")]])
    create_local_session(workspace_dir=tmp_path / "w").terminate()

    async def collect():
        return [m async for m in run_agent(prompt="p", mcp_config={})]
    assert asyncio.run(collect())[0].data["session"] is None and "tools" not in script.requests[0]


def test_a_long_line_of_agents_leaves_no_box(model, tmp_path):
    from carrel.environment.server import connect, scoped_server
    before = {b.id for b in connect(scoped_server()).list()}
    for number in range(3):
        with create_local_session(workspace_dir=tmp_path / f"w{number}"):
            pass
    assert {b.id for b in connect(scoped_server()).list()} == before
