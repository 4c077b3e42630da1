"""An executor for smolagents, on this machine:

    from carrel.integrations.smolagents import CarrelExecutor

    with CodeAgent(tools=[], model=model, executor=CarrelExecutor(memory="1G")) as agent:
        agent.run("...")

The code runs in a kernel whose interpreter and packages are the caller's own; variables stay from step to step."""
from __future__ import annotations

import io
from typing import Any, List, Sequence

from ..cells import Result
from ..client import Box
from ..errors import CarrelError, plain
from .common import close_box, make_box, needs

with needs("smolagents", "smolagents", "1.26"):
    import PIL.Image
    from smolagents.local_python_executor import CodeOutput
    from smolagents.monitoring import AgentLogger, LogLevel
    from smolagents.remote_executors import RemotePythonExecutor
    from smolagents.utils import AgentError, AgentExecutionError

_MISSING = """
import importlib.metadata as _m, importlib.util as _u
def _has(_name):
    try:
        return bool(_u.find_spec(_name.split(".")[0])) or bool(_m.version(_name))
    except Exception:
        return False
print(*(_n for _n in {names!r} if not _has(_n)), sep="\\n", end="")
"""


class CarrelExecutor(RemotePythonExecutor):
    """One box for one agent; CodeAgent.cleanup(), or leaving the agent's `with`, deletes it. Further options are those
    of Box."""

    def __init__(self, additional_imports: Sequence[str] = (), logger: Any = None, allow_pickle: bool = False, *,
                 box: Box | None = None, timeout: float | None = None, **options: Any):
        super().__init__(list(additional_imports), logger or AgentLogger(level=LogLevel.INFO), allow_pickle)
        self._own = box is None
        self._timeout = timeout
        self.box = box or self._make(options)
        try:
            self.installed_packages = self.install_packages(self.additional_imports)
        except BaseException:
            self.cleanup()
            raise

    def _make(self, options: Any) -> Box:
        try:
            return make_box(**{"template": "python", **options})
        except CarrelError as e:
            raise AgentExecutionError(f"No box for the agent's code: {e}", self.logger) from e

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        try:
            result = self.box.run(code, timeout=self._timeout)
        except CarrelError as e:
            raise AgentExecutionError(f"The code did not run: {e}", self.logger) from e
        logs = result.stdout + result.stderr
        error = result.error
        if error is not None and error.name == self.FINAL_ANSWER_EXCEPTION:
            return CodeOutput(output=self._deserialize_final_answer(error.value, self.allow_pickle), logs=logs,
                              is_final_answer=True)
        if not result.ok:
            said = plain("\n".join(
                error.traceback)) or str(error) if error is not None and result.outcome == "error" else result.reason
            raise AgentExecutionError(f"{logs}\nExecuting code yielded an error:\n{said}".lstrip(), self.logger)
        return CodeOutput(output=_value(result), logs=logs, is_final_answer=False)

    def install_packages(self, additional_imports: List[str]) -> List[str]:
        """The agent may import the packages of the box: those installed beside smolagents, or the option packages=.
        "*" means all of them."""
        names = [name for name in additional_imports if name != "*"]
        if names:
            missing = self.run_code_raise_errors(_MISSING.format(names=names)).logs.split("\n")
            if missing != [""]:
                self.cleanup()
                raise AgentError(
                    f"The box lacks {', '.join(missing)}; give it packages={missing!r}, or install it where this program runs.",
                    self.logger)
        return additional_imports

    def cleanup(self) -> None:
        if self._own and getattr(self, "box", None) is not None:
            close_box(self.box)

    delete = cleanup


def _value(result: Result) -> Any:
    """Of the last expression: a picture, or its text."""
    for output in reversed(result.results):
        if output.kind == "result":
            return PIL.Image.open(io.BytesIO(output.png)) if output.png is not None else output.text
    return None
