"""The writer: what the agent wants to find in a file, and what it lists and forks a thread by."""

from __future__ import annotations

import pytest

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.canonical import keys_of
from clew.conversation.model import Image, Message, Reasoning
from clew.conversation.normal import normalise
from clew.formats.codex import FORMAT
from clew.formats.codex.splice import splice
from clew.formats.codex.writer import write
from clew.formats.marks import INVENTED
from codex_samples import ID, event, joined, message, meta, options, parsed, read_bytes, reread
from odd_pieces import PNG

CONVERSATION: tuple[Message, ...] = (
    make_user("Look."),
    make_assistant("I look.", make_call("c1", "Bash", '{"command":"ls"}')),
    make_result("c1", "a.txt\n"),
    make_assistant("There is one."),
)


def test_what_is_written_reads_back() -> None:
    written = write(CONVERSATION, options(origin="claude:x1"))
    session = reread(written)
    assert list(keys_of(session.messages)) == list(keys_of(CONVERSATION))
    assert (session.id, session.cwd, session.foreign) == (ID, "/home/dev/work", "claude:x1")
    assert not session.damage


def test_the_file_lies_where_the_agent_looks() -> None:
    written = write(CONVERSATION, options())
    assert written.files[0].path == f"sessions/2026/11/30/rollout-2026-11-30T19-36-34-{ID}.jsonl"


def test_turns_begin_and_end_and_show_what_was_said() -> None:
    events = [line["payload"] for line in parsed(joined(write(CONVERSATION, options()))) if line["type"] == "event_msg"]
    assert [(found["type"], found.get("message")) for found in events] == [
        ("task_started", None),
        ("user_message", "Look."),
        ("agent_message", "I look."),
        ("agent_message", "There is one."),
        ("task_complete", None),
    ]
    assert events[0]["turn_id"] == events[-1]["turn_id"]


@pytest.mark.parametrize(
    ("messages", "shown"),
    [
        ((make_user("A summary.", origin="agent", kind="summary"), make_assistant("x")), "A summary."),
        ((make_assistant("First of all."),), "(no text)"),
        ((make_user(Image("image/png", PNG)),), "(no text)"),
    ],
)
def test_every_thread_is_listed_by_something(messages: tuple[Message, ...], shown: str) -> None:
    payloads = [line["payload"] for line in parsed(joined(write(messages, options())))]
    assert [one["message"] for one in payloads if one.get("type") == "user_message"] == [shown]


def items(*messages: Message) -> list[dict[str, object]]:
    lines = parsed(joined(write(normalise(messages), options())))
    return [line["payload"] | line.get("clew", {}) for line in lines if line["type"] == "response_item"]


def test_names_and_ids_are_what_the_api_takes() -> None:
    call, other, output, invented = items(
        make_assistant(make_call("id|ä", "odd name!", "{}"), make_call("c", "multi_agent_v1.spawn_agent", "{}")),
        make_result("id|ä", "x"),
    )
    assert call["name"] == "odd name!"  # the mark's; the item's own is a legal one
    assert call["call_id"] == output["call_id"] != "id|ä"
    assert (other["name"], other["namespace"]) == ("spawn_agent", "multi_agent_v1")
    assert (invented["call_id"], invented["output"], invented["invented"]) == ("c", INVENTED, True)


def test_free_text_is_a_custom_tool_call() -> None:
    kinds = [
        items(make_assistant(make_call("c", "t", arguments)), make_result("c", "x"))
        for arguments in ("", '{"a":"\\ud800"}', "*** Begin Patch", "[1]", '{"a":NaN}')
    ]
    assert [(call["type"], output["type"]) for call, output in kinds] == [
        ("function_call", "function_call_output"),
        ("function_call", "function_call_output"),
        ("custom_tool_call", "custom_tool_call_output"),
        ("custom_tool_call", "custom_tool_call_output"),
        ("custom_tool_call", "custom_tool_call_output"),
    ]
    assert kinds[0][0]["arguments"] == "{}"


def test_images_are_data_urls_and_what_the_api_refuses_stands_in() -> None:
    user, _, output, _ = items(
        make_user("see", Image("image/png", PNG), Image("image/tiff", "AAAA")),
        make_assistant(make_call("c", "view", "{}")),
        make_result("c", Image("image/jpeg", "AAAA")),
        make_assistant(Image("image/png", PNG)),
    )
    content = user["content"]
    assert isinstance(content, list)
    assert [part["type"] for part in content] == ["input_text", "input_image", "input_text"]
    assert content[1]["image_url"] == f"data:image/png;base64,{PNG}"
    assert user["standin"] == 1
    assert output["output"] == [{"type": "input_image", "image_url": "data:image/jpeg;base64,AAAA"}]
    losses = write(normalise((make_user(Image("image/tiff", "AA")), make_assistant("x", Reasoning("r")))), options())
    assert [(loss.what, loss.count) for loss in losses.losses] == [("reasoning blocks", 1), ("images", 1)]


def test_an_error_that_the_text_does_not_tell_is_marked() -> None:
    messages = normalise(
        (
            make_assistant(make_call("a", "t"), make_call("b", "t"), make_call("c", "t")),
            make_result("a", "went wrong", is_error=True),
            make_result("b", "Exit code: 0\nfine", is_error=True),
            make_result("c", "Exit code: 3\nbad", is_error=True),
        )
    )
    assert [item.get("error") for item in items(*messages)[3:]] == [True, True, None]
    assert [m.is_error for m in reread(write(messages, options())).messages[1:]] == [True, True, True]


def test_an_open_call_of_the_prefix_is_answered_first() -> None:
    call = b'{"timestamp":"2026-11-30T19:36:34.696Z","type":"response_item","payload":{"type":"custom_tool_call",'
    call += b'"call_id":"c1","name":"apply_patch","input":"x"}}\n'
    prefix = read_bytes(meta() + message("user", "go") + call)
    written = splice(prefix, (make_user("And?"),), options())
    first = parsed(joined(written))[3]
    assert first["payload"] == {"type": "custom_tool_call_output", "call_id": "c1", "output": INVENTED}
    assert first["clew"] == {"invented": True}
    assert written.invented == 1
    assert [m.text for m in reread(written).messages] == ["go", "", "And?"]


def test_a_running_turn_is_gone_on_with_and_ended() -> None:
    started = event("task_started", ordinal=1, turn_id="t1")
    prefix = read_bytes(meta(ordinal=0, history_mode="paginated") + started + message("user", "go", ordinal=2))
    added = parsed(joined(splice(prefix, (make_assistant("Done."), make_user("More.")), options())))[3:]
    assert [line["ordinal"] for line in added] == list(range(3, 3 + len(added)))
    assert [line["payload"]["type"] for line in added] == [
        "item_completed",
        "message",
        "task_complete",
        "task_started",
        "message",
        "item_completed",
        "task_complete",
    ]
    assert added[0]["payload"]["turn_id"] == added[2]["payload"]["turn_id"] == "t1"
    assert added[0]["payload"]["thread_id"] == ID


def test_no_provider_is_named() -> None:
    meta = parsed(joined(write(CONVERSATION, options())))[0]["payload"]
    assert "model_provider" not in meta
    assert {"id", "timestamp", "cwd", "originator", "cli_version"} <= meta.keys()


def test_the_format_is_registered() -> None:
    assert FORMAT.name == "codex"
    assert FORMAT.write is not None
