"""Many at once."""
import concurrent.futures
import json
import random
import time

from runner import DEADLINE
from support.waiting import SLOW


def test_a_hundred_at_once(caller):
    """Each has its own output, its own files, its own ids."""
    script = "echo $N >/tmp/mine; sleep 0.1; cat /tmp/mine; exit $((N % 7))"
    started = [caller.start("run", "--json", "--env", f"N={i}", "--", "sh", "-c", script) for i in range(100)]
    for i, process in enumerate(started):
        stdout, stderr = process.communicate(timeout=DEADLINE)
        assert process.returncode == i % 7, stderr
        assert json.loads(stdout)["stdout"] == f"{i}\n"


def test_a_storm_of_short_ones(caller):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda i: caller.run(["echo", str(i)]), range(200)))
    assert [result.text for result in results] == [f"{i}\n" for i in range(200)]


def test_a_crowd_that_is_killed_leaves_nothing(caller):
    started = [caller.start("run", "--", "sh", "-c", "sleep 1000 & sleep 1000") for _ in range(40)]
    time.sleep(random.uniform(0, 0.05) * SLOW)
    for process in started:
        process.kill()
    for process in started:
        assert process.wait(DEADLINE) == -9
