"""deepagents: langchain-tests' own suite, then what it does not ask."""
import asyncio
import importlib.metadata

import pytest
from deepagents import create_deep_agent
from deepagents.backends.sandbox import BaseSandbox
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_tests.integration_tests import SandboxIntegrationTests
from lifetimes import check_killed
from support.waiting import wait_for
from walls import HOLDS_MEMORY, LIMITS, check_walls

from carrel import Box
from carrel.integrations.deepagents import CarrelSandbox

# langchain-tests 1.1 asks for what deepagents had before 0.7. Its base class gives absolute paths since, because the
# rules of its permissions know no others, and overwrites. We go with the framework; with 0.6 nothing is refused.
IS_NEW = tuple(map(int, importlib.metadata.version("deepagents").split(".")[:2])) >= (0, 7)
REFUSED = {"test_write_existing_file_fails": "write() overwrites since deepagents 0.7"}
for kind in ("", "_basic_pattern", "_with_directories", "_hidden_files_explicitly", "_with_character_class",
             "_with_question_mark"):
    REFUSED[f"test_glob{kind}"] = "glob() gives absolute paths since deepagents 0.7"


class TestSuite(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self):
        with CarrelSandbox() as sandbox:
            yield sandbox

    @pytest.fixture(autouse=True)
    def refuse(self, request):
        if IS_NEW and request.node.name in REFUSED:
            request.node.add_marker(pytest.mark.xfail(reason=REFUSED[request.node.name], strict=True))


class Plain(BaseSandbox):
    """Of the framework's base class as much as there is; ours are only the methods that it leaves to others."""

    def __init__(self, sandbox):
        self.execute, self.upload_files = sandbox.execute, sandbox.upload_files
        self.download_files, self._id = sandbox.download_files, sandbox.id

    id = property(lambda self: self._id)
    execute = upload_files = download_files = None


@pytest.mark.skipif(not IS_NEW, reason="of deepagents 0.7")
def test_what_we_refuse_the_frameworks_own_base_class_refuses(sandbox):
    for backend in (Plain(sandbox), sandbox):
        assert backend.write("/tmp/d/x.py", "1").error is None and backend.write("/tmp/d/x.py", "2").error is None
        assert [match["path"] for match in backend.glob("*.py", path="/tmp/d").matches] == ["/tmp/d/x.py"]


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools, **options):
        return self


@pytest.fixture
def sandbox():
    with CarrelSandbox(**LIMITS) as sandbox:
        yield sandbox


@pytest.mark.skipif(not HOLDS_MEMORY or not IS_NEW,
                    reason="only root's boxes have a root that can be written; an older deepagents does not offload")
def test_what_is_too_long_for_a_message_is_left_in_the_box(sandbox):
    command = {"name": "execute", "args": {"command": "seq 200000"}, "id": "long"}
    reading = {
        "name": "read_file", "args": {"file_path": "/large_tool_results/long", "offset": 150000, "limit": 1},
        "id": "part"
    }
    messages = create_deep_agent(
        model=Scripted(
            messages=iter([AIMessage("", tool_calls=[command]),
                           AIMessage("", tool_calls=[reading]),
                           AIMessage("done")])), backend=sandbox).invoke({"messages": [("user", "go")]})["messages"]
    first, second = [m.text for m in messages if m.type == "tool"]
    assert "/large_tool_results/long" in first and len(first) < 20000 and "150001" in second


def test_the_walls_hold_and_the_agent_hears_why(sandbox):
    check_walls(lambda line: sandbox.execute(line).output)


def test_both_streams_come_in_the_order_in_which_they_were_written(sandbox):
    assert sandbox.execute("for i in 1 2 3; do echo out $i; echo err $i >&2; done").output == "".join(
        f"out {i}\nerr {i}\n" for i in (1, 2, 3))


def test_a_command_that_never_ends_is_ended_at_its_timeout(sandbox):
    answer = sandbox.execute("sleep 4711", timeout=1)
    assert answer.exit_code == 124 and "timeout" in answer.output


def test_output_of_100_mb_is_cut_and_said_to_be(sandbox):
    answer = sandbox.execute("head -c 100000000 /dev/zero | tr '\\0' x")
    assert answer.truncated and answer.exit_code == 0 and len(answer.output) < 12_000_000
    assert "of output left out" in answer.output


async def test_cancelling_ends_the_command(sandbox):
    task = asyncio.ensure_future(sandbox.aexecute("sleep 4711"))
    await asyncio.get_running_loop().run_in_executor(
        None, lambda: wait_for(lambda: "4711" in sandbox.execute("ps ax | grep '[s]leep'").output))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.get_running_loop().run_in_executor(
        None, lambda: wait_for(lambda: "4711" not in sandbox.execute("ps ax | grep '[s]leep'").output))


def test_the_context_manager_deletes_the_box_and_then_commands_fail_in_words():
    with CarrelSandbox() as sandbox:
        server, name = sandbox.box._server, sandbox.id
    assert name not in [box.id for box in server.list()]
    answer = sandbox.execute("true")
    assert answer.exit_code == 125 and answer.output.startswith("Error: the command did not run")


def test_a_box_of_the_callers_own_is_left_alone():
    with Box(template=None) as box:
        with CarrelSandbox(box=box) as sandbox:
            assert sandbox.execute("echo here").output == "here\n"
        assert box.phase == "running"


def test_an_option_that_a_box_does_not_have_is_named():
    with pytest.raises(TypeError, match="gpu_count"):
        CarrelSandbox(gpu_count=1)


def test_nothing_is_left_after_kill_9():
    check_killed("""
import threading, time
from carrel.integrations.deepagents import CarrelSandbox
sandbox = CarrelSandbox()
threading.Thread(target=sandbox.execute, args=("sleep 4711",), daemon=True).start()
while "4711" not in sandbox.execute("ps ax").output: pass
print("ready", flush=True)
time.sleep(600)
""")


def test_a_hundred_sandboxes_at_once():
    async def one(number):
        def life():
            with CarrelSandbox() as sandbox:
                return sandbox.execute(f"echo {number}").output
        return await asyncio.to_thread(life)

    async def all_of_them():
        return await asyncio.gather(*(one(n) for n in range(100)))

    assert asyncio.run(all_of_them()) == [f"{n}\n" for n in range(100)]
