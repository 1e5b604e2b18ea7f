"""The reader, line by line: what is a message, what is context, what replaces, what refers to other threads."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from clew.conversation.model import Image
from clew.conversation.source import Session, Source, Stream
from clew.formats.codex import compressed
from clew.formats.codex.context import may_be_tagged, sort_by_text
from clew.formats.codex.reader import read
from clew.formats.codex.records import decode_time
from codex_samples import ID, ODD_TEXTS, OTHER, PATH, event, item, line, message, meta, read_bytes, shape
from odd_pieces import PNG

try:
    from compression import zstd
except ImportError:
    from backports import zstd

THIRD = "01a22df5-7ada-8893-8deb-9be09a8006e3"
ENVIRONMENT = "<environment_context>\n  <cwd>/x</cwd>\n</environment_context>"


def only(*lines: bytes, **more: Any) -> Session:
    return read_bytes(meta() + b"".join(lines), **more)


# --- what is a message ------------------------------------------------------------------------------------


def test_context_is_decided_by_the_noted_kinds_first() -> None:
    session = only(
        message("developer", "<permissions instructions>p</permissions instructions>"),
        message("user", ENVIRONMENT, kinds=["environments.environment_context"]),
        message("user", ENVIRONMENT, kinds=["user.text"]),
        message("user", "plain", kinds=["agents_md.instructions"]),
        message("user", ENVIRONMENT, "and this", kinds=["environments.environment_context", "user.text"]),
    )
    assert shape(session) == [("user", ENVIRONMENT), ("user", "and this")]


def test_context_is_decided_by_whole_blocks_second() -> None:
    session = only(
        message("user", ENVIRONMENT),
        message("user", "# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\nx\n</INSTRUCTIONS>", ENVIRONMENT),
        message("user", f"Why does it say {ENVIRONMENT}"),
        message("user", f"{ENVIRONMENT} What is this?"),
        message("user", ENVIRONMENT, "my question"),
    )
    assert shape(session) == [
        ("user", f"Why does it say {ENVIRONMENT}"),
        ("user", f"{ENVIRONMENT} What is this?"),
        ("user", "my question"),
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<turn_aborted>\nStopped.\n</turn_aborted>", "interruption"),
        ('<subagent_notification>\n{"a":1}\n</subagent_notification>', "notice"),
        ("<user_shell_command>\nls\n</user_shell_command>", "command"),
        ('<hook_prompt hook_run_id="1">go on</hook_prompt>', "notice"),
    ],
)
def test_what_the_agent_had_to_say_is_its_own(text: str, kind: str) -> None:
    session = only(message("user", text), message("user", text, kinds=["user.text"]))
    assert [(m.text, m.origin, m.kind) for m in session.messages] == [(text, "agent", kind), (text, "user", "")]


def test_a_cheap_look_never_contradicts_the_full_one() -> None:
    for text in ODD_TEXTS:
        raw = json.dumps(text).encode("utf-8", "replace")
        if sort_by_text(text) != "said":
            assert may_be_tagged(memoryview(raw))  # type: ignore[arg-type]


def test_events_are_no_messages() -> None:
    session = only(
        event("user_message", message="hello", kind="plain"),
        message("user", "hello"),
        event("agent_message", message="hi"),
        message("assistant", "hi"),
        event("item_completed", item={"type": "CommandExecution", "id": "c", "aggregated_output": "x"}),
        event("turn_aborted", reason="interrupted"),
    )
    assert shape(session) == [("user", "hello"), ("assistant", "hi")]


def test_calls_of_every_sort() -> None:
    action = {"type": "exec", "command": ["ls"]}
    session = only(
        item("function_call", name="exec_command", arguments='{"cmd":"ls"}', call_id="a"),
        item("function_call", name="spawn", namespace="multi", arguments="{}", call_id="b"),
        item("custom_tool_call", name="apply_patch", input="*** Begin", call_id="c"),
        item("local_shell_call", call_id="d", status="completed", action=action),
        item("web_search_call", id="ws_1", status="completed", action={"type": "search", "query": "q"}),
        item("tool_search_call", call_id="e", execution="client", arguments={"query": "git"}),
        item("function_call_output", call_id="d", output="files"),
        item("tool_search_output", call_id="e", execution="client", tools=[{"name": "t"}]),
    )
    assistant, shell, search = session.messages
    assert [(call.id, call.name, call.arguments) for call in assistant.calls] == [
        ("a", "exec_command", '{"cmd":"ls"}'),
        ("b", "multi.spawn", "{}"),
        ("c", "apply_patch", "*** Begin"),
        ("d", "local_shell_call", '{"type":"exec","command":["ls"]}'),
        ("ws_1", "web_search_call", '{"type":"search","query":"q"}'),
        ("e", "tool_search_call", '{"query":"git"}'),
    ]
    assert (shell.text, search.text) == ("files", '[{"name":"t"}]')


def test_a_picture_of_the_provider_is_a_call_with_its_result() -> None:
    call, result = only(item("image_generation_call", id="ig_1", status="completed", result=PNG)).messages
    assert [(one.id, one.name) for one in call.calls] == [("ig_1", "image_generation_call")]
    assert result.images == (Image("image/png", PNG),)


def test_a_message_of_another_agent_is_a_notice() -> None:
    content = [{"type": "input_text", "text": "four lines"}, {"type": "encrypted_content", "encrypted_content": "g"}]
    (found,) = only(item("agent_message", author="helper", recipient="root", content=content)).messages
    assert (found.role, found.origin, found.kind, found.text) == ("user", "agent", "notice", "four lines")


def test_results_lose_their_carrier_and_nothing_else() -> None:
    old = json.dumps({"output": "ok\n", "metadata": {"exit_code": 2, "duration_seconds": 0.1}})
    odd = json.dumps({"output": "ok", "metadata": {"exit_code": 2}, "more": 1})
    new = "Chunk ID: ab12\nWall time: 0.0000 seconds\nProcess exited with code 0\nOutput:\nx"
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    picture = [{"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}]
    texts = (old, odd, new, parts, picture, "Exit code: 3\nWall time: 0 seconds\n", "")
    calls = [item("function_call", name="t", arguments="{}", call_id=str(n)) for n in range(len(texts))]
    outputs = [item("function_call_output", call_id=str(n), output=text) for n, text in enumerate(texts)]
    results = only(*calls, *outputs).messages[1:]
    assert [(m.text, m.is_error) for m in results] == [
        ("ok\n", True),
        (odd, None),
        (new, False),
        ("ab", None),
        ("", None),
        ("Exit code: 3\nWall time: 0 seconds\n", True),
        ("", None),
    ]
    assert results[4].images == (Image("image/png", PNG),)


def test_images_of_a_person() -> None:
    content = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
        {"type": "input_image", "image_url": "https://example.org/a.png"},
    ]
    (found,) = only(item("message", role="user", content=content)).messages
    assert found.images == (Image("image/png", PNG), Image("", "", "https://example.org/a.png"))


def test_reasoning_is_kept_as_far_as_it_can_be_read() -> None:
    summary = [{"type": "summary_text", "text": "Thinking."}]
    session = only(item("reasoning", summary=summary, encrypted_content="gAAA"), message("assistant", "Done."))
    (found,) = session.messages
    assert [type(part).__name__ for part in found.parts] == ["Reasoning", "Text"]
    assert session.created_by == (1,)


def test_the_model_is_the_turns_own() -> None:
    session = only(
        line("turn_context", {"turn_id": "1", "model": "m1"}),
        message("assistant", "one"),
        message("user", "and"),
        line("turn_context", {"turn_id": "2", "model": "m2"}),
        message("assistant", "two"),
    )
    assert [m.model for m in session.messages if m.role == "assistant"] == ["m1", "m2"]
    assert session.model == "m2"


def test_bare_lines_of_old_versions_are_read() -> None:
    first = b'{"id":"%s","timestamp":"2025-05-07T17:24:21.597Z","instructions":null}\n' % ID.encode()
    said = b'{"type":"message","role":"user","content":[{"type":"input_text","text":"old"}]}\n'
    session = read_bytes(first + said + said.replace(b'"user"', b'"assistant"').replace(b"old", b"times"))
    assert (session.id, shape(session)) == (ID, [("user", "old"), ("assistant", "times")])


def test_items_of_an_unknown_shape_are_read_as_far_as_they_go() -> None:
    session = only(
        line("response_item", {"type": "message", "role": "user", "content": "a plain text"}),
        line("response_item", {"type": "message", "role": "user", "content": [7, {"type": "x"}, {"text": "kept"}]}),
        line("response_item", {"type": "function_call", "name": 5, "call_id": "c", "arguments": {"a": 1}}),
        line("response_item", [1, 2]),
        line("response_item", {"type": "ghost_snapshot", "ghost_commit": {}}),
        line("unknown_type", {"a": 1}),
    )
    assert shape(session) == [("user", "a plain text"), ("user", "kept"), ("assistant", "")]
    assert session.messages[2].calls[0].arguments == '{"a":1}'


def test_stray_results_are_named() -> None:
    session = only(
        item("function_call_output", call_id="nobody", output="x"),
        item("function_call", name="t", arguments="{}", call_id="a"),
        item("function_call_output", call_id="a", output="1"),
        item("function_call_output", call_id="a", output="2"),
    )
    assert [(found.sort, found.record, found.detail) for found in session.damage] == [
        ("stray result", 1, "nobody"),
        ("stray result", 4, "a"),
    ]


# --- what replaces ----------------------------------------------------------------------------------------


def said(role: str, text: str) -> dict[str, Any]:
    return json.loads(message(role, text))["payload"]


def test_a_compaction_with_a_replacement_history() -> None:
    kept = [said("user", "first"), said("user", ENVIRONMENT), said("user", "SUMMARY: all")]
    output = line("response_item", said("assistant", "all"), metadata={"compaction_output": True})
    session = only(
        message("user", "first"),
        message("assistant", "one"),
        output,
        line("compacted", {"message": "SUMMARY: all", "replacement_history": kept}),
        message("user", "next"),
    )
    assert [(m.text, m.kind) for m in session.messages] == [("first", ""), ("SUMMARY: all", "summary"), ("next", "")]
    assert session.created_by == (4, 4, 5)
    assert [m.text for m in session.history] == ["first", "one", "SUMMARY: all", "next"]
    assert [(found.at, found.kind) for found in session.boundaries] == [(2, "compacted")]


def test_a_compaction_without_one_keeps_what_the_user_said() -> None:
    session = only(
        message("user", "first"),
        message("assistant", "one"),
        line("compacted", {"message": "in short"}),
        message("assistant", "two"),
    )
    assert shape(session) == [("user", "first"), ("user", "in short"), ("assistant", "two")]
    assert session.created_by == (3, 3, 4)
    assert [m.text for m in session.history] == ["first", "one", "in short", "two"]


def test_a_rollback_makes_a_branch() -> None:
    session = only(
        message("user", "one"),
        message("assistant", "1"),
        message("user", "two"),
        message("assistant", "2"),
        event("thread_rolled_back", num_turns=1),
        message("user", "two again"),
    )
    assert [text for _, text in shape(session)] == ["one", "1", "two again"]
    (branch,) = session.branches
    assert (branch.at, [m.text for m in branch.messages]) == (2, ["two", "2"])


def test_a_revert_is_a_second_file_of_one_thread() -> None:
    first = b"".join(
        (
            meta(ordinal=0),
            message("user", "one", ordinal=1),
            message("assistant", "1", ordinal=2),
            message("user", "two", ordinal=3),
            message("assistant", "2", ordinal=4),
        )
    )
    base = {"thread_id": ID, "end_ordinal_exclusive": 3}
    second = meta(ordinal=3, history_base=base) + message("user", "two again", ordinal=4)
    session = read_bytes(first, second)
    assert [text for _, text in shape(session)] == ["one", "1", "two again"]
    assert session.created_by == (1, 2, 6)
    (branch,) = session.branches
    assert (branch.at, [m.text for m in branch.messages]) == (2, ["two", "2"])
    third = meta(ordinal=1, history_base=base | {"end_ordinal_exclusive": 1}) + message("user", "all new", ordinal=2)
    assert [text for _, text in shape(read_bytes(first, second, third))] == ["all new"]


# --- other threads ----------------------------------------------------------------------------------------


def source(data: bytes, threads: dict[str, bytes]) -> Source:
    def resolve(id_: str) -> Source | None:
        return source(threads[id_], threads) if id_ in threads else None

    return Source((Stream(PATH, data),), resolve=resolve)


def fork(id_: str, parent: str, end: int, *lines: bytes) -> bytes:
    base = {"thread_id": parent, "end_ordinal_exclusive": end}
    return meta(id_, end, history_base=base, forked_from_id=parent) + b"".join(lines)


PARENT = b"".join(
    (
        meta(OTHER, 0),
        message("user", "one", ordinal=1),
        message("assistant", "1", ordinal=2),
        message("user", "two", ordinal=3),
    )
)


def test_a_fork_begins_with_its_parent() -> None:
    session = read(source(fork(ID, OTHER, 3, message("user", "other", ordinal=4)), {OTHER: PARENT}))
    assert [text for _, text in shape(session)] == ["one", "1", "other"]
    assert session.created_by == (0, 0, 1)
    assert session.id == ID
    assert [(one.relation, one.session_id, one.messages) for one in session.references] == [("forked", OTHER, 2)]


def test_a_fork_of_a_fork() -> None:
    middle = fork(THIRD, OTHER, 3, message("user", "middle", ordinal=4), message("user", "later", ordinal=5))
    data = fork(ID, THIRD, 5, message("user", "last", ordinal=6))
    session = read(source(data, {OTHER: PARENT, THIRD: middle}))
    assert [text for _, text in shape(session)] == ["one", "1", "middle", "last"]
    nearer = read(source(fork(ID, THIRD, 2, message("user", "last", ordinal=6)), {OTHER: PARENT, THIRD: middle}))
    assert [text for _, text in shape(nearer)] == ["one", "last"]


def test_a_missing_parent_is_reported_and_the_rest_is_read() -> None:
    session = read(source(fork(ID, OTHER, 3, message("user", "own", ordinal=4)), {}))
    assert shape(session) == [("user", "own")]
    assert [(found.sort, found.record) for found in session.damage] == [("missing parent", 0)]


def test_threads_that_refer_to_each_other_end() -> None:
    one = fork(ID, OTHER, 9, message("user", "a", ordinal=1))
    other = fork(OTHER, ID, 9, message("user", "b", ordinal=1))
    session = read(source(one, {OTHER: other, ID: one}))
    assert [text for _, text in shape(session)] == ["b", "a"]
    assert [found.sort for found in session.damage] == ["missing parent"]
    alone = read(source(fork(ID, ID, 9, message("user", "a", ordinal=1)), {}))
    assert [found.sort for found in alone.damage] == ["missing parent"]


def test_the_first_facts_give_the_identity() -> None:
    session = read_bytes(meta(forked_from_id=OTHER) + meta(OTHER, cwd="/elsewhere") + message("user", "copied"))
    assert (session.id, session.cwd) == (ID, "/home/dev/work")
    assert [(one.relation, one.session_id) for one in session.references] == [("forked", OTHER)]


def test_helpers_and_their_parents_name_each_other() -> None:
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": OTHER, "depth": 1}}}
    helper = read_bytes(meta(source=spawn, thread_source="subagent", parent_thread_id=OTHER))
    assert helper.helper
    assert [(one.relation, one.session_id) for one in helper.references] == [("helper_of", OTHER)]
    call = {"type": "CollabAgentToolCall", "id": "c", "tool": "spawn_agent", "receiver_thread_ids": [THIRD]}
    parent = only(event("item_completed", thread_id=ID, turn_id="t", item=call))
    assert not parent.helper
    assert [(one.relation, one.session_id) for one in parent.references] == [("helper", THIRD)]


# --- bytes ------------------------------------------------------------------------------------------------


def test_a_mark_and_carriage_returns_change_nothing() -> None:
    plain = meta() + message("user", "hello") + message("assistant", "hi")
    odd = b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n")
    assert shape(read_bytes(odd)) == shape(read_bytes(plain))
    assert [(found.sort, found.lost) for found in read_bytes(odd).damage] == [("byte-order mark", False)]


def test_a_torn_tail_is_damage_or_still_being_written() -> None:
    data = meta() + message("user", "hello") + message("assistant", "hi")[:-9]
    assert [found.sort for found in read_bytes(data).damage] == ["torn tail"]
    assert [(found.sort, found.lost) for found in read_bytes(data, growing=True).damage] == [
        ("still being written", False)
    ]


def packed(*parts: bytes) -> Stream:
    return Stream(PATH + ".zst", b"".join(zstd.compress(part) for part in parts))


def test_a_compressed_thread_is_one_record() -> None:
    stream = packed(meta() + message("user", "hello"), message("assistant", "hi"))
    session = read(Source((stream,)))
    assert shape(session) == [("user", "hello"), ("assistant", "hi")]
    assert len(session.records) == 1
    assert bytes(session.records[0]) == stream.data
    assert session.created_by == (0, 0)
    assert session.ending is None
    assert not session.damage
    assert bytes(session.stable_first) == meta()  # the same source as the plain file was


def test_a_torn_compressed_thread_gives_what_is_there() -> None:
    first = zstd.compress(meta() + message("user", "hello"))
    second = zstd.compress(message("assistant", "hi"))
    session = read(Source((Stream(PATH + ".zst", first + second[:-5]),)))
    assert shape(session) == [("user", "hello")]
    assert [found.sort for found in session.damage] == ["torn tail"]
    broken = read(Source((Stream(PATH + ".zst", first + b"no frame at all"),)))
    assert shape(broken) == [("user", "hello")]
    assert [found.record for found in broken.damage] == [0]
    assert [found.sort for found in read(Source((Stream("x.jsonl.zst", b"nothing"),))).damage] == ["not zstd"]


def test_unpacking_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "MAX_BYTES", 1000)
    session = read(Source((packed(meta() + message("user", "x" * 3_000_000)),)))
    assert next(found.sort for found in session.damage) == "too large"


def test_no_stream_at_all_is_a_session_without_messages() -> None:
    session = read(Source((), hint_id=ID))
    assert (session.id, session.messages, session.ending) == (ID, (), None)


# --- reading on -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        line("compacted", {"message": "short"}),
        event("thread_rolled_back", num_turns=1),
        item("function_call_output", call_id="open", output="late"),
    ],
)
def test_what_reaches_back_is_read_whole(more: bytes) -> None:
    data = b"".join(
        (
            meta(),
            message("user", "one"),
            item("function_call", name="t", arguments="{}", call_id="open"),
            message("user", "two"),
            message("assistant", "2"),
        )
    )
    first = read_bytes(data)
    assert first.ending is not None
    grown = read(Source((Stream(PATH, data + more),)), first.ending)
    assert grown.continues is None
    assert grown.messages == read_bytes(data + more).messages


def test_a_rewritten_file_is_read_whole() -> None:
    data = meta() + message("user", "one") + message("assistant", "1")
    first = read_bytes(data)
    assert first.ending is not None
    again = read(Source((Stream(PATH, data.replace(b"one", b"ONE")),)), first.ending)
    assert again.continues is None
    assert shape(again)[0] == ("user", "ONE")


def test_times_of_every_spelling() -> None:
    wanted = {
        '"2026-09-10T09:00:03.250Z"': 1789030803250,
        '"2026-09-10T11:00:03.250+02:00"': 1789030803250,
        '"2026-09-10T09:00:03.25"': 1789030803250,
        "1789030803250": 1789030803250,
        "1789030803.25": 1789030803250,
        "null": None,
        '"yesterday"': None,
        '"2026-13-10T09:00:03.250Z"': None,
        "true": None,
        "-5": None,
        "{}": None,
        "": None,
    }
    assert {text: decode_time(msgspec.Raw(text.encode())) for text in wanted} == wanted
