"""An agent of another package, through every verb: nothing in the verbs knows which formats there are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.model import Image
from clew.errors import ClewError, Refused
from clew.laws.stored import Stored, store_conversation
from clew.store.protocol import UNKEYED
from clew.verbs.agents import agents
from clew.verbs.capture import capture_session
from clew.verbs.convert import convert
from clew.verbs.converted import Converted
from clew.verbs.keep import Kept, NotKept, keep
from clew.verbs.ls import ls
from clew.verbs.refer import open_session
from clew.verbs.restore import restore
from clew.verbs.resume import resume
from clew.verbs.show import show
from clew_format_tiny import FORMAT as TINY
from clew_format_tiny.writer import LONG
from houses import House, agents_of_the_tests
from lineformat import FORMAT as LINES
from toysessions import bot, row, session_of, user

OUTPUT = "a long line of output\n" * LONG
PICTURE = Image("image/png", "iVBORw0KGgo=")
TALK = (
    make_user("look at this", PICTURE),
    make_assistant(make_call("c1", "run", '{"command":"make"}')),
    make_result("c1", OUTPUT),
    make_assistant("It is long."),
)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with agents_of_the_tests(tmp_path / "site"):
        yield House(tmp_path)


def tiny(house: House, name: str = "one") -> Stored:
    stored = store_conversation(TINY, TALK, name)
    house.place(stored)
    return stored


def run(house: House, ref: str, to: str, **options: object) -> Converted:
    with house.at_work() as ctx:
        return convert(ctx, ref, to=to, **options)  # type: ignore[arg-type]


def test_it_is_listed_and_shown(house: House) -> None:
    tiny(house)
    with house.at_work() as ctx:
        (listed,) = ls(ctx, every_folder=True)
        assert (listed.agent, listed.id, listed.messages) == ("tiny", "one", 3)
        assert {one.name for one in agents(ctx)} >= {"claude", "codex", "lines", "tiny"}
        shown = show(ctx, "one")
    assert [group.tool_results[0].text for group in shown.messages if group.tool_results] == [OUTPUT]
    assert shown.messages[0].images == 1


def test_side_files_that_the_writer_makes_are_placed_and_read_back(house: House) -> None:
    lines = store_conversation(LINES, TALK, "l1")
    house.place(lines)
    done = run(house, "lines:l1", "tiny")
    placed = [name for name in house.files() if name.startswith(".tiny/")]
    assert len(placed) == 4
    assert any(name.endswith("/card.json") for name in placed)
    assert done.report.mode == "plain"
    with house.at_work() as ctx:
        assert show(ctx, f"tiny:{done.to.session_id}").messages[1].tool_results[0].text == OUTPUT


def test_side_files_come_home_with_what_was_spliced(house: House) -> None:
    stored = tiny(house)
    there = run(house, "tiny:one", "lines")
    path = house.home.root / ".lines" / f"{there.to.session_id}.lines"
    with path.open("ab") as file:
        file.write(b'{"t":"user","x":"again"}\n{"t":"bot","parts":[{"k":"call","id":"c9","name":"run","args":"{}"}]}\n')
        file.write(json.dumps({"t": "out", "id": "c9", "x": OUTPUT + "!"}).encode() + b"\n")
        file.write(json.dumps({"t": "user", "x": "and the same again"}).encode() + b"\n")
        file.write(b'{"t":"bot","parts":[{"k":"call","id":"c10","name":"run","args":"{}"}]}\n')
        file.write(json.dumps({"t": "out", "id": "c10", "x": OUTPUT}).encode() + b"\n")
    base = house.home.root / ".tiny"
    for name in [name for name in house.files() if name.startswith(".tiny/")]:
        (house.home.root / name).unlink()
    done = run(house, f"lines:{there.to.session_id}", "tiny")
    assert (done.report.mode, done.to.session_id) == ("prefix", "one")
    assert {p.name for p in (base / "one" / "files").iterdir()} >= {Path(f.path).name for f in stored.side}
    with house.at_work() as ctx:
        texts = [r.text for group in show(ctx, "tiny:one").messages for r in group.tool_results]
    assert texts == [OUTPUT, OUTPUT + "!", OUTPUT]


def test_a_side_file_that_was_changed_stays_and_is_told(house: House) -> None:
    stored = tiny(house)
    there = run(house, "tiny:one", "lines")
    base = house.home.root / ".tiny"
    changed, *others = (base / file.path for file in stored.side)
    changed.write_text("somebody's own")
    for path in (base / stored.path, *others):
        path.unlink()
    done = run(house, f"lines:{there.to.session_id}", "tiny")
    assert changed.read_text() == "somebody's own"
    assert all(path.exists() for path in others)
    assert [warning.partition(" ")[0] for warning in done.report.warnings] == [str(changed)]


def test_a_fork_in_its_own_agent_keeps_every_other_byte(house: House) -> None:
    stored = tiny(house)
    done = run(house, "tiny:one", "tiny", new=True)
    assert done.report.mode == "rebased"
    data = Path(done.to.paths[0]).read_bytes()
    assert data == stored.data.replace(b'"id":"one"', b'"id":"' + done.to.session_id.encode() + b'"')
    with house.at_work() as ctx:
        assert show(ctx, f"tiny:{done.to.session_id}").messages[1].tool_results[0].text == OUTPUT
        assert len(list((house.home.root / ".tiny" / done.to.session_id / "files").iterdir())) == 2


def test_what_it_cannot_say_is_told(house: House) -> None:
    house.place(store_conversation(LINES, (make_user("x"), make_assistant("y", PICTURE)), "l2"))
    before = house.files()
    with house.at_work() as ctx, pytest.raises(ClewError) as told:
        convert(ctx, "lines:l2", to="tiny", strict=True)
    assert told.value.code == "losses"
    assert house.files() == before
    done = run(house, "lines:l2", "tiny")
    assert [(loss.what, loss.count) for loss in done.report.losses] == [("images", 1)]


def test_an_owner_of_its_own_is_asked_for(house: House) -> None:
    lines = store_conversation(LINES, TALK[:1], "l3")
    path = house.place(lines)
    there = run(house, "lines:l3", "tiny")
    (house.home.root / ".tiny" / there.to.session_id / "owner").write_text("4321")
    path.write_bytes(lines.data + b'{"t":"user","x":"more"}\n')
    before = house.files()
    with house.at_work() as ctx:
        for act in (
            lambda: convert(ctx, "lines:l3", to="tiny"),
            lambda: resume(ctx, f"tiny:{there.to.session_id}", accept=("cwd",)),
        ):
            with pytest.raises(Refused) as told:
                act()
            assert told.value.code == "live_owner"
            assert "4321" in told.value.message
    assert house.files() == before


def test_kept_deleted_and_restored_with_its_side_files(house: House) -> None:
    tiny(house)
    before = house.files()
    with house.at_work() as ctx:
        assert [type(one) for one in keep(ctx, [])] == [Kept]
    for name in before:
        (house.home.root / name).unlink()
    with house.at_work() as ctx:
        done = restore(ctx, "one")
    assert house.files() == before
    assert len(done.paths) == 3


def test_a_damaged_document_is_kept_shown_and_never_written_behind(house: House) -> None:
    lines = store_conversation(LINES, TALK[:1], "l4")
    path = house.place(lines)
    there = run(house, "lines:l4", "tiny")
    doc = Path(there.to.paths[0])
    doc.write_bytes(doc.read_bytes().partition(b"]")[0] + b',{"who":"bot","say":"cut o')
    path.write_bytes(lines.data + b'{"t":"user","x":"more"}\n')
    before = house.files()
    with house.at_work() as ctx:
        shown = show(ctx, f"tiny:{there.to.session_id}")
        assert [harm.sort for harm in shown.damage] == ["torn tail"]
        with pytest.raises(ClewError) as told:
            convert(ctx, "lines:l4", to="tiny")
        assert told.value.exit_code == 5
        assert str(doc).endswith(told.value.concerns["path"])  # type: ignore[arg-type]
    assert house.files() == before


def test_one_bad_entry_hides_no_other(house: House, tmp_path: Path) -> None:
    tiny(house)
    base = house.home.root / ".tiny"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "doc.json").write_bytes(b"{}")
    (base / "linked").symlink_to(tmp_path / "elsewhere")
    (base / "a folder").mkdir()
    (base / "a folder" / "doc.json").mkdir()
    (base / "nonsense").mkdir()
    (base / "nonsense" / "doc.json").write_bytes(b"\xff\x00nonsense")
    with house.at_work() as ctx:
        states = {row.id: row.state for row in ls(ctx, every_folder=True, hidden=True)}
        assert states["one"] == "idle"
        assert states["linked"] == states["a folder"] == "unreadable"
        assert states["nonsense"] in ("empty", "damaged")
        kept = list(keep(ctx, []))
    assert sorted(type(one) is NotKept for one in kept) == [False, False, True, True]


def test_a_session_that_is_cut_only_in_part_is_kept_whole(house: House) -> None:
    stored = session_of(user("hi"), bot("hello"), row("invent", x="made up"), user("later"))
    path = house.place(stored)
    with house.at_work() as ctx:
        assert [type(one) for one in keep(ctx, [])] == [Kept]
        (capture,) = ctx.stores.residue.captures()
        assert ctx.stores.residue.keys(capture.id)[-1] == UNKEYED
    path.unlink()
    with house.at_work() as ctx:
        restore(ctx, "lines:p1")
    assert path.read_bytes() == stored.data


def test_a_capture_without_its_bytes_is_never_put_back(house: House) -> None:
    path = house.place(session_of(user("hi")))
    with house.at_work() as ctx:
        opened = open_session(ctx, "lines:p1")
        rendered = msgspec.structs.replace(opened.session, verbatim=False)
        capture_session(ctx, msgspec.structs.replace(opened, session=rendered))
    path.unlink()
    with house.at_work() as ctx, pytest.raises(ClewError) as told:
        restore(ctx, "lines:p1")
    assert told.value.code == "damaged_segment"
    assert not path.exists()
