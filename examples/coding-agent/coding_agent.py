"""A coding agent: it writes Python for a task, runs it, reads the error, and repairs the code, up to three times.

The loop is a LangGraph graph:  generate -> execute -> (error, fixes left) fix -> execute -> ... -> end
Who writes the code is in models.py, where it runs in runner.py.
"""
from __future__ import annotations

import os
import sys
from typing import Optional, TypedDict

from langgraph.graph import END, START, StateGraph

from models import Model, ModelUnavailable, code_of, open_model
from runner import Run, Runner, RunnerUnavailable, choose, end_at_once_on_sigterm

MAX_FIXES = 3
ERROR_SHOWN = 2000

GENERATE = """# Python 3 program. Only code, no explanation.
# Task: {task}
# The program prints its result.

"""

FIX = """# Python 3 program. Only code, no explanation.
# Task: {task}
# This program fails:
{code}
# Error:
{error}
# The repaired program:

"""


class State(TypedDict):
    task: str
    code: str
    output: str
    error: Optional[str]
    fixes: int


def commented(text: str) -> str:
    return "\n".join(f"# {line}" for line in text.splitlines())


class CodingAgent:
    def __init__(self, model_id: str = "Salesforce/codegen-350M-mono", hf_token: str = None, *, model: Optional[Model] = None,
                 runner: Optional[Runner] = None):
        self.model = model or open_model(model_id, hf_token)
        self.runner = runner or choose()
        self.graph = self._build()

    def _build(self):
        graph = StateGraph(State)
        graph.add_node("generate", self._generate)
        graph.add_node("execute", self._execute)
        graph.add_node("fix", self._fix)
        graph.add_edge(START, "generate")
        graph.add_edge("generate", "execute")
        graph.add_conditional_edges("execute", self._next, {"fix": "fix", "end": END})
        graph.add_edge("fix", "execute")
        return graph.compile()

    def _generate(self, state: State) -> dict:
        print(f"[writing code with {self.model.name}]", flush=True)
        return {"code": code_of(self.model.complete(GENERATE.format(task=" ".join(state["task"].split()))))}

    def _execute(self, state: State) -> dict:
        print("[running it]", flush=True)
        run: Run = self.runner.run(state["code"])
        return {"output": run.output, "error": run.error}

    @staticmethod
    def _next(state: State) -> str:
        return "fix" if state["error"] is not None and state["fixes"] < MAX_FIXES else "end"

    def _fix(self, state: State) -> dict:
        print(f"[it failed: {state['error'].splitlines()[-1]}; fix {state['fixes'] + 1} of {MAX_FIXES}]", flush=True)
        prompt = FIX.format(task=" ".join(state["task"].split()), code=commented(state["code"]), error=commented(state["error"][-ERROR_SHOWN:]))
        return {"code": code_of(self.model.complete(prompt)), "fixes": state["fixes"] + 1}

    def solve(self, task: str) -> State:
        """Generates, runs and repairs. The state's error is None if the last code ended well; else it is the last error."""
        return self.graph.invoke({"task": task, "code": "", "output": "", "error": None, "fixes": 0}, {"recursion_limit": 2 * MAX_FIXES + 5})


def report(state: State) -> str:
    verdict = "done" if state["error"] is None else f"failed after {state['fixes']} fixes"
    parts = [f"=== {verdict} ===", "--- code", state["code"].rstrip(), "--- output", state["output"].rstrip() or "(none)"]
    if state["error"] is not None:
        parts += ["--- last error", state["error"]]
    return "\n".join(parts)


def converse(agent: CodingAgent) -> None:
    """Reads a task from each line, until the end of input or `exit`."""
    while True:
        try:
            task = input("You: ").strip()
        except EOFError:
            print()
            return
        if task in ("exit", "quit"):
            return
        if not task:
            continue
        try:
            print(report(agent.solve(task)), flush=True)
        except (ModelUnavailable, RunnerUnavailable) as e:
            print(f"coding agent: {e}", flush=True)


def main() -> int:
    end_at_once_on_sigterm()
    print("coding agent: loading the model", flush=True)
    try:
        agent = CodingAgent(hf_token=os.environ.get("HF_TOKEN"))
    except ModelUnavailable as e:
        print(f"coding agent: {e}", file=sys.stderr)
        return 1
    print("coding agent: ready. Say what the code should do; `exit` ends.", flush=True)
    try:
        converse(agent)
    except KeyboardInterrupt:
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
