"""AutoGen: code blocks, errors, files, timeout, cancellation; an agent of its own that executes code."""
import asyncio

import pytest
from autogen_agentchat.agents import CodeExecutorAgent
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor
from lifetimes import check_killed
from walls import LIMITS, check_walls, check_walls_python

from carrel import Carrel
from carrel.integrations.autogen import CarrelCodeExecutor


@pytest.fixture
async def executor():
    async with CarrelCodeExecutor(**LIMITS) as made:
        yield made


async def run(executor, *blocks, token=None):
    return await executor.execute_code_blocks([CodeBlock(code=code, language=language) for language, code in blocks],
                                              token or CancellationToken())


async def test_an_agent_executes_what_it_is_told(executor):
    agent = CodeExecutorAgent("runner", code_executor=executor)
    said = await agent.on_messages([TextMessage(content="```python\nprint(6 * 7)\n```", source="user")],
                                   CancellationToken())
    assert "42" in said.chat_message.content


async def test_blocks_run_in_order_and_share_files(executor):
    result = await run(executor, ("bash", "echo one >a; echo first"), ("python", "print(open('a').read(), end='')"),
                       ("sh", "cat a a"))
    assert (result.exit_code, result.output) == (0, "first\none\none\none\n")


async def test_the_first_error_ends_the_run(executor):
    result = await run(executor, ("sh", "echo before"), ("python", "raise SystemExit(7)"), ("sh", "echo after"))
    assert result.exit_code == 7 and "before" in result.output and "after" not in result.output


async def test_a_named_file_stays_and_none_lies_outside(executor):
    await run(executor, ("python", "# filename: kept.py\nprint(1)"))
    assert b"print(1)" in await executor.box.files.read("kept.py")
    result = await run(executor, ("python", "# filename: ../../etc/x.py\nprint(1)"))
    assert result.exit_code == 1 and "not in the workspace" in result.output


async def test_an_unknown_language_is_named(executor):
    result = await run(executor, ("cobol", "x"))
    assert result.exit_code == 1 and "cobol" in result.output


async def test_the_walls_hold_and_the_agent_hears_why(executor):
    loop = asyncio.get_running_loop()

    def of(language):
        return lambda code: asyncio.run_coroutine_threadsafe(run(executor, (language, code)), loop).result().output

    await loop.run_in_executor(None, lambda: (check_walls(of("sh")), check_walls_python(of("python"))))


async def test_a_block_that_never_ends_is_ended_at_its_timeout():
    async with CarrelCodeExecutor(timeout=1) as executor:
        result = await run(executor, ("sh", "echo begun; sleep 4711"))
        assert result.exit_code == 124 and "begun" in result.output and "Timeout" in result.output


@pytest.mark.slow
async def test_output_of_100_mb_is_cut_and_said_to_be(executor):
    result = await run(executor, ("sh", "head -c 100000000 /dev/zero | tr '\\0' x"))
    assert len(result.output) < 12_000_000 and result.exit_code == 0 and "of output left out" in result.output


async def test_a_cancelled_token_ends_the_command(executor):
    token = CancellationToken()
    task = asyncio.ensure_future(run(executor, ("sh", "sleep 4711"), token=token))

    async def running():
        return (await executor.box.exec("ps ax | grep '[s]leep 4711'")).ok

    while not await running():
        assert not task.done()
    token.cancel()
    assert (await task).exit_code == 125
    async with asyncio.timeout(60):
        while await running():
            pass


async def test_restart_gives_a_new_box_and_stop_leaves_none(executor):
    await run(executor, ("sh", "echo >left"))
    first = executor.box.id
    await executor.restart()
    assert executor.box.id != first and (await run(executor, ("sh", "ls"))).output.startswith("tmp_code_")
    last = executor.box.id
    await executor.stop()
    assert not {first, last} & {box.id for box in Carrel().list()}


async def test_its_configuration_goes_out_and_in():
    config = CarrelCodeExecutor(timeout=5, labels={"a": "b"}).dump_component()
    async with CodeExecutor.load_component(config) as executor:
        assert isinstance(executor, CarrelCodeExecutor) and executor.timeout == 5
        assert executor.box is not None and executor.box.raw["labels"] == {"a": "b"}


async def test_a_box_that_cannot_be_is_an_error_in_words():
    with pytest.raises(RuntimeError, match="No box"):
        await CarrelCodeExecutor(memory="1K").start()


@pytest.mark.slow
def test_nothing_is_left_after_kill_9():
    check_killed("""
import asyncio
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock
from carrel.integrations.autogen import CarrelCodeExecutor
async def main():
    executor = CarrelCodeExecutor()
    await executor.start()
    block = CodeBlock(code="sleep 4711", language="sh")
    sleeping = asyncio.ensure_future(executor.execute_code_blocks([block], CancellationToken()))
    while not (await executor.box.exec("ps ax | grep '[s]leep 4711'")).ok: pass
    print("ready", flush=True)
    await sleeping
asyncio.run(main())
""")
