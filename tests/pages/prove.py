"""Runs what is cut out of a page, as its reader would: as an ordinary user, with no server running.

    prove.py full PAGE        its files in experiments/scoped-sandbox-intro, and the page's own command
    prove.py steps PAGE       its steps, one after the other
    prove.py example          examples/scoped-sandbox-intro, with its recorded agent
    prove.py notebook         a hidden model in a notebook session
    prove.py pybox PAGE FIRST LAST Local|Remote

The model comes from a hub on loopback under the page's name, the agent's answers from a model server on loopback; everything between is real.
Status 77: something is lacking; the last line says what."""
import json
import os
import pathlib
import pwd
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "scoped"), str(HERE.parent / "sdk")]

import cut  # noqa: E402
import table  # noqa: E402
from hub_server import Hub  # noqa: E402
from model_server import ModelServer, Script, text, use  # noqa: E402
from support import BUILD, REPOSITORY  # noqa: E402
from support.server import Server  # noqa: E402
from support.users import ORDINARY, make_user  # noqa: E402

MODEL = "google/gemma-2-9b"


def lacking(words):
    print(words)
    sys.exit(77)


def blocks(name):
    rows = [row for row in [*table.PAGES, *table.OWN] if row[0] == name]
    return {row[4]: cut.renamed(cut.lines(*row[:4])) for row in rows}


def indented(code):
    """A block whose last part is an `async for`, as the body of a function; texts in triple quotes stay as they are."""
    head, _, rest = code.partition("async for")
    return head + "async def run():\n" + "".join(f"    {line}\n" for line in ("async for" + rest).splitlines()) + "asyncio.run(run())\n"


def write_files(name, place, whole):
    got = blocks(name)
    (place / "interface.py").write_text(got["the interface"])
    if "helpers" in got:
        (place / "helpers.py").write_text(got["helpers"])
    if whole:
        (place / "main.py").write_text(got["full example"])
        return got.get("its command") or got["its commands"]
    steps = [got[step] for step in ("configure the scoped sandbox", "serve it", "workspace and session")]
    head = "import asyncio\nfrom pathlib import Path\nexample_dir = Path(__file__).parent\n"
    (place / "main.py").write_text(head + "".join(steps) + indented(got["run the agent"]))
    return "cd experiments/scoped-sandbox-intro && python main.py\n"


def model_folder(name, place):
    """A real one if there is one; for our own page a description of it is enough."""
    real = os.environ.get("CARREL_PAGES_MODEL")
    if real and needs_model(name):
        return pathlib.Path(real)
    folder = place / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"num_hidden_layers": 30, "hidden_size": 576, "vocab_size": 49152}))
    (folder / "model.safetensors").write_bytes(b"\0" * 1000)
    return folder


def agent(request):
    """What the model says: it uses what the task tells it of, looks at what came back, and formats it if there are helpers."""
    results = [b for m in request["messages"] for b in m["content"] if b["type"] == "tool_result"]
    if not results:
        code = ("import json, model_tools\ninfo = model_tools.get_model_info()\nfound = model_tools.get_embedding('hello world')\n"
                "print(json.dumps([info, len(found['embedding']), found['embedding'][:2]]))")
        return [text("I ask for both."), use("t1", "python", code=code)]
    if len(results) == 1 and "helpers" in request["system"]:
        return [use("t2", "python", code="import helpers\nprint(helpers.format_result(info))")]
    if len(results) < 3:        # and it tries what it must not
        return [use(f"t{len(results) + 2}", "python", code="import socket\nsocket.create_connection(('127.0.0.1', 22), 2)")]
    return [text("All is there.")]


class User:
    """A user without rights; the tests' own user if this is root, else the present user."""

    def __init__(self, place):
        self.command, self.name = [], pwd.getpwuid(os.geteuid()).pw_name
        if os.geteuid() == 0:
            make_user()
            self.name = ORDINARY
            self.command = ["/usr/sbin/runuser", "-u", self.name, "--"]
            subprocess.run(["chown", "-R", self.name, place], check=True)

    def environment(self, home, **more):
        path = f"{pathlib.Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin:/sbin"
        return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "CARREL_BIN": str(BUILD / "carrel"), "CARREL_GUEST": str(BUILD / "guest"), "PYTHONPATH": str(REPOSITORY / "sdk/python"), "PYTHONDONTWRITEBYTECODE": "1", **more}


def needs_model(name):
    return "AutoModel" in blocks(name)["the interface"]


def scoped(name, whole):
    if os.path.exists("/run/carrel/carrel.sock"):
        lacking("a machine without a server")
    if cut.page(name) is None:
        lacking(f"the page {name}: CARREL_PAGES names the folder")
    if needs_model(name) and not os.environ.get("CARREL_PAGES_MODEL"):
        lacking("torch and a real model here: make pages-proof")
    place = pathlib.Path(tempfile.mkdtemp(prefix="carrel-pages-", dir="/var/tmp"))
    place.chmod(0o755)
    hub = Hub({MODEL: model_folder(name, place)})
    script = Script(say=agent)
    answers = ModelServer(script)
    try:
        example = place / "home/experiments/scoped-sandbox-intro"
        example.mkdir(parents=True)
        command = write_files(name, example, whole)
        user = User(place / "home")
        environment = user.environment(place / "home", CARREL_GPU="optional", HF_ENDPOINT=hub.url, ANTHROPIC_BASE_URL=answers.url,
                                       ANTHROPIC_API_KEY="key-of-the-harness")
        line = [*user.command, "/usr/bin/env", "-i", *(f"{k}={v}" for k, v in environment.items())]     # runuser has a home of its own
        done = subprocess.run([*line, "bash", "-e", "-c", command], cwd=place / "home", capture_output=True, text=True, timeout=600)
        check(name, done, script, example, whole)
    finally:
        answers.end()
        hub.end()
        shutil.rmtree(place, ignore_errors=True)


def as_user(files, words, **variables):
    """What a program says that an ordinary user runs in a directory with these files."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="carrel-pages-", dir="/var/tmp"))
    place.chmod(0o755)
    try:
        (place / "home").mkdir()
        for file in files:
            shutil.copy(file, place / "home")
        user = User(place / "home")
        environment = user.environment(place / "home", **variables)
        line = [*user.command, "/usr/bin/env", "-i", *(f"{k}={v}" for k, v in environment.items()), "python", *words]
        done = subprocess.run(line, cwd=place / "home", capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr
    finally:
        shutil.rmtree(place, ignore_errors=True)


def real_model():
    return os.environ.get("CARREL_PAGES_MODEL") or lacking("torch and a real model here: make pages-proof")


def example():
    """Our own example, whose model is the very one that the tests have."""
    files = [f for f in (REPOSITORY / "examples/scoped-sandbox-intro").iterdir() if f.is_file()]
    said = as_user(files, ["main.py", "replay"], CARREL_MODELS=f"HuggingFaceTB/SmolLM2-135M-Instruct={real_model()}")
    assert "Paris" in said and "'parameters': 134515008" in said and said.count("[error]") == 2, said


def notebook():
    as_user([HERE / "notebook.py"], ["notebook.py", real_model()])


def adapters():
    as_user([HERE / "adapters.py"], ["adapters.py", real_model()])


def check(name, done, script, example, whole):
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    results = [b for b in last_results(script)]
    info, size, beginning = json.loads(results[0]["content"][0]["text"])
    assert info == {"num_layers": 30, "hidden_size": 576, "vocab_size": 49152} and size == 576 and all(isinstance(x, float) for x in beginning), said
    if (example / "helpers.py").exists():
        assert "- **num_layers**: 30" in results[1]["content"][0]["text"], said
    assert any(r.get("is_error") for r in results), "the network was there"
    assert "All is there." in done.stdout and "[python]" in done.stderr, said      # the run is shown
    assert (example / "workspace/model_tools.py").is_file()
    assert "runs on the CPU" in done.stderr and said.count("runs on the CPU") == 1, said


def last_results(script):
    return [b for m in script.requests[-1]["messages"] for b in m["content"] if b["type"] == "tool_result"]


def pybox(name, first, last, kind):
    if cut.page(name) is None:
        lacking(f"the page {name}: CARREL_PAGES names the folder")
    code = cut.lines(name, int(first), int(last)).replace("from pybox import", "from carrel.pybox import")
    gateway = None
    if kind == "Remote":
        gateway = Server("--set", "allow_anonymous=true", "--set", f"templates.python.python={os.path.abspath(sys.executable)}")
        code = code.replace("http://example.com", f"http://127.0.0.1:{gateway.port}")
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env={
            **os.environ, "CARREL_BIN": str(BUILD / "carrel"), "CARREL_GUEST": str(BUILD / "guest"), "PYTHONPATH": str(REPOSITORY / "sdk/python")})
    finally:
        if gateway is not None:
            gateway.stop()
    assert (done.returncode, done.stdout) == (0, "data=[{'text/plain': '4.0'}] error=None\n"), done.stdout + done.stderr


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "pybox":
        pybox(*words)
    elif what in ("example", "notebook", "adapters"):
        {"example": example, "notebook": notebook, "adapters": adapters}[what]()
    else:
        scoped(words[0], whole=what == "full")
