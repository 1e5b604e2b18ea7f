"""Where Grok's sessions lie, what is listed, what is refused, and the command lines."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from clew.conversation.builder import make_assistant, make_user
from clew.errors import NotFoundError, UnreadableSource
from clew.formats.grok import FORMAT
from clew.formats.grok.folder import cwd_of, group_name, session_path
from clew.formats.grok.reader import read
from clew.formats.grok.writer import write
from clew.formats.protocol import Home, WriteOptions
from clew.laws.stored import make_id, write_options
from folder_samples import place, spoken

LONG = "/home/dev1/" + "ö" * 60 + "/Main Branch!"
TALK = (make_user("Hello there."), make_assistant("Hi."))


def options(cwd: str = "/home/dev1/proj", title: str = "") -> WriteOptions:
    return WriteOptions(make_id("one"), cwd, 1_760_000_000_000, lambda name: name, "claude:1", title)


def test_folders_are_named_as_the_agent_names_them() -> None:
    assert group_name("/home/dev3/grok-tools/proj") == "%2Fhome%2Fdev3%2Fgrok-tools%2Fproj"
    assert group_name("/home/ü x") == "%2Fhome%2F%C3%BC%20x"
    assert group_name(LONG).startswith("main-branch-")
    assert len(group_name(LONG)) == len("main-branch-") + 16
    assert cwd_of(group_name("/home/ü x")) == "/home/ü x"
    assert cwd_of(group_name(LONG)) == ""


def test_what_is_written_is_found_with_its_folder(tmp_path: Path) -> None:
    for number, cwd in enumerate(("/home/dev1/proj", LONG)):
        home = Home(tmp_path / str(number))
        found = place(FORMAT, home, write(TALK, options(cwd, "A title")))
        assert (found.id, found.cwd_hint, found.problem) == (make_id("one"), cwd, "")
        session = read(FORMAT.locate.load(found, home))
        assert (session.id, session.cwd, session.title) == (make_id("one"), cwd, "A title")
        assert spoken(session.messages) == [("user", "Hello there."), ("assistant", "Hi.")]
        assert found.path.is_relative_to(FORMAT.locate.places(home)[0])


def test_the_description_has_what_the_agent_asks_for(tmp_path: Path) -> None:
    found = place(FORMAT, Home(tmp_path), write(TALK, options()))
    summary = json.loads((found.path.parent / "summary.json").read_bytes())
    needed = {"info", "session_summary", "created_at", "updated_at", "num_messages", "current_model_id"}
    assert needed <= summary.keys()
    assert summary["session_summary"] == "Hello there."
    assert summary["created_at"] == "2025-10-09T08:53:20.000000000Z"


def test_side_files_belong_to_their_session_but_locks_do_not(tmp_path: Path) -> None:
    found = place(FORMAT, Home(tmp_path), write(TALK, options()))
    folder = found.path.parent
    (folder / "terminal").mkdir()
    (folder / "terminal" / "call_1.log").write_text("x")
    (folder / "summary.json.lock").write_text("")
    os.symlink("/etc/passwd", folder / "away")
    side = FORMAT.locate.load(found, Home(tmp_path)).side
    names = [Path(file.path).name for file in side]
    assert names == ["summary.json", "call_1.log", "updates.jsonl"]
    assert all(file.path.startswith(session_path("/home/dev1/proj", make_id("one"))) for file in side)


def test_one_bad_entry_hides_no_other(tmp_path: Path) -> None:
    home = Home(tmp_path)
    good = place(FORMAT, home, write(TALK, options()))
    group = good.path.parent.parent
    (group / "no-history").mkdir()
    (group / "no-history" / "summary.json").write_text("{}")
    (group / "shown-only").mkdir()
    (group / "shown-only" / "summary.json").write_text("{}")
    (group / "shown-only" / "updates.jsonl").write_text("{}\n")
    (group / "linked").mkdir()
    (group / "linked" / "chat_history.jsonl").symlink_to(good.path)
    (group / "a-folder").mkdir()
    (group / "a-folder" / "chat_history.jsonl").mkdir()
    (group / "away").symlink_to(good.path.parent)
    (group / "nothing").mkdir()
    (group / "prompt_history.jsonl").write_text("{}\n")
    (group.parent / "session_search.sqlite").write_text("")
    problems = {found.id: found.problem for found in FORMAT.locate.find(home)}
    assert problems.pop(good.id) == ""
    assert problems.pop("shown-only") == ""
    assert "missing" in problems.pop("no-history")
    assert "symbolic link" in problems.pop("linked")
    assert "not a regular file" in problems.pop("a-folder")
    assert "symbolic link" in problems.pop("away")
    assert not problems
    for found in FORMAT.locate.find(home):
        if found.problem:
            with pytest.raises((UnreadableSource, NotFoundError)):
                FORMAT.locate.load(found, home)


def test_the_agent_s_own_variable_names_another_base(tmp_path: Path) -> None:
    home = Home(tmp_path, {"GROK_HOME": str(tmp_path / "elsewhere")})
    assert FORMAT.locate.base(home) == tmp_path / "elsewhere"
    assert list(FORMAT.locate.find(home)) == []


def test_the_configured_model_is_told(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert FORMAT.locate.settings(home).model == ""
    path = FORMAT.locate.base(home) / "config.toml"
    path.parent.mkdir()
    path.write_text('[models]\ndefault = "grok-4"\n')
    assert FORMAT.locate.settings(home).model == "grok-4"
    path.write_text("not toml [")
    assert FORMAT.locate.settings(home).model == ""


def test_a_history_of_unknown_origin_is_claimed_and_others_are_not() -> None:
    claims = FORMAT.locate.claims
    assert claims(Path("x.jsonl"), b'{"type":"system","content":"Be good."}\n')
    assert claims(Path("x.jsonl"), b'{"type":"user","content":[{"type":"text","text":"x"}],"prompt_index":0}\n')
    assert not claims(Path("x.jsonl"), b'{"type":"user","uuid":"x","message":{"role":"user","content":"x"}}\n')
    assert not claims(Path("x.jsonl"), b'{"timestamp":"x","type":"session_meta","payload":{}}\n')
    assert not claims(Path("x.jsonl"), b"no json\n")
    assert not claims(Path("x.jsonl"), b"")


def test_command_lines() -> None:
    resume = FORMAT.resume
    assert resume.argv("x") == ("grok", "-r", "x")
    assert resume.argv("x", model="grok-4", extra=("--yolo",)) == ("grok", "-r", "x", "-m", "grok-4", "--yolo")
    assert resume.fork_argv("x") == ("grok", "-r", "x", "--fork-session")
    assert resume.owners(Home(Path("/nowhere"))) == {}


def test_options_of_the_tests_are_those_of_the_writer() -> None:
    assert write_options().session_id == make_id("one")
