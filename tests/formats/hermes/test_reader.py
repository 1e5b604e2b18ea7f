"""What Hermes's rows say: order, contents, compaction, what was taken back, marks, and who a session belongs to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.model import Image, Message
from clew.conversation.source import Session
from clew.errors import UnwritableContent
from clew.formats.hermes import FORMAT
from clew.formats.marks import INVENTED
from clew.formats.rows import encode_row
from clew_corpus import Case, own_cases, shared_cases
from corpuscheck import read_case, said_in, wanted_of
from hermes_samples import ID, OTHER, joined, keys, options, read_bytes, written_rows

PNG = "iVBORw0KGgo="


class Rows:
    """Rows of a session, made by hand."""

    def __init__(self, **session: Any) -> None:
        facts = {"id": ID, "source": "cli", "cwd": "/home/dev1/proj/loom", "title": "Knots", "model": "m-1"} | session
        self.lines = [encode_row("sessions", list(facts), list(facts.values()))]
        self.count = 0

    def add(self, role: str, content: Any = None, **more: Any) -> Rows:
        self.count += 1
        if isinstance(content, list):
            content = "\x00json:" + json.dumps(content)
        row = {"id": self.count, "session_id": ID, "role": role, "content": content, "timestamp": 1800000000.25}
        row |= {"active": 1, "compacted": 0} | more
        self.lines.append(encode_row("messages", list(row), list(row.values())))
        return self

    def calls(self, content: str, *calls: tuple[str, str, str], **more: Any) -> Rows:
        made = [
            {"id": id_, "call_id": id_, "type": "function", "function": {"name": name, "arguments": given}}
            for id_, name, given in calls
        ]
        return self.add("assistant", content, tool_calls=json.dumps(made), **more)

    def read(self) -> Session:
        return read_bytes(b"".join(self.lines))


def said(messages: tuple[Message, ...]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages]


def test_texts_calls_and_results_in_order() -> None:
    session = (
        Rows()
        .add("user", "go")
        .calls("I look.", ("c1", "terminal", '{"command": "ls"}'), ("c2", "read_file", "{}"), reasoning="hm")
        .add("tool", '{"output": "x", "exit_code": 0}', tool_call_id="c1", tool_name="terminal")
        .add("tool", "no such file", tool_call_id="c2")
        .add("assistant", "Done.")
        .read()
    )
    assert said(session.messages) == [
        ("user", "go"),
        ("assistant", "I look."),
        ("tool", '{"output": "x", "exit_code": 0}'),
        ("tool", "no such file"),
        ("assistant", "Done."),
    ]
    assert [(call.name, call.arguments) for call in session.messages[1].calls] == [
        ("terminal", '{"command": "ls"}'),
        ("read_file", "{}"),
    ]
    assert session.messages[1].parts[0].text == "hm"  # type: ignore[union-attr]
    assert session.created_by == (1, 2, 3, 4, 5)
    assert session.history is session.messages
    assert (session.model, session.title, session.cwd) == ("m-1", "Knots", "/home/dev1/proj/loom")
    assert session.created_ms == 1800000000250
    assert not session.damage


@pytest.mark.parametrize("case", [*own_cases("hermes"), *shared_cases("hermes")], ids=str)
def test_a_recorded_session_says_what_was_said(case: Case) -> None:
    session = read_case(FORMAT, case)
    bare = [
        (role, text.strip(), calls, [r.strip() for r in results])
        for role, text, calls, results in wanted_of(case.expected)
    ]
    found = [
        (role, text.strip(), calls, [r.strip() for r in results])
        for role, text, calls, results in said_in(session.messages)
    ]
    assert found == bare  # the agent keeps some blanks and sends none
    assert not session.damage
    assert session.cwd == case.cwd
    assert session.id == case.session_id


def test_an_older_form_of_calls_is_read() -> None:
    calls = json.dumps([{"name": "terminal", "arguments": '{"a":1}', "call_id": "c1"}, "odd", {"function": 5}])
    session = Rows().add("assistant", "", tool_calls=calls).add("tool", "done", tool_call_id="c1").read()
    assert next((c.id, c.name, c.arguments) for c in session.messages[0].calls) == ("c1", "terminal", '{"a":1}')
    assert session.messages[1].text == "done"


def test_lists_of_parts_are_read() -> None:
    session = (
        Rows()
        .add("user", [{"type": "text", "text": "what is it?"}, image(), {"type": "video"}, "odd"])
        .add("assistant", [{"type": "text", "text": "A dot."}])
        .add("user", "\x00json:[torn")
        .add("user", [{"type": "image_url", "image_url": "https://example.org/x.png"}])
        .read()
    )
    first, second, third, fourth = session.messages
    assert first.parts == make_user("what is it?", Image("image/png", PNG)).parts
    assert second.text == "A dot."
    assert third.text == "\x00json:[torn"
    assert fourth.images[0].url == "https://example.org/x.png"
    assert [(loss.what, loss.count) for loss in session.losses] == [("content blocks of an unknown kind", 1)]


def image() -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}


def test_compactions_in_place_leave_the_past_in_the_history() -> None:
    past: dict[str, Any] = {"active": 0, "compacted": 1}
    rows = Rows().add("user", "one ", timestamp=1.0, **past).add("assistant", "two", timestamp=2.0, **past)
    rows.add("user", "three", timestamp=3.0, **past).add("assistant", "four", timestamp=4.0, **past)
    rows.add("user", "one", timestamp=1.0, **past)  # the head is kept, as the agent does it
    rows.add("assistant", "[CONTEXT COMPACTION] first", timestamp=5.0, **past)
    rows.add("assistant", "four", timestamp=4.0, **past).add("user", "five", timestamp=6.0, **past)
    rows.add("assistant", "[CONTEXT COMPACTION] second", timestamp=7.0)
    rows.add("user", "five", timestamp=7.5).add("assistant", "six").add("user", "five")
    session = rows.read()
    assert said(session.messages) == [
        ("assistant", "[CONTEXT COMPACTION] second"),
        ("user", "five"),
        ("assistant", "six"),
        ("user", "five"),
    ]
    assert session.messages[0].kind == "summary"
    texts = ["one ", "two", "three", "four[CONTEXT COMPACTION] first", "five", "[CONTEXT COMPACTION] second"]
    assert [message.text for message in session.history] == [*texts[:-1], "[CONTEXT COMPACTION] secondsix", "five"]
    assert [boundary.at for boundary in session.boundaries] == [5]
    assert session.branches == ()
    glued = Rows().add("user", "[PRIOR CONTEXT] and a prompt").read().messages[0]
    assert (glued.origin, glued.kind) == ("agent", "summary")


def test_what_was_taken_back_is_a_branch() -> None:
    rows = Rows().add("user", "one").add("user", "no", active=0).add("assistant", "well", active=0)
    session = rows.add("assistant", "two").add("user", "never", active=0).read()
    assert said(session.messages) == [("user", "one"), ("assistant", "two")]
    assert [(branch.number, branch.at, said(branch.messages)) for branch in session.branches] == [
        (1, 1, [("user", "no"), ("assistant", "well")]),
        (2, 2, [("user", "never")]),
    ]


def test_what_the_agent_drops_by_itself_is_not_in_the_context() -> None:
    session = (
        Rows()
        .add("session_meta", "{}")
        .add("user", "go")
        .add("assistant", "A first try.", finish_reason="verification_required")
        .add("assistant", "The answer.", finish_reason="stop")
        .add("user", "Review the conversation above and update the skill library. Then stop.")
        .add("assistant", "Nothing to save.")
        .add("tool", "stray", tool_call_id="gone")
        .read()
    )
    assert said(session.messages) == [("user", "go"), ("assistant", "The answer.")]
    assert [damage.sort for damage in session.damage] == ["stray result"]


def test_texts_that_look_like_the_agents_own_survive() -> None:
    messages = (
        make_user("Review the conversation above and consider saving to memory? No."),
        make_assistant("As you like.", make_call("c1", "t", "{}")),
        make_result("c1", "\x00json:[1]", Image("image/png", PNG)),
        make_assistant("[CONTEXT SUMMARY]: I only quote it."),
        make_user("[CONTEXT COMPACTION — quoted by a person"),
        make_assistant(INVENTED),
        make_user("<memory-context>mine</memory-context> and [System note: nothing]"),
        make_user("\x00json:[]"),
    )
    session = read_bytes(written_rows(messages))
    assert keys(session.messages) == keys(messages)
    assert [(m.origin, m.kind) for m in session.messages] == [(m.origin, m.kind) for m in messages]
    rows = [json.loads(line)["row"] for line in written_rows(messages).splitlines()]
    sent = [row["api_content"] for row in rows if row.get("api_content")]
    assert sent == ["<memory-context>mine</memory-context> and [System note: nothing]"]


def test_images_of_a_person_are_kept_and_others_told_of() -> None:
    dot = Image("image/png", PNG)
    messages = (
        make_user("look", dot, "and", Image("image/tiff", PNG), "there"),
        make_assistant("", make_call("c1", "look", "{}")),
        make_result("c1", "seen", dot),
    )
    assert FORMAT.write is not None
    written = FORMAT.write(messages, options())
    session = read_bytes(joined(written))
    assert keys(session.messages) == keys(messages)
    assert session.messages[0].parts == make_user("look", dot, "and", Image("image/tiff"), "there").parts
    assert session.messages[2].images == (Image("image/png"),)
    assert [(loss.what, loss.count) for loss in written.losses] == [("images", 2)]


def test_open_calls_of_a_prefix_are_answered_and_marked() -> None:
    prefix = Rows().add("user", "go").calls("", ("c1", "terminal", "{}"), ("c2", "terminal", "{}"))
    prefix.add("tool", "done", tool_call_id="c2")
    session = prefix.read()
    more = (make_user("and?", time_ms=1), make_assistant("", make_call("c1", "t", "{}")), make_result("c1", "x"))
    assert FORMAT.splice is not None
    written = FORMAT.splice(session, more, options(last="40"))
    assert written.invented == 1
    after = read_bytes(joined(written))
    assert keys(after.messages) == keys((*session.messages, *more))
    rows = [json.loads(line) for line in joined(written).splitlines()][4:]
    assert [row["row"].get("id") or row["row"]["key"] for row in rows][:3] == [41, "clew:message:41", 42]
    assert rows[0]["row"]["content"] == INVENTED
    assert {row["row"]["timestamp"] for row in rows if row["table"] == "messages"} == {1800000000.25}


def test_what_was_compacted_into_another_session_is_not_gone_on_with() -> None:
    session = Rows(end_reason="compression").add("user", "go").read()
    assert FORMAT.splice is not None
    with pytest.raises(UnwritableContent, match="compacted into another one"):
        FORMAT.splice(session, (make_user("more"),), options())


def test_titles_are_cleaned_and_no_two_are_the_same() -> None:
    def title(given: str, *taken: str) -> str | None:
        assert FORMAT.write is not None
        made = options(titles=json.dumps(taken))
        made = type(made)(**{name: getattr(made, name) for name in made.__struct_fields__} | {"title": given})
        return read_bytes(joined(FORMAT.write((make_user("x"),), made))).title

    assert title(" two\n lines\u200b and\x07 more ") == "two lines and more"
    assert title("Knots", "Knots", "Knots #2") == "Knots #3"
    assert title("k" * 300, "k" * 100) == "k" * 97 + " #2"
    assert title("\u200b") == ""


def test_a_rebased_session_is_nobodys_and_has_no_title() -> None:
    rows = Rows(parent_session_id=OTHER, model_config='{"_branched_from": "x"}').add("user", "go")
    rows.lines.append(encode_row("session_model_usage", ["session_id", "model"], [ID, "m"]))
    session = rows.read()
    assert [(r.relation, r.session_id) for r in session.references] == [("forked", OTHER)]
    assert FORMAT.rebase is not None
    other = read_bytes(joined(FORMAT.rebase(session, options(OTHER, last="7"))))
    assert (other.id, other.title, other.references) == (OTHER, "", ())
    assert len(other.records) == 2
    rows.lines.append(b"torn\n")
    with pytest.raises(UnwritableContent, match="is damaged"):
        joined(FORMAT.rebase(rows.read(), options(OTHER)))


def test_a_helper_names_who_started_it() -> None:
    session = Rows(parent_session_id=OTHER, model_config='{"_delegate_from": "x"}').add("user", "task").read()
    assert session.helper
    assert [(r.relation, r.session_id) for r in session.references] == [("helper_of", OTHER)]


def test_odd_cells_are_read_as_far_as_they_go() -> None:
    rows = Rows()
    rows.lines += [
        b'{"table":"messages","row":{"id":"x","role":"user","content":{"text":"/w=="}}}\n',
        b'{"table":"messages","row":{"id":1,"role":"user","content":{"blob":"aGk="},"timestamp":"soon"}}\n',
        b'{"table":"messages","row":{"id":1,"role":"user","content":"twice"}}\n',
        b'{"table":"messages","row":{"id":2,"role":null,"content":"nobody"}}\n',
        b'{"table":"messages","row":{"id":3,"role":"user","content":{"text":"?"}}}\n',
        b'{"table":"state_meta","row":{"key":"clew:message:1","value":"no mark"}}\n',
    ]
    session = rows.read()
    assert said(session.messages) == [("user", "\ufffd"), ("user", "hi")]
    assert [damage.sort for damage in session.damage] == ["unreadable row"]
