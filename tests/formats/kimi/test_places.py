"""Where Kimi Code's sessions lie, what is listed, what is refused, and the command lines."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from clew.conversation.builder import make_assistant, make_user
from clew.errors import NotFoundError, UnreadableSource, UnsupportedVersion
from clew.formats.kimi import FORMAT
from clew.formats.kimi.folder import folder_name
from clew.formats.kimi.reader import read
from clew.formats.kimi.writer import write
from clew.formats.protocol import Found, Home, WriteOptions
from clew.laws.stored import make_id
from folder_samples import lines, place, spoken

TALK = (make_user("Hello there."), make_assistant("Hi."))


def options(title: str = "") -> WriteOptions:
    return WriteOptions(make_id("one"), "/home/dev1/proj", 1_760_000_000_000, lambda name: name, "claude:1", title)


def written(home: Home, title: str = "") -> Found:
    return place(FORMAT, home, write(TALK, options(title)))


def test_folders_are_named_as_the_agent_names_them() -> None:
    assert folder_name("/home/dev3/kimi-code-tools/proj") == "wd_proj_43432832f1ba"  # seen
    assert folder_name("/home/dev3/kimi-code-tools/proj/") == "wd_proj_43432832f1ba"
    assert folder_name("/").startswith("wd_workspace_")
    assert folder_name("/x/Größe & Co").startswith("wd_gr-e-co_")
    assert folder_name("/x/" + "a" * 50).startswith("wd_" + "a" * 40 + "_")


def test_what_is_written_is_found(tmp_path: Path) -> None:
    home = Home(tmp_path)
    found = written(home, "A title")
    session = read(FORMAT.locate.load(found, home))
    assert (session.id, session.cwd, session.title) == (make_id("one"), "/home/dev1/proj", "A title")
    assert spoken(session.messages) == [("user", "Hello there."), ("assistant", "Hi.")]
    state = json.loads((found.path.parents[2] / "state.json").read_bytes())
    assert {"id", "version", "cwd"} <= state.keys()
    assert (state["version"], state["lastPrompt"]) == (2, "Hello there.")


def test_helpers_are_sessions_of_their_own_and_side_files_of_their_session(tmp_path: Path) -> None:
    home = Home(tmp_path)
    found = written(home)
    helper = found.path.parents[1] / "agent-0" / "wire.jsonl"
    helper.parent.mkdir()
    said = {"role": "user", "content": [{"type": "text", "text": "Help."}]}
    helper.write_bytes(lines({"type": "context.append_message", "agentId": "agent-0", "message": said}))
    main, other = FORMAT.locate.find(home)
    assert (main.kind, other.kind, other.id) == ("session", "helper", f"{main.id}.agent-0")
    assert [Path(file.path).name for file in FORMAT.locate.load(main, home).side] == ["wire.jsonl", "state.json"]
    session = read(FORMAT.locate.load(other, home))
    assert session.helper
    assert [(r.relation, r.session_id) for r in session.references] == [("helper_of", main.id)]
    assert spoken(session.messages) == [("user", "Help.")]


def test_one_bad_entry_hides_no_other(tmp_path: Path) -> None:
    home = Home(tmp_path)
    good = written(home)
    folder = good.path.parents[2].parent
    (folder / "no-journal").mkdir()
    (folder / "no-journal" / "state.json").write_text("{}")
    (folder / "linked" / "agents" / "main").mkdir(parents=True)
    (folder / "linked" / "agents" / "main" / "wire.jsonl").symlink_to(good.path)
    (folder / "a-folder" / "agents" / "main" / "wire.jsonl").mkdir(parents=True)
    (folder / "away").symlink_to(good.path.parents[2])
    (folder / "nothing").mkdir()
    (folder.parent / ".index-cache").mkdir()
    (folder.parent / ".index-cache" / "scan.json").write_text("{}")
    problems = {found.id: found.problem for found in FORMAT.locate.find(home)}
    assert problems.pop(good.id) == ""
    assert "missing" in problems.pop("no-journal")
    assert "symbolic link" in problems.pop("linked")
    assert "not a regular file" in problems.pop("a-folder")
    assert "symbolic link" in problems.pop("away")
    assert not problems
    for found in FORMAT.locate.find(home):
        if found.problem:
            with pytest.raises((UnreadableSource, NotFoundError)):
                FORMAT.locate.load(found, home)


def test_links_among_side_files_are_left_alone(tmp_path: Path) -> None:
    home = Home(tmp_path)
    found = written(home)
    os.symlink("/etc/passwd", found.path.parents[2] / "away")
    assert [Path(file.path).name for file in FORMAT.locate.load(found, home).side] == ["state.json"]


def test_a_newer_layout_is_refused_by_name(tmp_path: Path) -> None:
    home = Home(tmp_path)
    found = written(home)
    (found.path.parents[2] / "state.json").write_text('{"version":3}')
    with pytest.raises(UnsupportedVersion, match="layout 3"):
        FORMAT.locate.load(found, home)


def test_the_agent_s_own_variable_names_another_base(tmp_path: Path) -> None:
    home = Home(tmp_path, {"KIMI_CODE_HOME": str(tmp_path / "elsewhere")})
    assert FORMAT.locate.base(home) == tmp_path / "elsewhere"
    assert list(FORMAT.locate.find(home)) == []


def test_the_configured_model_is_told(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert FORMAT.locate.settings(home).model == ""
    path = FORMAT.locate.base(home) / "config.toml"
    path.parent.mkdir()
    path.write_text('default_model = "k2"\n')
    assert FORMAT.locate.settings(home).model == "k2"


def test_a_journal_of_unknown_origin_is_claimed_and_others_are_not() -> None:
    claims = FORMAT.locate.claims
    assert claims(Path("x.jsonl"), b'{"type":"metadata","protocol_version":"1.5","created_at":1}\n')
    assert not claims(Path("x.jsonl"), b'{"type":"user","uuid":"x","message":{"role":"user","content":"x"}}\n')
    assert not claims(Path("x.jsonl"), b"")


def test_command_lines() -> None:
    resume = FORMAT.resume
    assert resume.argv("x") == ("kimi", "-S", "x")
    assert resume.argv("x", model="k2", extra=("--auto",)) == ("kimi", "-S", "x", "-m", "k2", "--auto")
    assert resume.fork_argv("x") == ("kimi", "fork", "x")
    assert resume.owners(Home(Path("/nowhere"))) == {}
