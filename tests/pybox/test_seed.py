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


def cluster_example(directory):
    """Its two placeholders filled in, as the page asks: a file of variables, and a mapping of them."""
    code, expected = example("KubePyBoxManager")
    file = directory / "kernel.env"
    file.write_text("KERNEL_NAMESPACE=default\n")
    assert code.count('"YOUR_ENV_FILE_PATH"') == code.count('"YOUR_KERNEL_ENV_DICT"') == 1
    return code.replace('"YOUR_ENV_FILE_PATH"', repr(str(file))).replace('"YOUR_KERNEL_ENV_DICT"', "{'KERNEL_USERNAME': 'page'}"), expected


@pytest.mark.skipif("CARREL_CLUSTER" not in os.environ, reason="make cluster-proof runs it on a cluster")
def test_the_cluster_example_prints_what_the_page_says(tmp_path):
    code, expected = cluster_example(tmp_path)
    done = run(code)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


def test_the_cluster_example_without_a_cluster_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    code, _ = cluster_example(tmp_path)
    done = run(code)
    assert done.returncode == 1 and "carrel.errors.Unavailable: there is no cluster to talk to" in done.stderr
