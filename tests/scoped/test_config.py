"""An explicit setting takes effect or is refused by name; nothing happens at import."""
import dataclasses
import os
import subprocess
import sys
import tempfile
import warnings

import pytest

from carrel.environment import ConfigError, ExecutionMode, GpuUnavailable, ModelConfig, RepoConfig, Sandbox, SandboxConfig, ScopedSandbox
from carrel.environment.config import files_as_mounts
from carrel.environment.gpu import settle_gpu
from carrel.environment.packages import packages_to_install
from carrel.environment.secrets import find_secrets
from carrel.workspace import Library, Skill, Workspace

FIELDS = ("python_packages system_packages python_version gpu gpu_count docker_in_docker execution_mode debug timeout secrets env encrypted_ports "
          "jupyter_port rpc_port debug_port rpc_timeout wait_timeout notebook_packages models repos local_files local_dirs").split()


def test_a_configuration_has_the_22_fields_in_their_order():
    assert [f.name for f in dataclasses.fields(SandboxConfig)][:22] == FIELDS
    assert [f.name for f in dataclasses.fields(ModelConfig)] == ["name", "var_name", "hidden", "is_peft", "base_model", "load_as_peft"]
    assert SandboxConfig().execution_mode is ExecutionMode.CLI


@pytest.mark.parametrize("field, value", [
    ("docker_in_docker", True), ("debug", True), ("encrypted_ports", [80]), ("repos", [RepoConfig("org/repo")]), ("jupyter_port", 9999), ("rpc_port", 1),
    ("debug_port", 1), ("python_version", "2.7"), ("system_packages", ["no-such-package-here"]), ("timeout", 0), ("rpc_timeout", -1), ("wait_timeout", "x"),
    ("env", {"A": 1}), ("env", {"A=B": "x"}), ("secrets", [""]), ("models", ["google/gemma"]), ("gpu_count", 0)])
def test_what_cannot_be_had_is_refused_by_name(field, value):
    with pytest.raises(ConfigError, match="environment variable" if field == "secrets" or (field == "env" and "A=B" in value) else field):
        Sandbox(SandboxConfig(**{field: value}))


@pytest.mark.parametrize("files,words", [({"local_files": ["data.csv"]}, "a pair"), ({"local_dirs": [("/nowhere", "x")]}, "no such directory"),
                                         ({"local_dirs": [("/", "host")]}, "sockets"), ({"local_dirs": [(tempfile.gettempdir(), "tmp")]}, "sockets")])
def test_files_that_cannot_be_given_are_refused(files, words):
    with pytest.raises(ConfigError, match=words):
        files_as_mounts(SandboxConfig(**files))


@pytest.mark.parametrize("field,value", [("python_packages", "torch"), ("python_packages", [3]), ("secrets", "HF_TOKEN"), ("system_packages", "git"), ("models", "a/b"),
                                         ("local_dirs", "data"), ("env", ["A=1"]), ("execution_mode", "cli")])
def test_a_value_of_another_kind_is_refused(field, value):
    """A text is a list of letters, too, and there are packages with names of one letter."""
    with pytest.raises(ConfigError, match=field):
        ScopedSandbox(SandboxConfig(**{field: value}))


def test_a_warning_is_about_the_users_line(monkeypatch):
    monkeypatch.delenv("NO_SUCH_SECRET", raising=False)
    for make in (lambda sandbox: sandbox.start(), lambda sandbox: sandbox.__enter__()):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            sandbox = ScopedSandbox(SandboxConfig(secrets=["NO_SUCH_SECRET"], gpu="A100", gpu_optional=True))
            make(sandbox)
            sandbox.terminate()
        ours = [w for w in seen if not issubclass(w.category, ResourceWarning)]      # of what others left, collected just now
        assert [w.filename for w in ours] == [__file__] * 2


def test_a_default_is_no_request():
    Sandbox(SandboxConfig())
    Sandbox(SandboxConfig(python_version=f"{sys.version_info.major}.{sys.version_info.minor}", system_packages=["bash"]))


def test_the_callers_configuration_is_not_changed():
    config = SandboxConfig()
    ScopedSandbox(config)
    assert config == SandboxConfig()


def test_two_models_of_one_variable_are_refused():
    with pytest.raises(ConfigError, match="var_name"):
        Sandbox(SandboxConfig(models=[ModelConfig("a/b"), ModelConfig("c/d")]))


def test_a_gpu_that_is_not_there_names_the_way_on(monkeypatch):
    with pytest.raises(GpuUnavailable, match="gpu='A100'.*this machine has.*CARREL_GPU=optional.*gpu_optional=True"):
        settle_gpu(SandboxConfig(gpu="A100"))
    monkeypatch.setenv("CARREL_GPU", "optional")
    with pytest.warns(RuntimeWarning, match="runs on the CPU") as said:
        settle_gpu(SandboxConfig(gpu="A100"))
    assert len(said) == 1
    monkeypatch.delenv("CARREL_GPU")
    with pytest.warns(RuntimeWarning):
        settle_gpu(SandboxConfig(gpu="A100", gpu_optional=True))


def test_secrets_come_from_the_environment_and_dotenv(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("ONE=from-file\nTWO=from-file\n")
    monkeypatch.setenv("TWO", "from-environment")
    with pytest.warns(RuntimeWarning, match="THREE, FOUR") as said:
        assert find_secrets(["ONE", "TWO", "THREE", "FOUR"]) == {"ONE": "from-file", "TWO": "from-environment"}
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_secrets(["ONE"]) == {"ONE": "from-file"}


# --- packages ---

def test_an_interpreter_that_has_all_packages_is_used_as_it_is():
    assert packages_to_install(["pytest", "pip>1"]) == [] and packages_to_install([]) == []
    assert packages_to_install(["pytest", "carrel_test_one"]) == ["pytest", "carrel_test_one"]
    assert packages_to_install(["pytest<1"]) == ["pytest<1"]


@pytest.mark.parametrize("name", ["git+https://example.org/x", "./here", "-r requirements.txt", "--index-url=x", "x @ file:///y"])
def test_only_names_are_packages(name):
    with pytest.raises(ConfigError, match="python_packages"):
        packages_to_install([name])


# --- libraries and skills ---

def test_a_library_from_a_file_is_that_file(tmp_path):
    (tmp_path / "helpers.py").write_text("# a comment first\n'''The docs.'''\ndef f():\n    \"\"\"inner\"\"\"\n")
    library = Library.from_file(tmp_path / "helpers.py")
    assert library.files == {"helpers.py": (tmp_path / "helpers.py").read_text()} and library.is_single_file
    assert library.get_prompt_docs() == "## helpers\n\nThe docs."
    with pytest.raises(FileNotFoundError, match="nosuch"):
        Library.from_file(tmp_path / "nosuch.py")


def test_a_library_from_a_directory_is_a_package(tmp_path):
    (tmp_path / "kit/inner").mkdir(parents=True)
    (tmp_path / "kit/__init__.py").write_text('"""Kit."""\n')
    (tmp_path / "kit/inner/__init__.py").write_text("")
    library = Library.from_directory(tmp_path / "kit")
    assert sorted(library.files) == ["kit/__init__.py", "kit/inner/__init__.py"] and not library.is_single_file and library.docs == "Kit."


def test_a_library_from_code_and_from_a_skill(tmp_path):
    assert Library.from_code("x1", "a = 1").get_prompt_docs() == "## x1\n\nAvailable via: `import x1`"
    (tmp_path / "my-skill").mkdir()
    (tmp_path / "my-skill/code.py").write_text("a = 1\n")
    (tmp_path / "my-skill/SKILL.md").write_text("---\nname: my-skill\ndescription: d\n---\n\n# Body\n")
    assert (Library.from_skill_dir(tmp_path / "my-skill").name, Library.from_skill_dir(tmp_path / "my-skill").docs) == ("my_skill", "# Body")
    skill = Skill.from_dir(tmp_path / "my-skill")
    assert (skill.name, skill.description, skill.content) == ("my-skill", "d", "# Body\n")
    assert "def find_secrets" in Skill.from_function(find_secrets).content


@pytest.mark.parametrize("name", ["../x", "my-tools", "json", "class", "a.b", "", "a b"])
def test_a_librarys_name_is_one(name):
    with pytest.raises(ValueError):
        Library.from_code(name, "")


def test_library_docs_have_their_headings():
    assert Workspace().get_library_docs() == ""
    assert Workspace(libraries=[Library.from_code("one1", '"""Doc."""')]).get_library_docs() == "# Available Libraries\n\n## one1\n\nDoc."


def test_nothing_happens_at_import_and_nothing_heavy_is_needed():
    code = ("import sys\nimport carrel.environment, carrel.workspace, carrel.execution, carrel.harness\nimport carrel.local\n"
            "assert not carrel.local._private\n"
            "print([m for m in ('anthropic', 'openai', 'mcp', 'huggingface_hub', 'torch', 'IPython') if m in sys.modules])")
    from support import SDK
    done = subprocess.run(["/usr/bin/python3", "-I", "-c", f"import sys; sys.path.insert(0, {str(SDK)!r})\n{code}"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
