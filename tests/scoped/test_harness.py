"""The agent's loop, against a model on loopback and the real libraries of the providers."""
import asyncio
import contextlib
import json
import os
import stat

import pytest
from model_server import text, use

from carrel.harness import (AgentError, AssistantMessage, ResultMessage, SystemMessage, ToolResultBlock, ToolUseBlock, UserMessage, run_agent)
from carrel.harness.agent import Conversation
from carrel.harness.settings import settings_of
from carrel.harness.show import Screen
from carrel.harness.tools import Outcome, Tool, image_block, text_block


class Session:
    """Stands in for a session: its tools are functions of the test."""

    name = "of the test"
    mcp_config = {}

    def __init__(self, run):
        self._run = run

    async def agent_tools(self, stack):
        async def run(given):
            got = self._run(given["code"])
            return Outcome(got if isinstance(got, list) else [text_block(await got if asyncio.iscoroutine(got) else got)])
        return [Tool("python", "Runs Python.", {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}, run)]

    def agent_words(self):
        return "There is a session."


def run(prompt="You are a test.", provider="claude", run_tool=str.upper, **options):
    kwargs = {"session": Session(run_tool), **options.pop("kwargs", {})}

    async def collect():
        return [m async for m in run_agent(prompt=prompt, mcp_config={}, provider=provider, kwargs=kwargs, **options)]
    return asyncio.run(collect())


TWO_CALLS = [[text("First two calls."), use("t1", "python", code="one"), use("t2", "python", code="two")], [text("Both are there.")]]


@pytest.mark.parametrize("provider", ["claude", "openai"])
def test_a_run_has_the_shapes_of_the_agent_sdk(model, provider):
    script = model(TWO_CALLS)
    init, first, results, last, end = run(provider=provider)
    assert isinstance(init, SystemMessage) and init.subtype == "init" and init.data["tools"] == ["python"] and init.data["provider"] == provider
    assert isinstance(first, AssistantMessage) and [b.type for b in first.content] == ["text", "tool_use", "tool_use"]
    assert isinstance(results, UserMessage)
    assert [(b.tool_use_id, b.content[0]["text"], b.is_error) for b in results.content] == [("t1", "ONE", False), ("t2", "TWO", False)]
    assert last.content[0].text == "Both are there."
    assert isinstance(end, ResultMessage) and (end.subtype, end.num_turns, end.is_error, end.result) == ("success", 2, False, "Both are there.")
    assert end.usage == {"input_tokens": 20, "output_tokens": 10}
    assert len(script.requests) == 2
    as_dict = first.as_dict()
    assert as_dict["type"] == "assistant" and as_dict["message"]["content"][1] == use("t1", "python", code="one")


@pytest.mark.parametrize("provider", ["claude", "openai"])
def test_the_prompt_is_the_system_prompt_and_an_empty_message_becomes_something(model, provider):
    script = model([[text("yes")]])
    run(provider=provider)
    request = script.requests[0]
    system = request["system"] if provider == "claude" else request["messages"][0]["content"]
    assert system.startswith("You are a test.") and "There is a session." in system
    said = request["messages"][-1]["content"]
    assert (said if isinstance(said, str) else said[0]["text"]).strip()


@pytest.mark.parametrize("provider", ["claude", "openai"])
@pytest.mark.parametrize("faults", [[429], ["disconnect"], *([[429, "disconnect", 500]] if os.environ.get("CARREL_LONG") else [])])
def test_what_is_refused_for_now_or_breaks_off_is_asked_again(model, provider, faults):
    script = model(TWO_CALLS, faults)
    assert run(provider=provider)[-1].subtype == "success"
    assert len(script.requests) == 2 + len(faults)


def events(*pairs):
    return "".join(f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n" for name, data in pairs).encode()


START = ("message_start", {"message": {"id": "m1", "type": "message", "role": "assistant", "model": "scripted", "content": [], "stop_reason": None,
                                       "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}})
HALF = (START, ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
        ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "half a te"}}))
OVERLOADED = ("error", {"error": {"type": "overloaded_error", "message": "Overloaded"}})


@pytest.mark.parametrize("broken", [HALF, (OVERLOADED,), (*HALF, OVERLOADED)], ids=["ended", "overloaded", "overloaded later"])
def test_half_an_answer_of_claude_is_asked_again(model, broken):
    """The stream ends in good order, or with an error in it; neither is an answer."""
    script = model(TWO_CALLS, [events(*broken)])
    end = run()[-1]
    assert (end.subtype, len(script.requests)) == ("success", 3) and "half" not in end.result


def test_half_an_answer_that_stays_is_an_error(model):
    model(faults=[events(*HALF)] * 2)
    with pytest.raises(AgentError, match="2 tries: the answer broke off"):
        run(kwargs={"max_retries": 1})
    model(faults=[events(OVERLOADED)] * 2)
    with pytest.raises(AgentError, match="2 tries: Overloaded"):
        run(kwargs={"max_retries": 1})
    script = model(faults=[events(("error", {"error": {"type": "invalid_request_error", "message": "too long"}}))])
    with pytest.raises(AgentError, match=r"refused the request \(invalid_request_error\): too long"):
        run()
    assert len(script.requests) == 1


@pytest.mark.parametrize("provider", ["claude", "openai"])
def test_a_refusal_that_stays_is_said_in_the_providers_words(model, provider):
    model(faults=[401])
    with pytest.raises(AgentError, match="401.*invalid x-api-key.*check the key"):
        run(provider=provider)


@pytest.mark.parametrize("provider", ["claude", "openai"])
def test_nonsense_is_an_error_and_no_hang(model, provider):
    model(faults=["nonsense"] * 5)
    with pytest.raises(AgentError):
        run(provider=provider, kwargs={"max_retries": 1})


NONSENSE = [b"", b"null", b'data: "x"\n\n', b"data: [1]\n\n", b"data: no json\n\n", b'data: {"choices": null}\n\ndata: [DONE]\n\n', b'data: {"choices": [5]}\n\n',
            b'event: message_start\ndata: {"type": "message_start", "message": null}\n\n',
            b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}\n\n']


@pytest.mark.parametrize("provider", ["claude", "openai"])
@pytest.mark.parametrize("answer", NONSENSE, ids=range(len(NONSENSE)))
def test_any_nonsense_is_one_clear_error(model, provider, answer):
    model(faults=[answer])
    with pytest.raises(AgentError, match="127.0.0.1.*(check the provider and its address|without content)"):
        run(provider=provider, kwargs={"max_retries": 0})


def test_a_call_of_no_shape_is_answered(model):
    call = {"id": 1, "function": {"name": 5, "arguments": {}}}
    model([[text("done")]], faults=[b"data: " + json.dumps({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "stop"}]}).encode() + b"\n\n"])
    messages = run(provider="openai")
    assert messages[2].content[0].is_error and messages[-1].subtype == "success"


def test_a_missing_key_names_it_and_the_other_ways(monkeypatch):
    with pytest.raises(AgentError, match="ANTHROPIC_API_KEY.*openai.*base_url.*replay"):
        run()


def test_a_provider_that_is_not_there_is_refused_by_name():
    with pytest.raises(AgentError, match="'gemini'"):
        run(provider="gemini")


def test_an_unknown_option_is_refused_by_name(model):
    with pytest.raises(AgentError, match="'max_turn'"):
        run(kwargs={"max_turn": 3})


def test_thinking_goes_back_unchanged(model):
    thought = {"type": "thinking", "thinking": "first the one", "signature": "c2lnbmVk"}
    script = model([[thought, use("t1", "python", code="x")], [text("done")]])
    run()
    assert script.requests[1]["messages"][1]["content"][0] == thought


def test_a_call_without_input_and_one_of_no_tool_are_answered(model):
    script = model([[use("t1", "nosuch"), use("t2", "python")], [text("done")]])
    messages = run()
    assert [b.is_error for b in messages[2].content] == [True, True]
    assert "there is no tool 'nosuch'" in messages[2].content[0].content[0]["text"]
    assert [b["tool_use_id"] for b in script.requests[1]["messages"][2]["content"]] == ["t1", "t2"]


def test_arguments_that_are_no_json_are_answered_with_an_error(model):
    broken = {**use("t1", "python"), "raw": '{"code": "unfin'}
    model([[broken], [text("done")]])
    messages = run(provider="openai")
    assert messages[2].content[0].is_error and "not JSON" in messages[2].content[0].content[0]["text"] and messages[-1].subtype == "success"


def test_a_tool_that_raises_says_so(model):
    def fail(code):
        raise ZeroDivisionError("by nought")
    model([[use("t1", "python", code="x")], [text("done")]])
    answer = run(run_tool=fail)[2].content[0]
    assert answer.is_error and answer.content[0]["text"] == "ZeroDivisionError: by nought"


def test_turns_are_bounded(model):
    model(say=lambda request: [use(f"t{len(request['messages'])}", "python", code="again")])
    messages = run(kwargs={"max_turns": 3})
    assert (messages[-1].subtype, messages[-1].num_turns) == ("error_max_turns", 3)


def test_tokens_are_bounded(model):
    model(say=lambda request: [use(f"t{len(request['messages'])}", "python", code="again")])
    messages = run(kwargs={"max_total_tokens": 40})
    assert messages[-1].subtype == "error_max_tokens" and messages[-1].num_turns == 3


def test_what_a_tool_says_is_bounded(model):
    script = model([[use("t1", "python", code="x")], [text("done")]])
    run(run_tool=lambda code: "a" * 1_000_000 + "END", kwargs={"max_tool_output": 1000})
    said = script.requests[1]["messages"][2]["content"][0]["content"][0]["text"]
    assert len(said) < 1100 and said.endswith("END") and "left out" in said


def test_time_is_bounded_and_every_call_is_answered(model, tmp_path):
    model([[text("done")], [use("t1", "python", code="x"), use("t2", "python", code="y")]])
    run(run_tool=lambda code: asyncio.sleep(1000))          # so that no import takes of the time
    messages = run(run_tool=lambda code: asyncio.sleep(1000), kwargs={"timeout": 5, "record": tmp_path / "t"})
    assert [b.tool_use_id for b in messages[2].content] == ["t1", "t2"] and all(b.is_error for b in messages[2].content)
    assert messages[-1].subtype == "error_timeout"


def test_a_tool_has_its_own_bound_of_time(model):
    model([[use("t1", "python", code="x")], [text("done")]])
    messages = run(run_tool=lambda code: asyncio.sleep(1000), kwargs={"tool_timeout": 0.2})
    assert messages[2].content[0].is_error and messages[-1].subtype == "success"


def test_cancelling_answers_every_call(model, tmp_path):
    model([[use("t1", "python", code="x"), use("t2", "python", code="y")]])

    async def main():
        began = asyncio.Event()

        async def wait(code):
            began.set()
            await asyncio.sleep(1000)

        async def collect():
            kwargs = {"session": Session(wait), "record": tmp_path / "transcript"}
            async for _ in run_agent(prompt="p", mcp_config={}, kwargs=kwargs):
                pass
        task = asyncio.create_task(collect())
        await began.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    asyncio.run(main())
    lines = [json.loads(line) for line in (tmp_path / "transcript").read_text().splitlines()]
    assert [b["tool_use_id"] for b in lines[-2]["message"]["content"]] == ["t1", "t2"] and lines[-1]["subtype"] == "cancelled"


def test_leaving_the_loop_answers_every_call(model, tmp_path):
    model(TWO_CALLS)

    async def main():
        kwargs = {"session": Session(str), "record": tmp_path / "transcript"}
        async with contextlib.aclosing(run_agent(prompt="p", mcp_config={}, kwargs=kwargs)) as messages:
            async for message in messages:
                if isinstance(message, AssistantMessage):
                    break
    asyncio.run(main())
    lines = [json.loads(line) for line in (tmp_path / "transcript").read_text().splitlines()]
    assert lines[-1]["type"] == "user" and len(lines[-1]["message"]["content"]) == 2


def test_a_transcript_can_be_replayed_without_key_or_network(model, monkeypatch, tmp_path):
    model(TWO_CALLS)
    record = tmp_path / "transcript"
    first = run(kwargs={"record": record})
    assert stat.S_IMODE(os.stat(record).st_mode) == 0o600
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    ran = []
    again = run(provider="replay", run_tool=lambda code: ran.append(code) or code.upper(), kwargs={"transcript": record})
    assert ran == ["one", "two"]        # the tools run for real
    assert [m.as_dict().get("message", {}).get("content") for m in first[1:-1]] == [m.as_dict().get("message", {}).get("content") for m in again[1:-1]]
    assert again[-1].subtype == "success"


def test_a_transcript_that_is_none_says_where(tmp_path):
    (tmp_path / "t").write_text('{"type": "system"}\nnot json\n')
    with pytest.raises(AgentError, match="line 2"):
        run(provider="replay", kwargs={"transcript": tmp_path / "t"})
    with pytest.raises(AgentError, match="cannot read"):
        run(provider="replay", kwargs={"transcript": tmp_path / "nosuch"})
    with pytest.raises(AgentError, match="transcript"):
        run(provider="replay")


def test_a_run_is_shown_as_it_happens(model, capsys):
    model(TWO_CALLS)
    run()
    shown = capsys.readouterr()
    assert "First two calls." in shown.out and "Both are there." in shown.out
    assert "[python]\n  | one" in shown.err and "[result]\n  | ONE" in shown.err and "success: 2 turns" in shown.err


def test_without_logging_nothing_is_shown(model, capsys):
    model(TWO_CALLS)
    run(enable_logging=False)
    assert capsys.readouterr() == ("", "")


def test_tools_can_be_forbidden(model):
    script = model([[use("t1", "python", code="x")], [text("done")]])
    messages = run(kwargs={"disallowed_tools": ["python"]})
    assert "tools" not in script.requests[0] and messages[2].content[0].is_error


def test_a_server_cannot_name_its_tool_like_an_allowed_one():
    from carrel.harness.settings import Settings
    settings = Settings(allowed_tools=["python", "mcp__ours__read"], disallowed_tools=["delete"])
    assert settings.allows("python") and settings.allows("mcp__ours__read")
    assert not any(map(settings.allows, ("mcp__theirs__python", "mcp__theirs__x__python", "mcp__theirs__read", "mcp__ours__delete", "delete")))


@pytest.mark.parametrize("kwargs,words", [({"allowed_tools": "python"}, "allowed_tools is a list"), ({"transcript": "x"}, "record")])
def test_an_option_that_would_do_nothing_is_refused(model, kwargs, words):
    model()
    with pytest.raises(AgentError, match=words):
        run(kwargs=kwargs)


def test_what_is_shown_commands_no_terminal(model, capsys):
    """An agent's words and what its code prints go to the user's terminal."""
    evil = "a\x1b]52;c;cm0gLXJm\x07b\x1b[2Jc\x9b2Jd\x08\u202ee\rf"
    model([[text(evil), use("t1", "python", code=evil)], [text("done")]])
    run(run_tool=lambda code: evil)
    shown = capsys.readouterr()
    assert not set("\x1b\x07\x9b\x08\u202e\r") & set(shown.out + shown.err)
    assert "[result]\n  | a]52;c;cm0gLXJmbc2Jde\n  | f\n" in shown.err


def test_openai_names_are_mapped_there_and_back(model):
    from carrel.harness.providers.openai import OpenAI
    from carrel.harness.settings import Settings
    model()
    provider = OpenAI(Settings())
    long, dotted = "mcp__server__" + "x" * 80, "mcp__a.b__c.d"
    short = [provider._name(n) for n in (long, dotted, "mcp__a_b__c_d")]
    assert all(len(n) <= 64 and "." not in n for n in short) and len(set(short)) == 3
    assert [provider._names[n] for n in short] == [long, dotted, "mcp__a_b__c_d"]


def parts_of(request, kind):
    return [part for m in request["messages"] if isinstance(m["content"], list) for part in m["content"] if part["type"] == kind]


def test_pictures_reach_a_model_behind_chat_completions(model):
    script = model(TWO_CALLS)
    assert run(provider="openai", run_tool=lambda code: [text_block("here"), image_block("image/png", "aGk=")])[-1].subtype == "success"
    after = script.requests[1]
    assert [m["role"] for m in after["messages"]] == ["system", "user", "assistant", "tool", "tool", "user"]
    assert [p["image_url"]["url"] for p in parts_of(after, "image_url")] == ["data:image/png;base64,aGk="] * 2
    assert ["t1" in p["text"] or "t2" in p["text"] for p in parts_of(after, "text")] == [True, True]


def test_a_model_that_refuses_pictures_is_told_that_there_were_some(model):
    script = model(TWO_CALLS, [None, 400])
    assert run(provider="openai", run_tool=lambda code: [image_block("image/png", "aGk=")])[-1].subtype == "success"
    assert [len(parts_of(r, "image_url")) for r in script.requests] == [0, 2, 0]
    assert "not shown" in script.requests[2]["messages"][-1]["content"]


def test_what_was_said_is_kept_by_the_provider_for_the_next_turn(model):
    script = model(TWO_CALLS)
    run()
    for request in script.requests:
        marked = [b for m in request["messages"] for b in m["content"] if "cache_control" in b]
        assert marked == [request["messages"][-1]["content"][-1]] and marked[0]["cache_control"] == {"type": "ephemeral"}


def test_cost_and_what_came_from_a_cache_are_told_where_the_provider_tells_it(model):
    def chunk(**more):
        return f"data: {json.dumps({'id': 'c', 'object': 'chat.completion.chunk', 'created': 1, 'model': 'm', **more})}\n\n".encode()
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "prompt_tokens_details": {"cached_tokens": 8}, "cost": 0.25}
    model([], [chunk(choices=[{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]) + chunk(choices=[], usage=usage) + b"data: [DONE]\n\n"])
    end = run(provider="openai")[-1]
    assert (end.total_cost_usd, end.usage["cache_read_input_tokens"]) == (0.25, 8)
    model(TWO_CALLS)
    assert run()[-1].total_cost_usd is None


def test_turns_of_a_conversation_are_bounded_for_each_question(model):
    model(TWO_CALLS * 2)

    async def two():
        settings = settings_of({"session": Session(str.upper), "max_turns": 2}, None)
        async with Conversation("p", {}, "claude", settings, Screen(False)) as conversation:
            return [[m async for m in conversation.ask("again")][-1] for _ in range(2)]
    assert [(end.subtype, end.num_turns) for end in asyncio.run(two())] == [("success", 2)] * 2
