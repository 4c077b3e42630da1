"""Agent frameworks with boxes, each beside the framework's own unconfined default, in one run. Prints a table; times in
milliseconds.

    make bench-frameworks"""
import asyncio
import statistics
import sys
import time
import warnings

ROUNDS = 200
SAMPLES = 100
LINE = "echo hello"


def ms(began):
    return (time.perf_counter() - began) * 1000


def row(what, ours, theirs):
    print(f"{what:<46} {ours:>9.1f} {theirs:>9.1f} {ours / theirs:>7.2f}", flush=True)


def alternate(ours, theirs):
    """The median of each; one after the other, so that the machine's mood is the same for both."""
    times = ([], [])
    for _ in range(ROUNDS):
        for run, into in zip((ours, theirs), times):
            began = time.perf_counter()
            run()
            into.append(ms(began))
    return [statistics.median(t) for t in times]


def deepagents():
    from deepagents.backends import LocalShellBackend

    from carrel.integrations.deepagents import CarrelSandbox
    env = {"PATH": "/usr/bin:/bin"}
    first = []
    for make in (CarrelSandbox, lambda: LocalShellBackend(virtual_mode=True, env=env)):
        began = time.perf_counter()
        made = make()
        assert "hello" in made.execute(LINE).output
        first.append(ms(began))
        if make is CarrelSandbox:
            made.close()
    row("deepagents: first command, with the server", *first)
    again = []
    for make in (CarrelSandbox, lambda: LocalShellBackend(virtual_mode=True, env=env)):
        times = []
        for _ in range(20):
            began = time.perf_counter()
            made = make()
            made.execute(LINE)
            times.append(ms(began))
            if make is CarrelSandbox:
                made.close()
        again.append(statistics.median(times))
    row("deepagents: a further agent's first command", *again)
    with CarrelSandbox() as ours:
        theirs = LocalShellBackend(virtual_mode=True, env=env)
        row("deepagents: later commands", *alternate(lambda: ours.execute(LINE), lambda: theirs.execute(LINE)))
        row("deepagents: later commands, python3 -c 1",
            *alternate(lambda: ours.execute("python3 -c 1"), lambda: theirs.execute("python3 -c 1")))


async def inspect():
    from inspect_ai.util._sandbox.local import LocalSandboxEnvironment

    from carrel.integrations.inspect_ai import CarrelSandboxEnvironment
    words = ["sh", "-c", LINE]
    kinds = CarrelSandboxEnvironment, LocalSandboxEnvironment

    async def life(kind):
        began = time.perf_counter()
        made = await kind.sample_init("bench", None, {})
        assert (await made["default"].exec(words)).stdout == "hello\n"
        took = ms(began)
        await kind.sample_cleanup("bench", None, made, False)
        return took

    times = ([], [])
    for _ in range(20):
        for kind, into in zip(kinds, times):
            into.append(await life(kind))
    row("inspect: a sample's first command", *(statistics.median(t) for t in times))
    made = [(await kind.sample_init("bench", None, {}))["default"] for kind in kinds]
    times = ([], [])
    for _ in range(ROUNDS):
        for one, into in zip(made, times):
            began = time.perf_counter()
            await one.exec(words)
            into.append(ms(began))
    row("inspect: later commands", *(statistics.median(t) for t in times))
    for kind, one in zip(kinds, made):
        await kind.sample_cleanup("bench", None, {"default": one}, False)
    totals = []
    for kind in kinds:
        began = time.perf_counter()
        await asyncio.gather(*(life(kind) for _ in range(SAMPLES)))
        totals.append(ms(began))
    row(f"inspect: {SAMPLES} samples at once, all of it", *totals)


async def autogen():
    from autogen_core import CancellationToken
    from autogen_core.code_executor import CodeBlock
    from autogen_ext.code_executors.local import LocalCommandLineCodeExecutor

    from carrel.integrations.autogen import CarrelCodeExecutor
    block = [CodeBlock(code=LINE, language="sh")]
    times, first = ([], []), []
    kinds = CarrelCodeExecutor, LocalCommandLineCodeExecutor
    made = []
    for kind in kinds:
        began = time.perf_counter()
        one = kind()
        await one.start()
        await one.execute_code_blocks(block, CancellationToken())
        first.append(ms(began))
        made.append(one)
    row("autogen: first block", *first)
    for _ in range(ROUNDS):
        for one, into in zip(made, times):
            began = time.perf_counter()
            await one.execute_code_blocks(block, CancellationToken())
            into.append(ms(began))
    row("autogen: later blocks", *(statistics.median(t) for t in times))
    for one in made:
        await one.stop()


def main():
    warnings.simplefilter("ignore")
    print(f"{'':<46} {'Carrel':>9} {'default':>9} {'ratio':>7}")
    deepagents()
    asyncio.run(inspect())
    asyncio.run(autogen())
    return 0


if __name__ == "__main__":
    sys.exit(main())
