"""The page's examples, extracted from its text and run with only the import line changed (and, for the gateway, its address, as the page
says). CARREL_SEED_PAGE names the page to read; without it, a short one with the same code."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

PAGE = pathlib.Path(os.environ.get("CARREL_SEED_PAGE") or pathlib.Path(__file__).with_name("page.md"))


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


def example(manager):
    """The code block that uses a manager, and what the page says that it prints."""
    text = PAGE.read_text()
    code = next(block for block in blocks("python") if f"import {manager}," in block)
    rest = text[text.index(code) + len(code):]
    expected = re.search(r"^```(?:text|plaintext)\n(.*?)^```$", rest, re.M | re.S)
    changed = code.replace("from pybox import", "from carrel.pybox import")
    assert changed != code
    return changed, expected and expected[1]


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": ":".join(p for p in sys.path if p)})


def test_the_local_example_prints_what_the_page_says():
    code, expected = example("LocalPyBoxManager")
    done = run(code)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_the_remote_example_prints_what_the_page_says(gateway):
    code, expected = example("RemotePyBoxManager")
    assert code.count("http://example.com") == 1
    done = run(code.replace("http://example.com", gateway.host))
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_the_cluster_example_is_one_clear_error():
    code, _ = example("KubePyBoxManager")
    done = run(code)
    assert done.returncode == 1 and "carrel.errors.Unsupported: kernels in a Kubernetes cluster are not supported yet" in done.stderr
