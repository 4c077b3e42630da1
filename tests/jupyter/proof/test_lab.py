"""JupyterLab in a browser, with this server as its gateway: a notebook is opened, cells are run, a plot is seen, a cell is interrupted, the kernel
is restarted. The picture of the end is kept in $CARREL_BUILD/jupyterlab.png."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import urllib.request

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from support import BUILD
from support.ports import free_port
from support.waiting import wait_for

CELLS = ["print('hello from', 'the box'); x = 7", "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9, 16]); plt.title('a plot in a box');",
         "print('spinning', flush=True)\nwhile True: pass", "print('x is', x)"]


@pytest.fixture
def lab(server, alice, tmp_path):
    notebook = {"cells": [{"cell_type": "code", "execution_count": None, "id": f"c{i}", "metadata": {}, "outputs": [], "source": code}
                          for i, code in enumerate(CELLS)],
                "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.ipynb").write_text(json.dumps(notebook))
    port = free_port()
    env = {**os.environ, "HOME": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path / "c"), "JUPYTER_RUNTIME_DIR": str(tmp_path / "r"),
           "JUPYTER_DATA_DIR": str(tmp_path / "d"), "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / "s"), "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path / "w")}
    process = subprocess.Popen(
        [BUILD / "venv-lab" / "bin" / "jupyter-lab", "--allow-root", "--no-browser", "--ServerApp.ip=127.0.0.1", f"--port={port}", "--IdentityProvider.token=",
         f"--ServerApp.root_dir={tmp_path / 'work'}", f"--gateway-url=http://127.0.0.1:{server.port}", f"--GatewayClient.auth_token={alice.token}"],
        cwd=tmp_path, env=env, stdout=open(tmp_path / "log", "wb"), stderr=subprocess.STDOUT)

    def is_up():
        assert process.poll() is None, (tmp_path / "log").read_text()
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/api/kernelspecs", timeout=10).status == 200
        except OSError:
            return False

    try:
        wait_for(is_up, lambda: (tmp_path / "log").read_text())
        yield f"http://127.0.0.1:{port}/lab/tree/a.ipynb"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        finally:
            process.kill()


@pytest.fixture
def browser(tmp_path):
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1400,1100", f"--user-data-dir={tmp_path / 'chromium'}"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


def test_a_notebook_in_jupyterlab(lab, browser, alice):
    def until(what, seconds=90):
        def quietly(_):
            try:
                return what()
            except WebDriverException:
                return None
        try:
            return WebDriverWait(browser, seconds).until(quietly)
        except WebDriverException:
            browser.save_screenshot(str(BUILD / "jupyterlab-failed.png"))
            raise AssertionError(texts(), [k for k in alice.get("/api/kernels").json]) from None

    def cells():
        return browser.find_elements(By.CSS_SELECTOR, ".jp-Notebook .jp-CodeCell")

    def texts():
        return [c.text for c in browser.find_elements(By.CSS_SELECTOR, ".jp-Notebook .jp-Cell-outputArea")]

    def run(i):
        until(lambda: cells()[i].find_element(By.CSS_SELECTOR, ".cm-content").click() or True)
        browser.switch_to.active_element.send_keys(Keys.CONTROL, Keys.ENTER)

    def command(keys):
        """In command mode."""
        browser.switch_to.active_element.send_keys(Keys.ESCAPE)
        browser.switch_to.active_element.send_keys(*keys)

    browser.get(lab)
    until(lambda: len(cells()) == len(CELLS), 120)
    until(lambda: len(alice.get("/api/kernels").json) == 1 and alice.get("/api/kernels").json[0]["execution_state"] == "idle")
    kernel = alice.get("/api/kernels").json[0]["id"]
    until(lambda: browser.find_element(By.CSS_SELECTOR, ".jp-Notebook-ExecutionIndicator[data-status='idle']"))
    run(0)
    until(lambda: "hello from the box" in texts()[0])
    run(1)
    until(lambda: cells()[1].find_element(By.CSS_SELECTOR, ".jp-OutputArea img").size["width"] > 100)
    browser.save_screenshot(str(BUILD / "jupyterlab.png"))
    run(2)
    until(lambda: "spinning" in texts()[2])
    assert alice.get(f"/api/kernels/{kernel}").json["execution_state"] == "busy"
    command("ii")
    until(lambda: "KeyboardInterrupt" in texts()[2])
    run(3)
    until(lambda: "x is 7" in texts()[3])
    command("00")
    until(lambda: browser.find_element(By.CSS_SELECTOR, ".jp-Dialog .jp-mod-warn, .jp-Dialog .jp-mod-accept").click() or True)
    until(lambda: not browser.find_elements(By.CSS_SELECTOR, ".jp-Dialog"))
    until(lambda: alice.get(f"/api/kernels/{kernel}").json["execution_state"] == "idle")
    until(lambda: browser.find_element(By.CSS_SELECTOR, ".jp-Notebook-ExecutionIndicator[data-status='idle']"))
    run(3)
    until(lambda: "NameError" in texts()[3])
    assert [k["id"] for k in alice.get("/api/kernels").json] == [kernel]
    browser.execute_script("document.querySelector('.jp-WindowedPanel-outer').scrollTop = 0")
    browser.save_screenshot(str(BUILD / "jupyterlab-end.png"))
    assert pathlib.Path(BUILD / "jupyterlab.png").stat().st_size > 10000
