"""Finding, opening and resuming sessions of pi."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from clew.conversation.builder import make_user
from clew.errors import NotFoundError, UnreadableSource
from clew.formats.pi import FORMAT
from clew.formats.pi.folder import file_name, folder_name, id_in_name
from clew.formats.pi.locate import PiLocate, surroundings
from clew.formats.protocol import Home
from clew.laws.stored import make_id, write_options

LOCATE = PiLocate()
NAME = "2026-11-30T19-14-00-161Z_01a22de0-d960-7636-ab80-6a12fc58f3ce.jsonl"
HEAD = b'{"type":"session","version":3,"id":"own","cwd":"/w"}\n'


def put(home: Path, name: str, data: bytes = HEAD, folder: str = "--w--") -> Path:
    path = home / ".pi" / "agent" / "sessions" / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_folders_and_files_are_named_as_pi_names_them() -> None:
    assert folder_name("/home/dev/projects/app") == "--home-dev-projects-app--"
    assert folder_name("C:\\work\\a b") == "--C--work-a b--"
    assert folder_name("/") == "----"
    assert file_name("x-1", 1_796_066_040_161) == "2026-11-30T19-14-00-161Z_x-1.jsonl"
    assert id_in_name(NAME) == "01a22de0-d960-7636-ab80-6a12fc58f3ce"
    assert id_in_name("other.jsonl") == "other"


def test_ids_stand_in_names_else_in_heads(tmp_path: Path) -> None:
    put(tmp_path, NAME)
    put(tmp_path, "renamed.jsonl")
    put(tmp_path, "broken.jsonl", b"{")
    put(tmp_path, "notes.txt")
    found = {f.path.name: f.id for f in LOCATE.find(Home(tmp_path))}
    assert found == {NAME: id_in_name(NAME), "renamed.jsonl": "own", "broken.jsonl": "broken"}


def test_links_are_named_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / NAME).write_bytes(HEAD)
    path = put(tmp_path, "a.jsonl")
    (path.parent / "link.jsonl").symlink_to(outside / NAME)
    (path.parent.parent / "--x--").symlink_to(outside)
    found = {f.path.name: f for f in LOCATE.find(Home(tmp_path))}
    assert "symbolic link" in found["link.jsonl"].problem
    assert "symbolic link" in found[NAME].problem
    assert not found["a.jsonl"].problem
    with pytest.raises(UnreadableSource):
        LOCATE.load(found["link.jsonl"], Home(tmp_path))
    path.unlink()
    with pytest.raises(NotFoundError):
        LOCATE.load(found["a.jsonl"], Home(tmp_path))


def test_the_agents_own_variables_and_settings_count(tmp_path: Path) -> None:
    home = Home(tmp_path, {"PI_CODING_AGENT_DIR": str(tmp_path / "other")})
    assert LOCATE.base(home) == tmp_path / "other"
    assert LOCATE.base(Home(tmp_path)) == tmp_path / ".pi" / "agent"
    flat = tmp_path / "flat"
    flat.mkdir()
    (flat / NAME).write_bytes(HEAD)
    base = tmp_path / ".pi" / "agent"
    base.mkdir(parents=True)
    (base / "settings.json").write_text(
        json.dumps({"sessionDir": str(flat), "defaultProvider": "p", "defaultModel": "m"})
    )
    assert [f.path for f in LOCATE.find(Home(tmp_path))] == [flat / NAME]
    assert LOCATE.places(Home(tmp_path))[1] == flat
    settings = LOCATE.settings(Home(tmp_path))
    assert (settings.provider, settings.model) == ("p", "m")
    facts = surroundings(Home(tmp_path), "/w")
    assert facts == {"provider": "p", "model": "m", "sessions": flat.as_posix()}
    assert FORMAT.write is not None
    options = msgspec.structs.replace(write_options(make_id("x")), facts=facts)
    written = FORMAT.write((make_user("hi"),), options)
    (file,) = written.files
    assert Path(file.path).parent == flat
    last = json.loads(b"".join(map(bytes, file.chunks())).splitlines()[-1])
    assert (last["type"], last["provider"], last["modelId"]) == ("model_change", "p", "m")


def test_what_is_claimed(tmp_path: Path) -> None:
    assert LOCATE.claims(tmp_path / "x.jsonl", HEAD)
    assert LOCATE.claims(tmp_path / "x.jsonl", b"\n" + HEAD)
    assert not LOCATE.claims(tmp_path / "x.jsonl", b'{"type":"session_start","id":"x"}\n')
    assert not LOCATE.claims(tmp_path / "x.jsonl", b"")


@pytest.mark.parametrize("bad", ["../../etc/passwd", "a/b", "..", "", "a\x00b", "-x", " "])
def test_no_hostile_id_builds_a_path(bad: str) -> None:
    with pytest.raises(AssertionError):
        file_name(bad, 0)


def test_command_lines() -> None:
    resume = FORMAT.resume
    assert resume.argv("x", model="p/m", extra=("--y",)) == ("pi", "--session", "x", "--model", "p/m", "--y")
    assert resume.fork_argv("x") == ("pi", "--fork", "x")
    assert FORMAT.traits.cursor_in_key
