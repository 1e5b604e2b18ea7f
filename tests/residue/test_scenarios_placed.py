"""The scenarios of the residue that the verbs play on a temporary home, by their numbers (24, 30-32, 134, 136)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from carrying import Desk, formats_to_test, text_of
from clew.conversation.builder import make_user
from clew.conversation.model import Message
from clew.errors import Refused
from clew.laws.stored import Stored, make_id, store_conversation, store_written, write_options
from clew.residue.restore import Restored
from clew.residue.segments import cut_session
from clew.verbs.convert import convert
from clew.verbs.refer import open_session
from clew.verbs.restore import restore
from clew_format_tiny import FORMAT as TINY
from clew_format_tiny.records import frame_document
from houses import House, agents_of_the_tests
from lineformat import FORMAT as LINES
from scenes import FILE, MORE, TALK, compacted
from toysessions import bot, row, user


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with agents_of_the_tests(tmp_path / "site"):
        yield House(tmp_path)


def say(house: House, stored: Stored, *messages: Message) -> None:
    """Says something in a session's own agent."""
    there = house.stored(stored)
    session = there.read()
    assert stored.form.splice is not None
    written = stored.form.splice(session, messages, write_options(session.id, path=stored.path))
    house.place(store_written(stored.form, written))


def carry(house: House, ref: str, to: str, *, new: bool = False) -> Stored:
    """Converts, and returns what was placed."""
    with house.at_work() as ctx:
        done = convert(ctx, ref, to=to, new=new)
        form = {LINES.name: LINES, TINY.name: TINY}[to]
        path = Path(done.to.paths[0])
        assert done.written
        return Stored(form, path.read_bytes(), str(path.relative_to(form.locate.base(house.home))))


def test_s24_the_file_in_place_is_untouched(house: House) -> None:
    house.place(FILE)
    there = carry(house, "lines:p1", "tiny")
    house.place(compacted(there))
    before = house.files()
    abroad = f"tiny:{there.read().id}"
    with house.at_work() as ctx, pytest.raises(Refused) as told:
        convert(ctx, abroad, to="lines")
    assert told.value.code == "target_diverged"
    assert house.files() == before
    fresh = carry(house, abroad, "lines", new=True)
    assert fresh.read().id != "p1"
    assert [m.text for m in fresh.read().messages] == ["We greeted each other.", "So?"]
    assert house.stored(FILE).data == FILE.data


@pytest.mark.parametrize("captured", [False, True])
def test_s30_never_over_messages_that_were_said_meanwhile(house: House, captured: bool) -> None:
    house.place(FILE)
    there = carry(house, "lines:p1", "tiny")
    say(house, there, *MORE)
    say(house, FILE, make_user("meanwhile"))
    if captured:
        from clew.verbs.keep import keep

        with house.at_work() as ctx:
            assert len(list(keep(ctx, ["lines:p1"]))) == 1
    before = house.files()
    with house.at_work() as ctx, pytest.raises(Refused) as told:
        convert(ctx, f"tiny:{there.read().id}", to="lines")
    assert told.value.code == "target_diverged"
    assert (told.value.concerns["group"], told.value.concerns["ours"], told.value.concerns["theirs"]) == (2, 2, 1)
    assert house.files() == before


def test_s30_bookkeeping_alone_is_captured_anew_and_continued_behind(house: House) -> None:
    house.place(FILE)
    there = carry(house, "lines:p1", "tiny")
    say(house, there, *MORE)
    grown = msgspec.structs.replace(FILE, data=FILE.data + row("usage", tokens=7))
    house.place(grown)
    assert carry(house, f"tiny:{there.read().id}", "lines").data == grown.data + user("more") + bot("and more")
    with house.at_work() as ctx:
        assert len(ctx.stores.residue.captures(session_id="p1")) == 3  # type: ignore[arg-type]


def test_s31_three_hops_with_a_message_at_each(house: House) -> None:
    house.place(FILE)
    one = carry(house, "lines:p1", "tiny")
    say(house, one, make_user("said in Q"))
    two = carry(house, f"tiny:{one.read().id}", "lines", new=True)  # R: another session of the agent of lines
    say(house, two, make_user("said in R"))
    three = carry(house, f"lines:{two.read().id}", "tiny", new=True)
    say(house, three, make_user("said in S"))
    (house.home.root / ".lines" / "p1.lines").unlink()
    with house.at_work() as ctx:
        assert open_session(ctx, "lines:p1").found is None
    with house.at_work() as ctx:
        again = restore(ctx, "lines:p1")
    assert [Path(path).read_bytes() for path in again.paths] == [FILE.data]


def test_s31_three_hops_at_the_desk() -> None:
    desk = Desk()
    desk.capture(FILE)
    messages = FILE.read().messages
    for number, form in enumerate([TINY, *(f for f in formats_to_test() if f not in (TINY, LINES))]):
        messages = (*messages, make_user(f"said at hop {number}"))
        messages = desk.carry(form, messages, make_id(f"hop {number}")).read().messages
    back = desk.bring_home(LINES, messages, ["p1"])
    assert isinstance(back, Restored)
    added = text_of(back).removeprefix(FILE.data)
    assert [json.loads(line)["x"] for line in added.splitlines()] == [m.text for m in messages[2:]]
    assert back.report.rendered_messages == len(messages) - 2


def test_s32_a_document_stays_one(house: House) -> None:
    written = store_conversation(TINY, TALK, "doc")
    document = json.loads(written.data)
    document["messages"].insert(1, {"who": "alien", "n": [1.50, {"messages": []}]})
    spaced = json.dumps({"a": "]}", **document, "z": {"messages": [1]}}, indent=2, ensure_ascii=True).encode() + b"\n"
    stored = msgspec.structs.replace(written, data=spaced)
    house.place(stored)
    there = carry(house, "tiny:doc", "lines")
    say(house, there, *MORE)
    again = carry(house, f"lines:{there.read().id}", "tiny").data
    closed = frame_document(spaced).closed
    assert again[:closed] == spaced[:closed]
    assert again.endswith(spaced[closed:])
    assert [e["say"] for e in json.loads(again)["messages"][-2:]] == ["more", "and more"]
    assert json.loads(again)["z"] == {"messages": [1]}


def fork_of_a_parent() -> tuple[Stored, Stored]:
    parent = store_conversation(TINY, TALK, "parent")
    child = store_conversation(TINY, MORE, "child")
    data = child.data.replace(b'"cwd"', b'"parent":{"id":"parent","take":2},"cwd"')
    return parent, msgspec.structs.replace(child, data=data)


def test_s134_a_fork_is_cut_without_its_parents_records() -> None:
    parent, child = fork_of_a_parent()
    source = msgspec.structs.replace(child.source, resolve=lambda name: parent.source if name == "parent" else None)
    session = TINY.read(source)
    assert [m.text for m in session.messages] == ["list the files", "Looking.", "a.txt\nb.txt", "more", "and more"]
    assert session.created_by == (0, 0, 0, 1, 2)
    assert [(c.first, c.last) for c in cut_session(session)] == [(0, 0), (0, 1), (1, 2), (2, 4)]


def test_s134_a_fork_comes_back_and_is_read_with_its_parent_gone(house: House) -> None:
    parent, child = fork_of_a_parent()
    house.place(parent)
    house.place(child)
    there = carry(house, "tiny:child", "lines")
    say(house, there, make_user("in the other agent"))
    for one in (parent, child):
        (house.home.root / ".tiny" / one.path).unlink()
    back = carry(house, f"lines:{there.read().id}", "tiny")
    assert back.path == child.path
    closed = frame_document(child.data).closed
    assert back.data[:closed] == child.data[:closed]
    assert json.loads(back.data)["messages"][-1]["say"] == "in the other agent"
    with house.at_work() as ctx:
        texts = [m.text for m in open_session(ctx, "tiny:child").session.messages]
    assert texts[:3] == ["list the files", "Looking.", "a.txt\nb.txt"]
    assert texts[3:] == ["more", "and more", "in the other agent"]
    with house.at_work() as ctx:
        assert [Path(p).read_bytes() for p in restore(ctx, "tiny:parent").paths] == [parent.data]


def test_s136_opened_meanwhile_and_nothing_said(house: House) -> None:
    house.place(FILE)
    there = carry(house, "lines:p1", "tiny")
    opened = there.data.replace(b'"updated":', b'"opened":1,"updated":')
    house.place(msgspec.structs.replace(there, data=opened))
    say(house, FILE, *MORE)
    again = carry(house, "lines:p1", "tiny")
    assert again.path == there.path
    closed = frame_document(opened).closed
    assert again.data[:closed] == opened[:closed]
    assert again.data.endswith(opened[closed:])
    assert [m.text for m in again.read().messages] == ["hi", "hello", "more", "and more"]
