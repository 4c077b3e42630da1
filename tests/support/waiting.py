"""Waiting with one meaning: until it holds, and if it never does the test has failed."""
import os
import time

SLOW = float(os.environ.get("CARREL_TEST_SLOW", "1"))       # how much slower this machine is
# For what must come. Nothing waits that long unless it fails.
DEADLINE_S = 120 * SLOW
SETTLE_S = 60 * SLOW


def wait_for(what, why="", deadline_s=DEADLINE_S, every_s=0.02):
    """Calls until the result is true, and returns it; at first often, then every so many seconds. `why` is the failure's message: words, or a function that
    computes them then."""
    end, pause = time.monotonic() + deadline_s, 0.001
    while True:
        late = time.monotonic() > end
        answer = what()
        if answer:
            return answer
        if late:
            raise AssertionError(f"waited in vain for {deadline_s} s: {why() if callable(why) else why or 'it is still ' + repr(answer)}")
        time.sleep(min(pause, every_s))
        pause *= 2


def stays_false(what, seconds):
    """Whether it was false all that time. For events that must not come, where no other event proves that they never will."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return False
        time.sleep(0.02)
    return True
