"""The recipe of docs/workspaces.md with what it is for: TensorFlow 2.10 beside 2.15, for two persons of one server, each in a browser, both busy.
The pictures are kept in $CARREL_BUILD/workspace-NAME.png."""
import os
import pathlib
import shutil
import tempfile

import pytest
import websocket
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from support import BUILD, REPOSITORY
from support.server import Server
from support.waiting import wait_for
from workspaces import Person

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the server of these tests runs as root")
LISTS = REPOSITORY / "examples/workspaces"
# A model that learns: with two processors free it uses both.
TRAIN = """import numpy as np, tensorflow as tf
x = np.random.rand(4096, 64).astype("float32"); y = x.sum(axis=1) > 32
model = tf.keras.Sequential([tf.keras.layers.Dense(1024, activation="relu"), tf.keras.layers.Dense(1024, activation="relu"), tf.keras.layers.Dense(1, activation="sigmoid")])
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
"""
FOREVER = "import threading\nthreading.Thread(target=lambda: [model.fit(x, y, batch_size=512, verbose=0) for _ in range(10**6)], daemon=True).start()"
# Threads that always want a processor: TensorFlow's own rest between two steps.
BUSY = "import multiprocessing\n[multiprocessing.Process(target=exec, args=('while True: pass',), daemon=True).start() for _ in range(2)]"


def interpreter(version):
    found = sorted((pathlib.Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python{version}")) or [pathlib.Path(p) for p in [shutil.which(f"python{version}")] if p]
    if not found:
        pytest.skip(f"needs Python {version}")
    return found[-1]


@pytest.fixture(scope="module")
def layers():
    folder = tempfile.mkdtemp(prefix="carrel-workspaces-")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def server(layers, people):
    pythons = [word for v in ("3.10", "3.11") for word in ("--set", f"pythons.{v}={interpreter(v)}")]
    return people(Server(*pythons, "--set", "pool.size=0", variables={"CARREL_LAYERS": layers}))


@pytest.fixture(scope="module")
def alice(people, server):
    person = people(Person(server, "alice", server.token("alice"), size="2G"))
    person.up("--requirements", LISTS / "alice.txt", "--python", "3.10", "--request-cpus", "1.5", "--cpus", "2", "--request-memory", "2G", "--memory", "4G")
    person.open()
    return person


@pytest.fixture(scope="module")
def bob(people, server):
    person = people(Person(server, "bob", server.token("bob"), size="2G"))
    person.up("--requirements", LISTS / "bob.txt", "--python", "3.11", "--request-cpus", "0.5", "--cpus", "2", "--request-memory", "2G", "--memory", "4G",
              "--net", "public")
    person.open()
    return person


class Page:
    """A browser of its own with a new notebook in JupyterLab, made as a person does it."""

    def __init__(self, person, profile):
        self.person = person
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1400,1000", f"--user-data-dir={profile}"):
            options.add_argument(argument)
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))

    def until(self, what, seconds=120):
        def quietly(_):
            try:
                return what()
            except (WebDriverException, IndexError):
                return None
        try:
            return WebDriverWait(self.driver, seconds).until(quietly)
        except WebDriverException:
            self.picture("failed")
            raise AssertionError(self.outputs(), self.person.ask("GET", "/api/kernels")) from None

    def find(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def outputs(self):
        return [area.text for area in self.find(".jp-Notebook .jp-Cell-outputArea")]

    def picture(self, word):
        self.driver.save_screenshot(str(BUILD / f"workspace-{word}.png"))

    def new_notebook(self):
        self.driver.get(self.person.address)
        self.until(lambda: self.find(".jp-LauncherCard[data-category='Notebook']")[0].click() or True)
        self.until(lambda: self.find(".jp-Notebook .jp-CodeCell .cm-content"))
        self.until(lambda: self.find(".jp-Notebook-ExecutionIndicator[data-status='idle']"))

    def run(self, code):
        """In the last cell, which is the active one; the cell below it becomes active."""
        before = len(self.find(".jp-Notebook .jp-CodeCell"))
        self.until(lambda: self.find(".jp-Notebook .jp-CodeCell .cm-content")[-1].click() or True)
        self.driver.switch_to.active_element.send_keys(code)
        self.driver.switch_to.active_element.send_keys(Keys.SHIFT, Keys.ENTER)
        self.until(lambda: len(self.find(".jp-Notebook .jp-CodeCell")) > before)

    def save(self):
        """The first time, JupyterLab asks for a name."""
        self.driver.switch_to.active_element.send_keys(Keys.CONTROL, "s")
        self.until(lambda: self.find(".jp-Dialog .jp-mod-accept")[0].click() or True)
        self.until(lambda: not self.find(".jp-Dialog"))


@pytest.fixture
def pages(tmp_path, alice, bob):
    made = [Page(person, tmp_path / person.name) for person in (alice, bob)]
    yield made
    for page in made:
        page.driver.quit()


def test_two_versions_in_two_browsers_at_once(pages):
    for page in pages:
        page.new_notebook()
    for page in pages:
        page.run("import tensorflow, numpy, sys; tensorflow.__version__, numpy.__version__, sys.version_info[:2]")
    for page, version, python in zip(pages, ("2.10.", "2.15."), ("(3, 10)", "(3, 11)")):
        shown = page.until(lambda: page.outputs() and "sys.version" not in page.outputs()[0] and python in page.outputs()[0] and page.outputs()[0])
        assert f"'{version}" in shown and "'1." in shown, shown
        page.run("!pip list 2>/dev/null | grep -i tensorflow-cpu")
        page.until(lambda: any("tensorflow-cpu" in text and version in text for text in page.outputs()[1:]))
        page.save()
        page.until(lambda: version in str(page.person.ask("GET", "/api/contents/Untitled.ipynb?content=1")[1]))
        page.picture(page.person.name)


def test_notebooks_stay_when_the_box_is_made_again(alice):
    assert alice.ask("GET", "/api/contents/Untitled.ipynb")[0] == 200, "the test before made it"
    alice.down()
    alice.up("--requirements", LISTS / "alice.txt", "--python", "3.10", "--request-cpus", "1.5", "--cpus", "2", "--request-memory", "2G", "--memory", "4G")
    alice.open()
    assert "2.10." in str(alice.ask("GET", "/api/contents/Untitled.ipynb?content=1")[1])


def test_a_model_learns_and_is_kept(alice, bob):
    for person in (alice, bob):
        kernel = person.kernel()
        cell = person.execute(TRAIN + "model.fit(x, y, epochs=1, verbose=0); model.save('model.h5')\nimport os; os.path.getsize('model.h5') > 10**6", kernel)
        assert cell.error is None and cell.text.rstrip().endswith("True"), cell
        assert person.ask("GET", "/api/contents/model.h5?content=0")[1]["size"] > 10**6


def test_pip_in_a_cell_with_network_and_without(alice, bob):
    """With: what is installed is in the home, so it stays like a notebook. Without: it fails at once."""
    cell = bob.execute("%pip install -q tomlkit\nimport tomlkit; tomlkit.__file__", bob.kernel())
    assert cell.error is None and "/home/box/.local/lib/python3.11/site-packages/tomlkit" in cell.text, cell
    assert "No matching distribution found for tomlkit" in alice.execute("%pip install -q tomlkit").text
    assert "or let Python packages be installed for the box: --packages NAME" in alice.run(BUILD / "carrel", "exec", "alice", "--", "pip", "install", "-q", "tomlkit").stderr


def test_memory_beyond_the_limit_ends_one_workspace_which_open_starts_again(alice, bob):
    kernel, other, words = alice.kernel(), bob.kernel(), alice.token
    assert bob.execute("x = 1; 'ready'", other).text == "'ready'"
    with pytest.raises((websocket.WebSocketException, OSError)):
        alice.execute("x = bytearray(6 << 30)\nfor i in range(0, len(x), 4096): x[i] = 1", kernel)

    def is_back():
        try:
            return alice.ask("GET", "/api/status", token=words)[0] == 200
        except OSError:
            return False
    wait_for(is_back, every_s=0.5)
    assert "2.10." in str(alice.ask("GET", "/api/contents/Untitled.ipynb?content=1")[1])
    assert alice.execute("6 * 7").text == "42" and bob.execute("x", other).text == "1"


def test_both_busy_share_the_processors_as_they_requested(alice, bob):
    """1.5 to 0.5, by the counters of their cgroups. The boxes weigh more than the host's own processes, so the load ends with the measurement."""
    def used():
        return [person.processor_ms() for person in (alice, bob)]

    idle = used()
    kernels = [(person, person.kernel()) for person in (alice, bob)]
    try:
        for person, kernel in kernels:
            assert person.execute(TRAIN + FOREVER + "\n" + BUSY, kernel).error is None
        wait_for(lambda: all(now - then > 8_000 for now, then in zip(used(), idle)), deadline_s=180, every_s=0.5)
        start = used()
        wait_for(lambda: sum(used()) - sum(start) > 20_000, deadline_s=180, every_s=0.5)
        a, b = (now - then for now, then in zip(used(), start))
    finally:
        for person, _ in kernels:
            person.down()
    print(f"alice {a:.0f} ms, bob {b:.0f} ms: {a / b:.2f} to 1")
    assert 2 < a / b < 4.5, (a, b)
