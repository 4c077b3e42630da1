"""What pppybox's own tests assert, of all four managers."""
import os
from uuid import uuid4

import pytest


def kernels_of(manager):
    return getattr(manager, "kernel_manager", None) or getattr(manager, "async_kernel_manager", None)


@pytest.fixture
def box(ways, manager):
    with ways.started(manager) as it:
        yield it


def test_box_lifecycle(ways, manager):
    box = ways.start(manager)
    kernels = kernels_of(manager)
    if kernels is not None:
        assert box.kernel_id in kernels and ways.call(kernels.is_alive(box.kernel_id))
    ways.call(manager.shutdown(box.kernel_id, now=True))
    if kernels is not None:
        assert box.kernel_id not in kernels
    with pytest.raises(RuntimeError):
        ways.run(box, "1")


def test_box_lifecycle_with_a_context_manager(ways, manager):
    kernels = kernels_of(manager)
    with ways.started(manager) as box:
        assert ways.run(box, "1").data == [{"text/plain": "1"}]
        if kernels is not None:
            assert ways.call(kernels.is_alive(box.kernel_id))
    if kernels is not None:
        assert box.kernel_id not in kernels
        with pytest.raises(KeyError):
            ways.call(kernels.is_alive(box.kernel_id))


def test_start_with_an_id(ways, manager):
    kernel_id = str(uuid4())
    with ways.started(manager, kernel_id) as box:
        assert box.kernel_id == kernel_id
        ways.run(box, "x = 41")
        again = ways.start(manager, kernel_id)
        assert again.kernel_id == kernel_id and ways.run(again, "x + 1").data == [{"text/plain": "42"}]


def test_set_cwd(ways, manager):
    if not ways.is_local:
        pytest.skip("a directory of the gateway, not of the caller")
    home = os.path.expanduser("~")
    with ways.started(manager, cwd=home) as box:
        assert ways.run(box, "import os\nprint(os.getcwd())").data == [{"text/plain": home + "\n"}]


def test_code_execute(ways, box):
    assert ways.run(box, "print('test')").data == [{"text/plain": "test\n"}]


def test_variable_reuse(ways, box):
    ways.run(box, "a = 1\nprint(a)")
    assert ways.run(box, "a += 1\nprint(a)").data == [{"text/plain": "2\n"}]


def test_print_multi_line(ways, box):
    assert ways.run(box, "a = 1\nprint(a)\nprint(a)").data == [{"text/plain": "1\n1\n"}]


def test_execute_exception(ways, box):
    out = ways.run(box, "1 / 0")
    assert out.data == [] and out.error.ename == "ZeroDivisionError" and out.error.evalue == "division by zero"
    assert "ZeroDivisionError: division by zero" in str(out.error) and "\x1b" not in str(out.error)


def test_no_output(ways, box):
    out = ways.run(box, "a = 1")
    assert out.data == [] and out.error is None


def test_execute_timeout(ways, box):
    ways.run(box, "kept = 7")
    with pytest.raises(TimeoutError):
        ways.run(box, "import time\ntime.sleep(60)", timeout=1)
    assert ways.run(box, "kept").data == [{"text/plain": "7"}]


def test_partial_execution_failed(ways, box):
    out = ways.run(box, "a = 1\nb = 2\nprint(a)\nprint(c)")
    assert out.data == [{"text/plain": "1\n"}] and out.error.ename == "NameError"
