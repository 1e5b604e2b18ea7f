"""Sessions of several files are placed so that an interruption leaves nothing that their agent would find."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from clew.errors import ClewError
from clew.formats.protocol import Home
from clew.formats.registry import get_format
from clew.platform.clock import FixedClock
from clew.verbs import place
from clew.verbs.context import Context
from clew.verbs.convert import convert
from clew.verbs.keep import keep
from clew.verbs.place import Item, expected_of, in_safe_order
from clew.verbs.restore import restore
from clew_corpus import own_case

CASE = own_case("claude", "tools")
FOLDERS = {"grok": ("summary.json", "chat_history.jsonl"), "kimi": ("state.json", "wire.jsonl")}


def context(home: Path, tmp_path: Path, minute: int) -> Context:
    clock = FixedClock(datetime(2026, 12, 1, 9, minute, tzinfo=UTC))
    return Context(Home(home), tmp_path / "data", cwd=tmp_path, clock=clock)


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gives the names of the files in the order in which they are placed."""
    names: list[str] = []
    real = place.place_items

    def noting(base: Path, items: Iterable[Item]) -> tuple[Path, ...]:
        items = list(items)
        names.extend(item.path.name for item in items)
        return real(base, items)

    monkeypatch.setattr(place, "place_items", noting)
    return names


@pytest.mark.parametrize("agent", FOLDERS)
def test_a_new_session_is_listed_last(agent: str, tmp_path: Path, placed: list[str]) -> None:
    listed, stream = FOLDERS[agent]
    home = CASE.copy_home(tmp_path / "home")
    with context(home, tmp_path, 0) as ctx:
        made = convert(ctx, f"claude:{CASE.session_id}", to=agent, cwd=str(tmp_path))
    assert placed[-1] == listed
    assert stream in placed[:-1]
    assert placed.count(listed) == 1
    (found,) = get_format(agent).locate.find(Home(home))
    assert found.id == made.to.session_id


@pytest.mark.parametrize("agent", FOLDERS)
def test_a_restored_session_is_listed_last(agent: str, tmp_path: Path, placed: list[str]) -> None:
    listed, stream = FOLDERS[agent]
    home = CASE.copy_home(tmp_path / "home")
    with context(home, tmp_path, 0) as ctx:
        made = convert(ctx, f"claude:{CASE.session_id}", to=agent, cwd=str(tmp_path))
    with context(home, tmp_path, 1) as ctx:
        assert list(keep(ctx, [f"{agent}:{made.to.session_id}"]))
    (found,) = get_format(agent).locate.find(Home(home))
    folder = found.path.parent if agent == "grok" else found.path.parents[2]
    before = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    placed.clear()
    with context(home, tmp_path, 2) as ctx:
        restore(ctx, f"{agent}:{made.to.session_id}")
    assert placed[-1] == listed
    assert stream in placed[:-1]
    assert {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("agent", FOLDERS)
def test_an_interrupted_placing_is_made_good_by_the_next_one(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = CASE.copy_home(tmp_path / "home")
    real = place.place_items

    def breaking(base: Path, items: Iterable[Item]) -> tuple[Path, ...]:
        items = list(items)
        if items[0].path.name == FOLDERS[agent][0]:
            raise ClewError("the power went off", code="write_failed")
        return real(base, items)

    with monkeypatch.context() as broken:
        broken.setattr(place, "place_items", breaking)
        with context(home, tmp_path, 0) as ctx, pytest.raises(ClewError, match="power"):
            convert(ctx, f"claude:{CASE.session_id}", to=agent, cwd=str(tmp_path))
    assert not list(home.rglob(FOLDERS[agent][0]))
    with context(home, tmp_path, 1) as ctx:
        made = convert(ctx, f"claude:{CASE.session_id}", to=agent, cwd=str(tmp_path))
        assert made.written
    (path,) = home.rglob(FOLDERS[agent][0])
    assert made.to.session_id.encode() in path.read_bytes()
    with context(home, tmp_path, 2) as ctx:
        assert not convert(ctx, f"claude:{CASE.session_id}", to=agent, cwd=str(tmp_path)).written


def test_of_two_files_for_one_place_the_last_one_counts(tmp_path: Path) -> None:
    form = get_format("kimi")

    def item(name: str, text: bytes) -> Item:
        return Item(tmp_path / name, lambda: [text], 0o600, expected_of(None))

    first, journal, second = item("state.json", b"1"), item("wire.jsonl", b"2"), item("state.json", b"3")
    assert in_safe_order(form, [first, journal, second]) == [journal, second]
