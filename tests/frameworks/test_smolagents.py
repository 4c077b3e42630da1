"""smolagents: a CodeAgent with a scripted model whose code runs in a box."""
import pytest
from lifetimes import check_killed
from PIL import Image
from smolagents import CodeAgent, Tool
from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.utils import AgentError, AgentExecutionError
from walls import LIMITS, check_walls_python

from carrel import Carrel
from carrel.integrations.smolagents import CarrelExecutor


class Scripted(Model):
    """Says one block of code after the other, and keeps what it was shown."""

    def __init__(self, *blocks):
        super().__init__(model_id="scripted")
        self.blocks, self.shown = list(blocks), []

    def generate(self, messages, **options):
        self.shown.append("\n".join(str(m.content) for m in messages))
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thought: next.\n<code>\n{self.blocks.pop(0)}\n</code>")


def run(*blocks, tools=(), **options):
    model = Scripted(*blocks)
    with CodeAgent(tools=list(tools), model=model, executor=CarrelExecutor(**LIMITS, **options),
                   verbosity_level=0) as agent:
        answer = agent.run("go", max_steps=len(blocks))
    return answer, model.shown


@pytest.fixture
def executor():
    made = CarrelExecutor(**LIMITS)
    yield made
    made.cleanup()


def test_state_stays_between_steps_and_the_answer_comes_back():
    before = {box.id for box in Carrel().list()}
    answer, shown = run("x = 6\nprint('x is', x)", "y = x * 7", "final_answer({'answer': y, 'all': (x, y)})")
    assert answer == {"answer": 42, "all": (6, 42)} and "x is 6" in shown[1]
    assert {box.id for box in Carrel().list()} == before


def test_an_error_is_shown_to_the_model_which_goes_on():
    answer, shown = run("1 / 0", "final_answer('recovered')")
    assert answer == "recovered" and "ZeroDivisionError" in shown[1]


def test_a_picture_is_an_answer():
    answer, _ = run("from PIL import Image\nfinal_answer(Image.new('RGB', (3, 2), 'red'))")
    picture = answer.to_raw() if hasattr(answer, "to_raw") else answer
    assert isinstance(picture, Image.Image) and picture.size == (3, 2) and picture.getpixel((0, 0)) == (255, 0, 0)


def test_a_picture_is_a_value(executor):
    output = executor("from PIL import Image\nImage.new('RGB', (3, 2), 'red')").output
    assert isinstance(output, Image.Image) and output.size == (3, 2)


class Doubled(Tool):
    name = "doubled"
    description = "Doubles a number."
    inputs = {"number": {"type": "integer", "description": "the number"}}
    output_type = "integer"

    def forward(self, number: int) -> int:
        return 2 * number


def test_tools_and_variables_are_sent_into_the_box():
    model = Scripted("final_answer(doubled(given))")
    with CodeAgent(tools=[Doubled()], model=model, executor=CarrelExecutor(**LIMITS), verbosity_level=0) as agent:
        assert agent.run("go", additional_args={"given": 21}, max_steps=1) == 42


def test_the_walls_hold_and_the_agent_hears_why(executor):
    def seen(code):
        try:
            return executor(code).logs
        except AgentExecutionError as e:
            return str(e)
    check_walls_python(seen)


def test_code_that_never_ends_is_interrupted():
    executor = CarrelExecutor(timeout=1, **LIMITS)
    try:
        executor("x = 1")
        with pytest.raises(AgentExecutionError, match="too long"):
            executor("while True: pass")
        assert executor("x").output == "1"
    finally:
        executor.cleanup()


@pytest.mark.slow
def test_output_of_100_mb_is_an_error_of_the_agent(executor):
    with pytest.raises(AgentExecutionError):
        executor("print('x' * 100_000_000)")


def test_a_package_that_is_not_here_is_named():
    with pytest.raises(AgentError, match="no-such-package"):
        CarrelExecutor(["json", "no-such-package"], **LIMITS)
    assert not Carrel().list()


def test_an_option_that_a_box_does_not_have_is_named():
    with pytest.raises(TypeError, match="gpu_count"):
        CarrelExecutor(gpu_count=1)


def test_a_box_that_is_gone_is_an_error_of_the_agent(executor):
    executor.box.delete()
    with pytest.raises(AgentExecutionError, match="did not run"):
        executor("1")


@pytest.mark.slow
def test_nothing_is_left_after_kill_9():
    check_killed("""
import threading, time
from carrel.integrations.smolagents import CarrelExecutor
executor = CarrelExecutor()
executor("x = 1")
threading.Thread(target=executor, args=("import time; time.sleep(4711)",), daemon=True).start()
print("ready", flush=True)
time.sleep(600)
""")
