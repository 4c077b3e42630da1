"""Attacks of an agent on the directory that it shares with the user, on the terminal, and on readers of its files."""
import os
import subprocess
import sys

import pytest

from carrel.execution import create_local_notebook_session, create_local_session
from carrel.execution.place import UnsafePlace, users_own
from carrel.workspace import Library, Workspace
from support import SDK

HELPERS = "def add(a, b):\n    return a + b\n"
WORKSPACE = Workspace(libraries=[Library.from_code("helpers", HELPERS)])


# --- the shared directory ---

def test_no_workspace_has_the_servers_socket_in_it(tmp_path, monkeypatch):
    """Else the agent's code could make boxes of its own, with the user's files in them."""
    with create_local_session(workspace_dir=tmp_path / "a") as session:
        above = os.path.dirname(session._server.directory)
    for place in (above, os.path.dirname(above), "/"):
        with pytest.raises(UnsafePlace, match="choose a directory of its own"):
            create_local_session(workspace_dir=place)
    (tmp_path / "link").symlink_to(above)
    with pytest.raises(UnsafePlace, match="choose a directory of its own"):
        create_local_session(workspace_dir=tmp_path / "link")


@pytest.mark.parametrize("second", ["w", "w/inner", "."])
def test_two_sessions_have_no_directory_in_common(tmp_path, second):
    """Making the second would replace the files that are read-only in the first one's box, and take that protection off."""
    with create_local_session(WORKSPACE, workspace_dir=tmp_path / "w") as first:
        with pytest.raises(UnsafePlace, match="another session"):
            create_local_session(WORKSPACE, workspace_dir=tmp_path / second)
        with pytest.raises(RuntimeError, match="OSError|PermissionError"):
            first.exec("open('helpers.py', 'w')", check=True)
    with create_local_session(WORKSPACE, workspace_dir=tmp_path / second) as after:
        assert after.exec("import helpers; helpers.add(1, 1)").text == "2"


def test_two_programs_have_no_directory_in_common(tmp_path):
    with create_local_session(WORKSPACE, workspace_dir=tmp_path / "w"):
        code = f"from carrel.execution import create_local_session\ncreate_local_session(workspace_dir={str(tmp_path / 'w')!r})"
        done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(SDK)}, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "belongs to another session" in done.stderr, done.stderr


def test_a_session_that_could_not_be_made_gives_its_directory_back(tmp_path):
    bad = Workspace(libraries=WORKSPACE.libraries, custom_init_code="1 / 0")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        create_local_session(bad, workspace_dir=tmp_path / "w")
    with pytest.raises(ValueError, match="two libraries"):
        create_local_session(Workspace(libraries=WORKSPACE.libraries * 2), workspace_dir=tmp_path / "w")
    create_local_session(WORKSPACE, workspace_dir=tmp_path / "w").terminate()


def test_the_programs_own_environment_is_not_the_agents(tmp_path, monkeypatch):
    """workspace_dir="." with .venv in it: the user will run what is in there."""
    packages = tmp_path / "w/.venv/lib/site-packages"
    packages.mkdir(parents=True)
    monkeypatch.setattr("site.getsitepackages", lambda: [str(packages)])
    with create_local_session(WORKSPACE, workspace_dir=tmp_path / "w") as session:
        for code in (f"open({str(packages / 'evil.pth')!r}, 'w')", "os.rename('.venv', 'x')"):
            with pytest.raises(RuntimeError, match="OSError|PermissionError"):
                session.exec("import os\n" + code, check=True)
        session.exec("open('mine', 'w')", check=True)
    with pytest.raises(UnsafePlace, match="must not write"):
        create_local_session(workspace_dir=packages)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/venv").symlink_to(tmp_path / "w/.venv")
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path / "other/venv/lib/site-packages")])
    with pytest.raises(UnsafePlace, match="a link"):
        users_own(str(tmp_path / "other"))
    # What an environment elsewhere was made from is run as often as that is.
    (tmp_path / "home/.pyenv/versions/3").mkdir(parents=True)
    monkeypatch.setattr("sys.base_prefix", str(tmp_path / "home/.pyenv/versions/3"))
    assert users_own(str(tmp_path / "home")) == [".pyenv"]


def test_a_notebook_in_the_workspace_is_not_the_agents(tmp_path):
    place = tmp_path / "w"
    with create_local_notebook_session(workspace_dir=place, notebook_dir=place / "outputs/today") as session:
        for code in ("os.rename('outputs', 'x')", "os.rename('outputs/today', 'x')", f"os.unlink({session.notebook_path!r})"):
            with pytest.raises(RuntimeError, match="OSError|PermissionError"):
                session.exec("import os\n" + code, check=True)
        assert len(session.notebook.read()["cells"]) == 3
    with pytest.raises(UnsafePlace, match="choose another directory"):
        create_local_notebook_session(workspace_dir=place, notebook_dir=place)
    (place / "left").symlink_to(tmp_path)
    with pytest.raises(UnsafePlace, match="a link"):
        create_local_notebook_session(workspace_dir=place, notebook_dir=place / "left")
    assert not list(tmp_path.glob("*.ipynb"))


def test_a_session_for_another_client_takes_no_module_of_the_agents(tmp_path):
    """A client starts the server of tools where it likes, and Python looks there first."""
    with create_local_session(workspace_dir=tmp_path / "w") as session:
        session.exec("import os\nos.mkdir('carrel')\nfor name in ('json.py', 'carrel/__init__.py', 'carrel/execution.py', 'site.py'):\n"
                     "    open(name, 'w').write('import sys; print(\"owned\", file=sys.stderr)')", check=True)
        entry = session.mcp_config["session"]
        request = '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}\n'
        done = subprocess.run([entry["command"], *entry["args"]], env={**os.environ, **entry.get("env", {})}, cwd=tmp_path / "w", input=request,
                              capture_output=True, text=True, check=False)
        assert '"run_code"' in done.stdout and "owned" not in done.stderr, done


# --- what the agent's code says ---

def test_a_transcript_is_not_written_through_a_link_that_an_agent_left(tmp_path):
    from carrel.harness import AgentError
    from carrel.harness.agent import Transcript
    victim = tmp_path / ".bashrc"
    victim.write_text("mine")
    (tmp_path / "run.ndjson").symlink_to(victim)
    with pytest.raises(AgentError, match="cannot write the transcript .*/run.ndjson"):
        Transcript(tmp_path / "run.ndjson")
    assert victim.read_text() == "mine"


def test_a_picture_that_no_model_takes_does_not_end_the_run():
    from carrel.harness.tools import bounded, image_block
    small, large = image_block("image/png", "aGk="), image_block("image/png", "A" * 6_000_000)
    assert bounded([small, large], 1000) == [small, {"type": "text", "text": "[image: 6.0 MB, more than a model takes; left out]"}]
