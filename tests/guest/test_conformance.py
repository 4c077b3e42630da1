"""jupyter_kernel_test, unmodified, against our kernel through a bridge to ZeroMQ: with ipykernel 7 and 6, and forked from a zygote into a box."""

import functools
import json
import os
import sys
import tempfile
import unittest

import jupyter_kernel_test

import ways
from client import PATIENCE

HERE = os.path.dirname(os.path.abspath(__file__))


class OurKernel(jupyter_kernel_test.KernelTests):
    way = "new"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [{"text": "zi", "matches": {"zip"}}]
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n"]
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2"]
    invalid_code_samples = ["import = 7q"]
    code_page_something = "zip?"
    code_generate_error = "raise"
    code_execute_result = [{"code": "1+2+3", "result": "6"}, {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"}]
    code_display_data = [{"code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))", "mime": "text/html"},
                         {"code": "from IPython.display import Math, display; display(Math('\\\\frac{1}{2}'))", "mime": "text/latex"}]
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "range", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"

    @classmethod
    def setUpClass(cls):
        cls.specs = tempfile.TemporaryDirectory()
        name = "ours-" + cls.way
        directory = os.path.join(cls.specs.name, "kernels", name)
        os.makedirs(directory)
        with open(os.path.join(directory, "kernel.json"), "w") as file:
            json.dump({"argv": [sys.executable, "-B", os.path.join(HERE, "bridge.py"), "{connection_file}", cls.way], "display_name": name,
                       "language": "python"}, file)
        os.environ["JUPYTER_PATH"] = cls.specs.name
        cls.kernel_name = name
        super().setUpClass()
        for channel in (cls.kc.shell_channel, cls.kc.iopub_channel):    # the suite's own patience is a tenth of a second
            channel.get_msg = functools.partial(cls.get_patiently, channel.get_msg)

    @staticmethod
    def get_patiently(get, timeout=None):
        return get(timeout=PATIENCE)

    def flush_channels(self):
        """All that came of earlier requests, however late it comes."""
        msg_id = self.kc.kernel_info()
        while self.kc.get_shell_msg()["parent_header"].get("msg_id") != msg_id:
            pass
        while True:
            m = self.kc.get_iopub_msg()
            if m["parent_header"].get("msg_id") == msg_id and m["content"].get("execution_state") == "idle":
                break

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.specs.cleanup()


class TestNew(OurKernel):
    way = "new"


class TestOld(OurKernel):
    way = "old"


class TestBox(OurKernel):
    way = "box"


del OurKernel
