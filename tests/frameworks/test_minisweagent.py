"""mini-SWE-agent: a scripted run on a small git repository, then its environment."""
import json
import subprocess

import pytest
from lifetimes import check_killed
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.exceptions import Submitted
from minisweagent.models.test_models import DeterministicModel, make_output
from walls import LIMITS, check_walls

from carrel import Carrel
from carrel.integrations.minisweagent import CarrelEnvironment


@pytest.fixture
def environment():
    with CarrelEnvironment(**LIMITS) as made:
        yield made


@pytest.fixture
def repository(tmp_path):
    """With a bug in it."""
    tmp_path.chmod(0o777)

    def git(*words):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=tmp_path, check=True,
                       capture_output=True)
    (tmp_path / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    return tmp_path


def run(environment, *commands):
    model = DeterministicModel(outputs=[make_output("next", [{"command": command}]) for command in commands])
    agent = DefaultAgent(model, environment, system_template="You fix things.", instance_template="{{task}}",
                         cost_limit=0)
    return agent.run("go"), "\n".join(str(m["content"]) for m in agent.messages)


def test_a_scripted_run_fixes_a_repository_that_is_copied_in(environment, repository):
    environment.box.files.put_tree(repository, "repo")
    environment.config.cwd = "/home/box/repo"
    end, said = run(environment, "python3 -B -c 'import calc; assert calc.add(1, 2) == 3'",
                    "sed -i 's/a - b/a + b/' calc.py", "python3 -B -c 'import calc; print(calc.add(1, 2))'",
                    "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; git diff")
    assert end["exit_status"] == "Submitted" and "+    return a + b" in end["submission"] and "AssertionError" in said
    assert "a - b" in (repository / "calc.py").read_text()


def test_a_scripted_run_fixes_a_repository_that_is_mounted(repository):
    with CarrelEnvironment(cwd="/home/box/repo", mounts=[f"{repository}:/home/box/repo:rw"], **LIMITS) as environment:
        run(environment, "git -c safe.directory=* status --short; sed 's/a - b/a + b/' calc.py >new.py",
            "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat new.py")
    assert "a + b" in (repository / "new.py").read_text()


def test_the_walls_hold_and_the_agent_hears_why(environment):
    def seen(line):
        output = environment.execute({"command": line})
        return output["output"] + output["exception_info"]
    check_walls(seen)


def test_a_command_that_never_ends_is_ended_at_its_timeout(environment):
    output = environment.execute({"command": "echo begun; sleep 4711"}, timeout=1)
    assert output["output"] == "begun\n" and "timed out after 1 seconds" in output["exception_info"]


@pytest.mark.slow
def test_output_of_100_mb_is_cut_and_said_to_be(environment):
    output = environment.execute({"command": "head -c 100000000 /dev/zero"})
    assert len(output["output"]) < 12_000_000 and "of output left out" in output["output"] and not output["returncode"]


def test_submission_is_the_frameworks_own_signal(environment):
    with pytest.raises(Submitted):
        environment.execute({"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"})


def test_it_comes_by_its_name_from_a_configuration():
    made = get_environment(
        {"environment_class": "carrel.integrations.minisweagent.CarrelEnvironment", "timeout": 5, "env": {"A": "b"}})
    try:
        assert made.execute({"command": "echo $A"})["output"] == "b\n"
        assert json.loads(json.dumps(made.serialize()))["info"]["config"]["environment"]["timeout"] == 5
        assert "HOME" not in made.get_template_vars() and made.get_template_vars(x=1)["x"] == 1
    finally:
        made.cleanup()
    assert made.box.id not in [box.id for box in Carrel().list()]


def test_errors_say_what_is_wrong(environment):
    with pytest.raises(TypeError, match="gpu_count"):
        CarrelEnvironment(gpu_count=1)
    with pytest.raises(RuntimeError, match="No box"):
        CarrelEnvironment(memory="1K")
    environment.box.delete()
    output = environment.execute({"command": "true"})
    assert output["returncode"] == -1 and "the box was deleted" in output["exception_info"]


@pytest.mark.slow
def test_nothing_is_left_after_kill_9():
    check_killed("""
import threading, time
from carrel.integrations.minisweagent import CarrelEnvironment
made = CarrelEnvironment(timeout=6000)
threading.Thread(target=made.execute, args=({"command": "sleep 4711"},), daemon=True).start()
while "4711" not in made.execute({"command": "ps ax"})["output"]: pass
print("ready", flush=True)
time.sleep(600)
""")
