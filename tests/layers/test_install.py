"""Packages that are installed while a box lives: with network they come, and stay for its life; without, one line tells what to do."""
import os
import shutil
import time

import pytest
from support.index import wheel
from support.server import Server

SHOW = "import alpha; print(alpha.version, alpha.__file__)"
OWN = "/home/box/.local/lib/python3"
SCRIPT = {"tool.py": "def main(): print('the tool')\n", "tool-1.0.dist-info/entry_points.txt": "[console_scripts]\ntool = tool:main\n"}


@pytest.fixture(scope="module")
def net(index):
    """Options of a box that may reach the index."""
    index.add(wheel("tool", "1.0", SCRIPT, requires=["alpha"]))
    return ["--allow", index.url.split("/")[2], "--env", f"PIP_INDEX_URL={index.url}", "--env", f"UV_DEFAULT_INDEX={index.url}",
            "--env", "PIP_TRUSTED_HOST=index.localhost"]


def test_pip_installs_into_a_plain_box(user, net):
    said = user.do("run", *net, "--", "sh", "-c", f"pip install --quiet tool alpha==1.0 && python3 -c '{SHOW}' && tool")
    assert said.startswith(f"1.0 {OWN}") and said.endswith("the tool\n"), said


def test_what_pip_installs_comes_before_a_layer_and_counts_its_packages(user, net):
    said = user.do("run", *net, "--packages", "alpha==1.0", "--", "sh", "-c",
                   f"pip install --quiet tool; python -c '{SHOW}'; tool; pip install --quiet alpha==2.0; python -c '{SHOW}'; pip uninstall --quiet --yes tool; tool 2>&1; true")
    lines = said.splitlines()
    assert lines[0].startswith("1.0 /opt/venv/") and lines[1] == "the tool" and lines[2].startswith(f"2.0 {OWN}") and "not found" in lines[3], said


def test_uv_installs_into_a_box_with_a_layer(user, net):
    said = user.do("run", *net, "--packages", "uv", "--", "sh", "-c", f"uv pip install --quiet tool alpha==1.0 && python -c '{SHOW}' && tool && python -c 'import uv'")
    assert said.startswith(f"1.0 {OWN}") and said.endswith("the tool\n"), said


def test_an_environment_that_is_made_in_a_box_keeps_its_own_packages(user, net):
    said = user.do("run", *net, "--packages", "uv", "--", "sh", "-c",
                   f"uv venv --quiet v && . v/bin/activate && uv pip install --quiet alpha==1.0 && python -c '{SHOW}'; ls -d ~/.local/lib/*/*/alpha.py 2>&1; true")
    assert said.startswith("1.0 /home/box/v/lib/") and "No such file" in said, said


def test_a_cell_sees_what_it_has_installed(user, net):
    code = "%pip install --quiet alpha==1.0\nimport alpha; print(alpha.version)\n!pip install --quiet tool\nimport tool; tool.main()\n!tool"
    assert user.do("py", *net, "--packages", "packaging", "-c", code).replace("Note: you may need to restart the kernel to use updated packages.\n", "") \
        == "1.0\nthe tool\nthe tool\n"


@pytest.mark.skipif(not shutil.which("npm", path="/usr/bin"), reason="needs npm")
def test_npm_installs_here_and_for_the_box(user, net):
    package = '{\\"name\\":\\"greet\\",\\"version\\":\\"1.0.0\\",\\"bin\\":\\"greet.js\\"}'
    said = user.do("run", *net, "--", "sh", "-c", f"mkdir greet here && echo \"{package}\" >greet/package.json && printf '#!/usr/bin/env node\\nconsole.log(\"hello\")\\n' >greet/greet.js && "
                   "npm install --silent --global ./greet >&2 && cd here && npm install --silent ../greet >&2 && greet && ls node_modules")
    assert said == "hello\ngreet\n"


@pytest.mark.parametrize("command", ["pip install tomlkit", "uv pip install tomlkit", "npm install left-pad"])
def test_without_network_they_end_at_once_with_the_two_remedies(user, command):
    if command.startswith("npm") and not shutil.which("npm", path="/usr/bin"):
        pytest.skip("needs npm")
    if command.startswith("uv"):
        user.do("layer", "build", "uv")
    began = time.monotonic()
    done = user.run("run", *(["--packages", "uv"] if command.startswith("uv") else []), "--", *command.split())
    last = done.stderr.splitlines()[-1]
    assert done.returncode != 0 and time.monotonic() - began < (8 if command.startswith("uv") else 30), done.stderr
    assert last.startswith("carrel: this box has no network") and "--allow " in last and ("--packages NAME" in last or command.startswith("npm")), last


def test_without_network_a_cell_says_the_same(user):
    done = user.run("py", "--packages", "packaging", "-c", "%pip install tomlkit")
    last = done.stderr.splitlines()[-1]
    assert "--allow " in last and "--packages NAME" in last, done.stderr


# ---- boxes of a server ----

@pytest.fixture(scope="module")
def server(admin, index):
    server = Server("--set", "templates.python.pool=1", variables={"CARREL_LAYERS": str(admin.layers), "UV_DEFAULT_INDEX": index.url})
    yield server
    server.stop()


def run(server, box, code):
    answer = server.admin.post(f"/v1/boxes/{box}/run", {"code": code})
    assert answer.status == 200, answer.body
    return answer.json


@pytest.mark.skipif(not os.access("/dev/loop-control", os.R_OK), reason="needs loop devices")
def test_packages_survive_a_stop_root(server, index, net):
    body = {"packages": ["alpha==1.0"], "net": {"allow": [index.url.split("/")[2]]}, "store": "disk", "limits": {"disk": "64M"}, "env": {"PIP_INDEX_URL": index.url, "PIP_TRUSTED_HOST": "index.localhost"}}
    made = server.admin.post("/v1/boxes", body)
    assert made.status == 201, made.body
    box = made.json["id"]
    assert "1.0" in run(server, box, "import alpha; print(alpha.version)")["stdout"]
    done = server.admin.post(f"/v1/boxes/{box}/exec", {"argv": ["pip", "install", "--quiet", "tool"]})
    assert "the tool" in run(server, box, "import tool; tool.main()")["stdout"], done.body      # a kernel that runs already sees it
    assert server.admin.post(f"/v1/boxes/{box}/stop").status == 200 and server.admin.post(f"/v1/boxes/{box}/start").status == 200
    assert "the tool" in run(server, box, "import tool; tool.main()")["stdout"]
    assert server.admin.delete(f"/v1/boxes/{box}").status in (200, 204)


def test_packages_come_once_the_network_is_turned_on_root(server, index, net):
    """The network of a box changes while it lives; the next command has it."""
    made = server.admin.post("/v1/boxes", {"packages": ["alpha==1.0"], "env": {"PIP_INDEX_URL": index.url, "PIP_TRUSTED_HOST": "index.localhost"}})
    assert made.status == 201, made.body
    box = made.json["id"]
    install = {"shell": f"pip install --quiet tool && tool && python -c '{SHOW}'"}
    refused = server.admin.post(f"/v1/boxes/{box}/exec", install).json
    assert refused["outcome"] == "error" and refused["refused"], refused
    assert server.admin.patch(f"/v1/boxes/{box}", {"net": {"allow": [index.url.split("/")[2]]}}).status == 200
    done = server.admin.post(f"/v1/boxes/{box}/exec", install).json
    assert done["outcome"] == "ok" and done["stdout"].startswith("the tool\n1.0 /opt/venv/"), (done["stdout"], done["stderr"])
    assert server.admin.delete(f"/v1/boxes/{box}").status in (200, 204)
