"""Where conversations of OpenHands lie, and that placing hundreds of files may be broken off anywhere."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clew.conversation.builder import make_assistant, make_call, make_result, make_user
from clew.conversation.model import Message
from clew.errors import UnreadableSource
from clew.formats.openhands import FORMAT
from clew.formats.openhands.folder import id_in_name, number_of
from clew.formats.openhands.locate import OpenHandsLocate, surroundings
from clew.formats.protocol import Home
from clew.formats.registry import get_format
from clew.laws.stored import group_keys, make_id, write_options
from clew.platform.clock import FixedClock
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.keep import keep
from clew.verbs.refer import open_session
from clew.verbs.restore import restore
from clew_corpus import own_case

LOCATE = OpenHandsLocate()
TURNS = tuple(
    message
    for number in range(3)
    for message in (
        make_user(f"Do {number}."),
        make_assistant("Two at once.", make_call(f"a{number}", "f", "{}"), make_call(f"b{number}", "g", "{}")),
        make_result(f"a{number}", "one"),
        make_result(f"b{number}", "", is_error=True),
        make_assistant(f"Done {number}."),
    )
)


def put(form: str, base: Path, messages: Sequence[Message], session_id: str) -> None:
    write = get_format(form).write
    assert write is not None
    for file in write(messages, write_options(session_id)).files:
        path = base / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(map(bytes, file.chunks())))


def make_context(home: Path, minute: int = 0) -> Context:
    clock = FixedClock(datetime(2026, 12, 1, 12, minute, tzinfo=UTC))
    return Context(Home(home), home / "clew-data", cwd=home, clock=clock)


def files_in(home: Path) -> dict[str, bytes]:
    folder = home / ".openhands"
    return {p.relative_to(home).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_places_by_variables(tmp_path: Path) -> None:
    assert LOCATE.base(Home(tmp_path)) == tmp_path / ".openhands" / "conversations"
    assert LOCATE.base(Home(tmp_path, {"OPENHANDS_PERSISTENCE_DIR": "/p"})) == Path("/p/conversations")
    both = {"OPENHANDS_PERSISTENCE_DIR": "/p", "OPENHANDS_CONVERSATIONS_DIR": "/c"}
    assert LOCATE.base(Home(tmp_path, both)) == Path("/c")
    assert FORMAT.resume.argv("x") == ("openhands", "--resume", "x")
    assert FORMAT.resume.fork_argv("x") == ()


def test_one_bad_entry_hides_no_other(tmp_path: Path) -> None:
    base = tmp_path / ".openhands" / "conversations"
    put("openhands", base, TURNS, make_id("good"))
    good = base / make_id("good").replace("-", "")
    for name in ("..evil", "not-hex", "A" * 32, "é" * 32, "0" * 31):
        (base / name / "events").mkdir(parents=True)
    (base / ("1" * 32) / "events").mkdir(parents=True)
    (base / ("2" * 32)).symlink_to(good)
    (base / ("3" * 32)).write_text("a file")
    (base / ("4" * 32)).mkdir()
    (base / ("4" * 32) / "events").symlink_to(good / "events")
    (base / ("4" * 32) / "base_state.json").write_text("{}")
    found = {one.id: one for one in LOCATE.find(Home(tmp_path))}
    assert set(found) == {make_id("good"), id_in_name("2" * 32), id_in_name("4" * 32)}
    assert [bool(one.problem) for one in sorted(found.values(), key=lambda one: bool(one.problem))] == [
        False,
        True,
        True,
    ]
    source = LOCATE.load(found[make_id("good")], Home(tmp_path))
    assert [number_of(stream.path) for stream in source.streams] == list(range(len(source.streams)))
    assert [file.path.rpartition("/")[2] for file in source.side] == ["base_state.json"]
    event = next((good / "events").iterdir())
    assert LOCATE.claims(event, event.read_bytes())
    assert LOCATE.claims(good / "base_state.json", (good / "base_state.json").read_bytes())
    assert not LOCATE.claims(tmp_path / event.name, event.read_bytes())
    target = tmp_path / "elsewhere.json"
    event.rename(target)
    event.symlink_to(target)
    with pytest.raises(UnreadableSource):
        LOCATE.load(found[make_id("good")], Home(tmp_path))


def test_the_newest_own_system_prompt_is_taken_from_the_home(tmp_path: Path) -> None:
    home = own_case("openhands", "simple").copy_home(tmp_path / "home")
    facts = surroundings(Home(home), "/w")
    assert facts["system_prompt"] == "Placeholder for a text of the agent."
    (home / ".openhands" / "agent_settings.json").write_text('{"llm": {"model": "openai/m"}}')
    assert FORMAT.locate.settings(Home(home)).model == "openai/m"
    put("claude", home / ".claude", TURNS, make_id("there"))
    with make_context(home) as ctx:
        made = convert(ctx, f"claude:{make_id('there')}", to="openhands", cwd=str(home))
    folder = home / ".openhands" / "conversations" / made.to.session_id.replace("-", "")
    first = json.loads(next((folder / "events").glob("event-00000-*")).read_text())
    state = json.loads((folder / "base_state.json").read_text())
    assert first["system_prompt"]["text"] == facts["system_prompt"]
    assert state["persistence_dir"] == str(folder)
    assert state["agent"]["llm"]["model"] == "openai/m"
    assert state["tags"] == {"clew": f"claude:{make_id('there')}"}


def test_hundreds_of_files_kept_deleted_and_restored(tmp_path: Path) -> None:
    turns = tuple(
        message
        for number in range(150)
        for message in (make_assistant(make_call(f"c{number}", "f", "{}")), make_result(f"c{number}", f"said {number}"))
    )
    put("openhands", tmp_path / ".openhands" / "conversations", (make_user("Go."), *turns), make_id("long"))
    before = files_in(tmp_path)
    assert len(before) == 303
    with make_context(tmp_path) as ctx:
        list(keep(ctx, [f"openhands:{make_id('long')}"]))
        shutil.rmtree(tmp_path / ".openhands")
        done = restore(ctx, f"openhands:{make_id('long')}")
    assert files_in(tmp_path) == before
    assert len(done.paths) == 303


def test_a_deleted_session_comes_back_with_later_turns(tmp_path: Path) -> None:
    put("openhands", tmp_path / ".openhands" / "conversations", TURNS, make_id("home"))
    before = files_in(tmp_path)
    with make_context(tmp_path) as ctx:
        made = convert(ctx, f"openhands:{make_id('home')}", to="claude", cwd=str(tmp_path))
        shutil.rmtree(tmp_path / ".openhands")
        back = convert(ctx, f"claude:{made.to.session_id}", to="openhands")
    assert back.report.mode == "whole"
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("way", ["new", "grown"])
def test_a_placing_that_was_broken_off_anywhere_is_gone_on_with(way: str, tmp_path: Path) -> None:
    start, ref = tmp_path / "start", f"claude:{make_id('there')}"
    put("claude", start / ".claude", TURNS[:5] if way == "grown" else TURNS, make_id("there"))
    if way == "grown":
        with make_context(start) as ctx:
            convert(ctx, ref, to="openhands", cwd=str(start))
        put("claude", start / ".claude", TURNS, make_id("there"))
    whole = tmp_path / "whole"
    shutil.copytree(start, whole)
    with make_context(whole, 1) as ctx:
        made = convert(ctx, ref, to="openhands", cwd=str(start))
        keys = group_keys(open_session(ctx, ref).session.messages)
    old, all_files = files_in(start), files_in(whole)
    new = [name for name in all_files if name not in old]
    new.sort(key=lambda name: name.endswith("base_state.json"))
    for count in range(len(new)):
        home = tmp_path / f"cut{count}"
        shutil.copytree(start, home)
        for name in new[:count]:
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_bytes(all_files[name])
        with make_context(home, 2) as ctx:
            again = convert(ctx, ref, to="openhands", cwd=str(start))
            assert again.to.session_id == made.to.session_id
            session = open_session(ctx, f"openhands:{again.to.session_id}").session
        assert group_keys(session.messages) == keys
        assert not session.damage
        assert set(files_in(home)) == set(all_files), count
        assert {name: data for name, data in files_in(home).items() if name in old} == old
