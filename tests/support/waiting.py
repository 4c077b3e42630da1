"""Waiting with one meaning: until it holds, and if it never does the test has failed."""
import time

DEADLINE_S = 120        # for what must come: a slow machine may take its time


def wait_for(what, why="", deadline_s=DEADLINE_S, every_s=0.02):
    """Asks until the answer is true, and gives it. `why` is told after waiting in vain: words, or a function that finds them then."""
    end = time.monotonic() + deadline_s
    while True:
        late = time.monotonic() > end
        answer = what()
        if answer:
            return answer
        if late:
            raise AssertionError(f"waited in vain for {deadline_s} s: {why() if callable(why) else why or 'it is still ' + repr(answer)}")
        time.sleep(every_s)


def stays_false(what, seconds):
    """Whether it was false all that time. For what must not come, where no event tells that it never will."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return False
        time.sleep(0.02)
    return True
