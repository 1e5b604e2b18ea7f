"""A damaged description is told in every format that has one, and costs no message."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from clew.conversation.source import SideFile
from clew.formats.described import damaged_descriptions
from clew.formats.protocol import Home
from clew.formats.registry import get_format
from clew_corpus import own_case

DESCRIBED = {"cline": ".json", "grok": "summary.json", "kimi": "/state.json", "openhands": "base_state.json"}
BROKEN = {
    "halved": b'{"a":1,"b',
    "emptied": b"",
    "zeros": bytes(40),
    "garbage": b"<html>",
    "a list": b"[1]",
    "deep": b"[" * 9999,
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("agent", DESCRIBED)
def test_a_damaged_description_is_told(agent: str, how: str, tmp_path: Path) -> None:
    case, form = own_case(agent, "simple"), get_format(agent)
    home = Home(case.copy_home(tmp_path / "home"))
    found = next(one for one in form.locate.find(home) if one.id == case.session_id)
    source = form.locate.load(found, home)
    whole = form.read(source)
    described = [
        file.path
        for file in source.side
        if file.path.endswith(DESCRIBED[agent]) and (agent != "cline" or file.path.endswith(f"/{found.id}.json"))
    ]
    name = min(described, key=len)
    side = [replaced(file, BROKEN[how]) if file.path == name else file for file in source.side]
    spoiled = form.read(msgspec.structs.replace(source, side=tuple(side)))
    assert [harm.file for harm in spoiled.damage if harm.lost] == [name]
    assert not whole.damage
    assert [m.text for m in spoiled.messages] == [m.text for m in whole.messages]


def replaced(file: SideFile, data: bytes) -> SideFile:
    return SideFile(file.path, file.mode, len(data), lambda: data)


def test_one_that_cannot_be_had_is_told_and_one_that_is_not_there_is_not() -> None:
    def fails() -> bytes:
        raise OSError("no")

    (told,) = damaged_descriptions((SideFile("a/x.json", 0o600, 1, fails),), ("a/x.json", "a/y.json"))
    assert (told.file, told.lost) == ("a/x.json", True)


@pytest.mark.parametrize("agent", DESCRIBED)
def test_a_changed_description_is_seen_in_the_stamp(agent: str, tmp_path: Path) -> None:
    case, form = own_case(agent, "simple"), get_format(agent)
    home = Home(case.copy_home(tmp_path / "home"))
    found = next(one for one in form.locate.find(home) if one.id == case.session_id)
    ending = {**DESCRIBED, "cline": f"/{found.id}.json"}[agent]
    described = [path for path in tmp_path.rglob("*.json") if str(path).endswith(ending)]
    path = min(described, key=lambda one: len(str(one)))
    path.write_bytes(path.read_bytes() + b" ")
    (again,) = [one for one in form.locate.find(home) if one.id == case.session_id]
    assert again.stamp != found.stamp


@pytest.mark.parametrize("agent", DESCRIBED)
def test_a_link_in_the_place_of_a_description_is_told(agent: str, tmp_path: Path) -> None:
    case, form = own_case(agent, "simple"), get_format(agent)
    home = Home(case.copy_home(tmp_path / "home"))
    found = next(one for one in form.locate.find(home) if one.id == case.session_id)
    ending = {**DESCRIBED, "cline": f"/{found.id}.json"}[agent]
    path = min((p for p in tmp_path.rglob("*.json") if str(p).endswith(ending)), key=lambda one: len(str(one)))
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    (again,) = [one for one in form.locate.find(home) if one.id == case.session_id]
    assert again.problem
