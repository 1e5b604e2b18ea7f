"""Finding, opening and resuming sessions of Droid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clew.errors import NotFoundError, UnreadableSource
from clew.formats.droid import FORMAT
from clew.formats.droid.folder import folder_name, stream_path
from clew.formats.droid.locate import DroidLocate
from clew.formats.protocol import Home

LOCATE = DroidLocate()
ID = "7e1f4cf6-0485-49bc-aeb5-0c7ece350ad1"
HEAD = b'{"type":"session_start","id":"' + ID.encode() + b'","title":"T","owner":"o"}\n'


def put(home: Path, name: str, data: bytes = HEAD, folder: str = "-w") -> Path:
    path = home / ".factory" / "sessions" / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_folders_are_named_as_droid_names_them() -> None:
    assert folder_name("/home/u/proj") == "-home-u-proj"
    assert folder_name("/home//u/proj/") == "-home-u-proj"
    assert folder_name("/") == "-"
    assert stream_path("/w", ID) == f"sessions/-w/{ID}.jsonl"


@pytest.mark.parametrize("bad", ["../../x", "a/b", "..", "", "a\x00b"])
def test_no_hostile_id_builds_a_path(bad: str) -> None:
    with pytest.raises(AssertionError):
        stream_path("/w", bad)


def test_sessions_and_what_lies_beside_them(tmp_path: Path) -> None:
    path = put(tmp_path, f"{ID}.jsonl")
    put(tmp_path, f"{ID}.settings.json", b"{}")
    put(tmp_path, "other.settings.json", b"{}")
    put(tmp_path, "old.jsonl", folder=".")
    found = {f.id: f for f in LOCATE.find(Home(tmp_path))}
    assert sorted(found) == [ID, "old"]
    source = LOCATE.load(found[ID], Home(tmp_path))
    assert [f.path for f in source.side] == [f"sessions/-w/{ID}.settings.json"]
    assert bytes(source.side[0].load()) == b"{}"
    assert source.streams[0].path == f"sessions/-w/{ID}.jsonl"
    assert FORMAT.read(source).id == ID
    path.unlink()
    with pytest.raises(NotFoundError):
        LOCATE.load(found[ID], Home(tmp_path))


def test_links_are_named_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / f"{ID}.jsonl").write_bytes(HEAD)
    path = put(tmp_path, "a.jsonl")
    (path.parent / "link.jsonl").symlink_to(outside / f"{ID}.jsonl")
    (path.parent.parent / "-x").symlink_to(outside)
    found = {f.id: f for f in LOCATE.find(Home(tmp_path))}
    assert "symbolic link" in found["link"].problem
    assert "symbolic link" in found[ID].problem
    with pytest.raises(UnreadableSource):
        LOCATE.load(found["link"], Home(tmp_path))


def test_base_settings_claims_and_command_lines(tmp_path: Path) -> None:
    assert LOCATE.base(Home(tmp_path, {"FACTORY_HOME_OVERRIDE": "/x"})) == Path("/x/.factory")
    assert LOCATE.settings(Home(tmp_path)).model == ""
    put(tmp_path, "x.jsonl")
    (tmp_path / ".factory" / "settings.json").write_text(json.dumps({"sessionDefaultSettings": {"model": "m"}}))
    assert LOCATE.settings(Home(tmp_path)).model == "m"
    assert LOCATE.claims(tmp_path / "x", HEAD)
    assert not LOCATE.claims(tmp_path / "x", b'{"type":"session","id":"x"}')
    assert FORMAT.resume.argv("x", model="m", extra=("-y",)) == ("droid", "--resume", "x", "-y")
    assert FORMAT.resume.fork_argv("x") == ("droid", "--fork", "x")
