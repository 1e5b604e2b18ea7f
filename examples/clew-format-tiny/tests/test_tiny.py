"""What only Tiny has, and no law can know."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.model import Message
from clew.conversation.source import Source, Stream
from clew.formats.marks import INVENTED
from clew.formats.protocol import Home, Written
from clew.laws.checks import check_cut_anywhere
from clew.laws.stored import group_keys, store_conversation, write_options
from clew_format_tiny import FORMAT
from clew_format_tiny.writer import LONG, write

NOTE = "<tiny-note>the folder has 3 files</tiny-note>"
TALK = (
    make_user(NOTE),
    make_assistant(make_call("1", "mcp.server/look up", "not json"), make_call("2", "sh", '{"do":"ls"}')),
    make_result("1", "x" * (LONG + 1)),
)


def made(messages: Sequence[Message] = TALK) -> Written:
    """Returns what the writer makes of a conversation."""
    return write(messages, write_options())


def document(written: Written) -> dict[str, list[dict[str, object]]]:
    """Returns the document in it."""
    (stream,) = (file for file in written.files if file.role == "stream")
    return json.loads(b"".join(map(bytes, stream.chunks())))


def test_the_card_lists_the_session_and_comes_last() -> None:
    assert [file.role for file in made().files] == ["stream", "side", "index"]
    card = made().files[-1]
    assert card.path.endswith(FORMAT.traits.listed_by)


def test_what_the_agent_would_refuse_is_made_legal() -> None:
    reply = document(made())["messages"][1]
    first, _ = reply["does"]  # type: ignore[misc]
    assert first["tool"].replace("_", "").isalnum()  # type: ignore[index]
    assert first["args"] == {"clew_text": "not json"}  # type: ignore[index]


def test_a_call_without_an_answer_gets_one_that_says_so() -> None:
    assert made().invented == 1
    answers = [one for one in document(made())["messages"] if one["who"] == "tool"]
    assert [one.get("say", "") for one in answers] == ["", INVENTED]


def test_a_note_is_context_but_not_when_a_person_said_it() -> None:
    data = json.dumps({"tiny": 1, "messages": [{"who": "user", "say": NOTE}, {"who": "user", "say": "hi"}]}).encode()
    assert [m.text for m in FORMAT.read(Source((Stream("doc.json", data),))).messages] == ["hi"]
    assert store_conversation(FORMAT, TALK).read().messages[0].text == NOTE


def test_it_is_found_where_the_agent_keeps_it(tmp_path: Path) -> None:
    for file in made().files:
        path = tmp_path / ".tiny" / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(map(bytes, file.chunks())))
    home = Home(tmp_path)
    (found,) = FORMAT.locate.find(home)
    assert group_keys(FORMAT.read(FORMAT.locate.load(found, home)).messages) == group_keys(TALK)


def test_no_damage_makes_it_fail() -> None:
    check_cut_anywhere([store_conversation(FORMAT, TALK)], 200)


def test_what_lies_beside_a_document_is_taken_only_where_it_is_a_file(tmp_path: Path) -> None:
    folder = tmp_path / ".tiny" / "one"
    (folder / "files").mkdir(parents=True)
    (folder / "doc.json").write_text('{"tiny":1,"id":"one","messages":[]}')
    (folder / "owner").write_text("nobody")
    (tmp_path / "secret").write_text("not of this session")
    for name in ("card.json", "files/pic"):
        (folder / name).symlink_to(tmp_path / "secret")
    (found,) = FORMAT.locate.find(Home(tmp_path))
    assert FORMAT.locate.load(found, Home(tmp_path)).side == ()
    assert FORMAT.resume.owner(found, Home(tmp_path)) is None
    assert FORMAT.resume.owners(Home(tmp_path)) == {}
