"""Finding, opening and resuming sessions of Cline."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from clew.errors import NotFoundError, UnreadableSource
from clew.formats.cline import FORMAT
from clew.formats.cline.folder import session_folder
from clew.formats.protocol import Home

LOCATE = FORMAT.locate
ROOT = {"version": 1, "updated_at": "x", "agent": "lead", "sessionId": "s-1", "messages": []}


def put(home: Path, name: str, value: Any, data: str = ".cline/data") -> Path:
    path = home / data / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def put_session(home: Path, **facts: Any) -> Path:
    put(home, "sessions/s-1/s-1.json", {"session_id": "s-1", "cwd": "/w"} | facts)
    return put(home, "sessions/s-1/s-1.messages.json", ROOT)


@pytest.mark.parametrize("bad", ["../../x", "a/b", "..", "", "a\x00b"])
def test_no_hostile_id_builds_a_path(bad: str) -> None:
    with pytest.raises(AssertionError):
        session_folder("", bad)


def test_sessions_helpers_and_tasks(tmp_path: Path) -> None:
    path = put_session(tmp_path)
    put(tmp_path, "sessions/s-1/helper.messages.json", ROOT | {"agent": "subagent"})
    put(tmp_path, "sessions/s-1/hooks.jsonl", {})
    put(tmp_path, "sessions/empty/empty.json", {})
    put(tmp_path, "tasks/17/api_conversation_history.json", [])
    put(tmp_path, "tasks/17/ui_messages.json", [])
    put(tmp_path, "state/taskHistory.json", [{"id": "17", "cwdOnTaskInitialization": "/t"}])
    put(
        tmp_path, "tasks/18/api_conversation_history.json", [], ".config/Code/User/globalStorage/saoudrizwan.claude-dev"
    )
    found = {f.id: f for f in LOCATE.find(Home(tmp_path))}
    assert {name: (f.kind, f.cwd_hint, f.problem) for name, f in found.items()} == {
        "s-1": ("session", "/w", ""),
        "helper": ("helper", "", ""),
        "17": ("session", "/t", ""),
        "18": ("session", "", ""),
    }
    source = LOCATE.load(found["s-1"], Home(tmp_path))
    folder = ".cline/data/sessions/s-1"
    assert source.streams[0].path == f"{folder}/s-1.messages.json"
    assert [f.path for f in source.side] == [
        f"{folder}/{name}" for name in ("helper.messages.json", "hooks.jsonl", "s-1.json")
    ]
    assert [f.path for f in LOCATE.load(found["17"], Home(tmp_path)).side] == [".cline/data/tasks/17/ui_messages.json"]
    assert LOCATE.load(found["helper"], Home(tmp_path)).side == ()
    assert FORMAT.read(LOCATE.load(found["17"], Home(tmp_path))).cwd == "/t"
    path.unlink()
    with pytest.raises(NotFoundError):
        LOCATE.load(found["s-1"], Home(tmp_path))


def test_links_are_named_and_not_followed(tmp_path: Path) -> None:
    path = put_session(tmp_path)
    outside = tmp_path / "outside"
    path.parent.rename(outside)
    path.parent.symlink_to(outside)
    (found,) = LOCATE.find(Home(tmp_path))
    assert "symbolic link" in found.problem
    with pytest.raises((NotFoundError, UnreadableSource)):
        LOCATE.load(found, Home(tmp_path))


def test_another_data_folder(tmp_path: Path) -> None:
    put_session(tmp_path / "elsewhere")
    home = Home(tmp_path / "home", {"CLINE_DIR": str(tmp_path / "elsewhere" / ".cline")})
    (found,) = LOCATE.find(home)
    source = LOCATE.load(found, home)
    assert source.streams[0].path == str(tmp_path / "elsewhere/.cline/data/sessions/s-1/s-1.messages.json")
    assert FORMAT.read(source).cwd == "/w"
    assert FORMAT.surroundings is not None
    assert FORMAT.surroundings(home, "/w")["data"] == str(tmp_path / "elsewhere/.cline/data")
    named = Home(tmp_path / "home", {"CLINE_DATA_DIR": str(tmp_path / "home" / "d")})
    assert FORMAT.surroundings(named, "/w")["data"] == "d"


def test_settings_claims_and_command_lines(tmp_path: Path) -> None:
    assert LOCATE.settings(Home(tmp_path)).model == ""
    providers = {"p": {"settings": {"model": "m"}}, "q": {}}
    put(tmp_path, "settings/providers.json", {"lastUsedProvider": "p", "providers": providers})
    assert LOCATE.settings(Home(tmp_path)) == type(LOCATE.settings(Home(tmp_path)))("p", "m", ("p", "q"))
    assert LOCATE.claims(tmp_path / "x.json", json.dumps(ROOT, indent=2).encode())
    assert LOCATE.claims(tmp_path / "api_conversation_history.json", b"[{")
    assert not LOCATE.claims(tmp_path / "x.json", b'[{"role":"user"}]')
    assert FORMAT.resume.argv("x", model="m", extra=("-p",)) == ("cline", "--id", "x", "-m", "m", "-p")
    assert FORMAT.resume.fork_argv("x") == ()


def test_a_session_is_held_by_the_process_that_its_description_names(tmp_path: Path) -> None:
    home = Home(tmp_path)
    put_session(tmp_path, status="idle", pid=os.getpid())
    (found,) = LOCATE.find(home)
    owner = FORMAT.resume.owner(found, home)
    assert owner is not None
    assert owner.pid == os.getpid()
    assert FORMAT.resume.owners(home) == {"s-1": owner}
    put(tmp_path, "locks/hub/production.json", {"pid": os.getpid()})
    assert FORMAT.resume.owners(home) == {}
    put(tmp_path, "locks/hub/production.json", {})
    put_session(tmp_path, status="completed", pid=os.getpid())
    assert FORMAT.resume.owner(found, home) is None
    put_session(tmp_path, status="idle", pid=2**31 - 1)
    assert FORMAT.resume.owner(found, home) is None
