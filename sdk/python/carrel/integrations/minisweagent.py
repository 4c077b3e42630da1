"""An environment for mini-SWE-agent, on this machine:

    environment = CarrelEnvironment(cwd="/home/box/repo", mounts=["/path/of/repo:/home/box/repo:rw"], memory="1G")
    DefaultAgent(model, environment).run("...")

or in its configuration: `environment_class: carrel.integrations.minisweagent.CarrelEnvironment`, with the same
options beside it."""
from __future__ import annotations

import platform
from types import TracebackType
from typing import Any, Dict

from ..client import Box
from ..errors import CarrelError
from .common import close_box, make_box, needs, why

with needs("minisweagent", "mini-swe-agent", "2.4"):
    from minisweagent.exceptions import Submitted
    from minisweagent.utils.serialize import recursive_merge
    from pydantic import BaseModel

_SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class CarrelEnvironmentConfig(BaseModel):
    cwd: str = "/home/box"
    env: Dict[str, str] = {}
    timeout: float = 30
    box: Dict[str, Any] = {}


class CarrelEnvironment:
    """One box; deleted by cleanup(), the context manager, or with the process. Further options are those of Box."""

    def __init__(self, *, cwd: str = "/home/box", env: Dict[str, str] | None = None, timeout: float = 30,
                 **options: Any):
        self.config = CarrelEnvironmentConfig(cwd=cwd or "/home/box", env=env or {}, timeout=timeout, box=options)
        try:
            self.box: Box = make_box(**options)
        except CarrelError as e:
            raise RuntimeError(f"No box for the agent: {e}") from e

    def execute(self, action: Dict[str, Any], cwd: str = "", *, timeout: float | None = None) -> Dict[str, Any]:
        limit = timeout or self.config.timeout
        try:
            result = self.box.exec(["/bin/bash", "-c", action.get("command", "")], cwd=cwd or self.config.cwd,
                                   env=self.config.env, timeout=limit, merge_stderr=True)
            failure = f"timed out after {limit:g} seconds" if result.outcome == "timeout" else why(result)
            output = {"output": result.shown(), "returncode": result.exit_code, "exception_info": ""}
        except CarrelError as e:
            failure = str(e)
            output = {"output": "", "returncode": -1, "exception_info": ""}
        if failure:
            output["exception_info"] = f"An error occurred while executing the command: {failure}"
            output["extra"] = {"exception_type": "Carrel", "exception": failure}
        self._check_finished(output)
        return output

    def _check_finished(self, output: Dict[str, Any]) -> None:
        lines = output["output"].lstrip().splitlines(keepends=True)
        if lines and lines[0].strip() == _SUBMIT and output["returncode"] == 0:
            submission = "".join(lines[1:])
            raise Submitted({
                "role": "exit", "content": submission, "extra": {"exit_status": "Submitted", "submission": submission}
            })

    def get_template_vars(self, **kwargs: Any) -> Dict[str, Any]:
        """Nothing of this program's own environment: the templates go to the model."""
        merged: Dict[str, Any] = recursive_merge(self.config.model_dump(),
                                                 platform.uname()._asdict(), {"node": "box"}, kwargs)
        return merged

    def serialize(self) -> Dict[str, Any]:
        kind = f"{type(self).__module__}.{type(self).__name__}"
        return {"info": {"config": {"environment": self.config.model_dump(mode="json"), "environment_type": kind}}}

    def cleanup(self) -> None:
        close_box(self.box)

    def __enter__(self) -> "CarrelEnvironment":
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.cleanup()
