"""What the modules for agent frameworks rest on: both streams in order, long inputs, relative directories, Python's own
errors of files, the same for asyncio, and boxes that end with their process."""
import asyncio
import io
import os
import signal
import subprocess
import sys
import tarfile

import pytest
from support import SDK
from support.waiting import wait_for


def test_both_streams_come_in_the_order_in_which_they_were_written(box):
    said = "".join(f"out {n}\nerr {n}\n" for n in range(50))
    line = "i=0; while [ $i -lt 50 ]; do echo out $i; echo err $i >&2; i=$((i + 1)); done"
    for words in (line, ["/bin/sh", "-c", line]):
        result = box.exec(words, merge_stderr=True)
        assert result.stdout == said and result.stderr == "" and result.command.startswith("i=0")


def test_an_error_of_the_shell_itself_is_merged_too(box):
    result = box.exec("echo first; no-such-program", merge_stderr=True)
    assert result.exit_code == 127 and result.stdout.startswith("first\n") and "not found" in result.stdout


def test_a_long_text_is_input_too(box):
    assert box.exec(["wc", "-c"], stdin="é" * (12 << 20)).stdout.strip() == str(24 << 20)


def test_a_relative_directory_is_below_the_home(box):
    box.files.mkdir("here")
    assert box.exec(["pwd"], cwd="here").stdout == "/home/box/here\n"


@pytest.mark.parametrize("act, kind, number",
                         [(lambda files: files.read("missing"), FileNotFoundError, 2),
                          (lambda files: files.read("/etc"), IsADirectoryError, 21),
                          (lambda files: files.write("/tmp", b""), IsADirectoryError, 21),
                          (lambda files: files.write("/etc/x", b""), PermissionError, 13),
                          (lambda files: files.read("locked"), PermissionError, 13),
                          (lambda files: files.list("/etc/hostname"), NotADirectoryError, 20),
                          (lambda files: files.write("/etc/hostname/x", b""), NotADirectoryError, 20)])
def test_errors_of_files_are_pythons_own_too(box, act, kind, number):
    from carrel import CarrelError
    box.exec("echo >locked; chmod 0 locked")
    with pytest.raises(kind) as failure:
        act(box.files)
    assert isinstance(failure.value,
                      CarrelError) and failure.value.errno == number and failure.value.status in (403, 404, 409)


def test_an_archive_goes_out_and_in(box):
    box.files.write("tree/deep/a", b"a")
    content = box.files.get_archive("tree")
    assert "deep/a" in [name.removeprefix("./") for name in tarfile.open(fileobj=io.BytesIO(content)).getnames()]
    box.files.mkdir("copy")
    box.files.put_archive("copy", content)
    assert box.files.read("copy/deep/a") == b"a"


def test_the_same_for_asyncio(box):
    async def scene():
        same = box.aio
        assert same.id == box.id
        await same.files.write("d/a", b"1")
        await same.files.write("d/a", b"2", append=True)
        assert await same.files.read("d/a") == b"12" and (await same.files.stat("d/a")).size == 2
        assert [entry.name for entry in await same.files.list("d")] == ["a"]
        await same.files.move("d/a", "d/b")
        assert await same.files.exists("d/b") and not await same.files.exists("d/a")
        await same.files.remove("d", recursive=True)
        for act, kind in ((same.files.read("missing"), FileNotFoundError), (same.files.read("/etc"), IsADirectoryError),
                          (same.files.list("/etc/hostname"), NotADirectoryError)):
            with pytest.raises(kind):
                await act
        await same.files.mkdir("other")
        await same.files.put_archive("other", await same.files.get_archive("/etc/ssl"))
        assert (await same.exec(["cat"], stdin=b"\xff\0")).stdout_bytes == b"\xff\0"
        assert (await same.exec(["wc", "-c"], stdin="x" * (12 << 20))).stdout.strip() == str(12 << 20)
        command = await same.spawn("read line; echo got $line; sleep 4711", stdin=True)
        await command.write(b"it\n")
        async for event in command.output():
            if event["type"] == "stdout":
                assert event["data"] == "got it\n"
                break
        await command.signal("KILL")
        assert (await command.wait()).signal == signal.SIGKILL
    asyncio.run(asyncio.wait_for(scene(), 120))


@pytest.mark.parametrize("data", [None, b"x", b"x" * (30 << 20)])
def test_cancelling_ends_the_command(box, data):
    async def scene():
        task = asyncio.ensure_future(box.aio.exec(["sleep", "4711"], stdin=data))
        while not (await box.aio.exec("ps ax | grep '[s]leep 4711'")).ok:
            assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    asyncio.run(asyncio.wait_for(scene(), 120))
    wait_for(lambda: not box.exec("ps ax | grep '[s]leep 4711'").ok)


def test_cancelling_the_making_of_a_box_leaves_none(carrel):
    from carrel import AsyncCarrel

    async def scene():
        for wait in range(20):
            task = asyncio.ensure_future(AsyncCarrel(carrel.url).create())
            await asyncio.sleep(wait / 2000)
            task.cancel()
            if await asyncio.gather(task, return_exceptions=True) and not task.cancelled():
                await task.result().delete()
    asyncio.run(scene())
    wait_for(lambda: not carrel.list(), lambda: carrel.list())


LEASHED = """
import sys
from carrel import Carrel
box = Carrel(sys.argv[1]).create(**eval(sys.argv[2])).leash(2)
print(box.id, flush=True)
sys.stdin.read()
"""


def test_a_leashed_box_lives_with_its_process_and_ends_with_it_even_by_kill_9(carrel, shared):
    child = subprocess.Popen([sys.executable, "-B", "-c", LEASHED, shared.url, "{}"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(SDK)})
    try:
        name = child.stdout.readline().strip()
        first = carrel.get(name).raw["expires_at"]
        wait_for(lambda: carrel.get(name).raw["expires_at"] > first, "the lease is prolonged")
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
    wait_for(lambda: name not in [box.id for box in carrel.list()])


@pytest.mark.cgroups
def test_a_leashed_box_outlives_its_memory_limit(carrel):
    with carrel.create(memory="64M").leash() as box:
        assert box.exec(["python3", "-c", "x = bytearray(1 << 30); x[::4096] = b'x' * len(x[::4096])"]).outcome == "oom"
        assert box.exec("echo still here").stdout == "still here\n"


def test_a_leash_does_not_make_a_life_longer(carrel):
    with carrel.create(ttl=60) as box:
        ends = box.raw["expires_at"]
        assert box.leash(120).refresh().raw["expires_at"] == ends


def test_a_box_that_is_deleted_is_prolonged_no_more(carrel):
    from carrel import leases
    box = carrel.create().leash()
    assert box.id in leases._held
    box.delete()
    assert box.id not in leases._held
