"""The processors of a busy machine, measured: boxes get them in the ratio of their requests."""
import os
import time

from support import IS_LONG
from support.waiting import wait_for
from traces import SMALL, Server

BUSY = "for i in 1 2; do (while :; do :; done) & done; wait"


def test_two_busy_boxes_share_the_processors_as_they_requested():
    """Measured: 3 to 1, with room for a machine that does other things, too."""
    seconds = 10 if IS_LONG else 4
    server = Server("--set", "pool.size=0")
    all_cpus = os.cpu_count()
    try:
        make = lambda part: "/v1/boxes/" + server.admin.post("/v1/boxes", {"requests": {"cpus": part * all_cpus}, "limits": {**SMALL, "cpus": all_cpus}}).json["id"]
        used = lambda box: server.admin.get(box + "/usage").json["cpu_ms"]
        boxes = [make(0.75), make(0.25)]
        for box in boxes:
            shell = f"for i in $(seq {all_cpus}); do (while :; do :; done) & done; wait"
            assert server.admin.post(box + "/exec", {"shell": shell, "background": True}).status == 202
        wait_for(lambda: all(used(box) > 50 for box in boxes))
        before, end = [used(box) for box in boxes], time.monotonic() + seconds
        wait_for(lambda: time.monotonic() > end)
        large, small = [used(box) - was for box, was in zip(boxes, before)]
        assert 2 < large / small < 4.5, (large, small)
        # Boxes without a request take little of it.
        others = ["/v1/boxes/" + server.admin.post("/v1/boxes", {"limits": {**SMALL, "cpus": all_cpus}}).json["id"] for _ in range(2)]
        for box in others:
            assert server.admin.post(box + "/exec", {"shell": BUSY, "background": True}).status == 202
        wait_for(lambda: all(used(box) > 50 for box in others))
        before, end = [used(box) for box in [*boxes, *others]], time.monotonic() + seconds
        wait_for(lambda: time.monotonic() > end)
        large, small, *rest = [used(box) - was for box, was in zip([*boxes, *others], before)]
        assert large > 3 * sum(rest), (large, small, rest)
    finally:
        server.stop()
