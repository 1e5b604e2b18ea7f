"""Where threads lie, what is found without being read, and what the agent is set to."""

from __future__ import annotations

from pathlib import Path

import pytest

from clew.errors import NotFoundError
from clew.formats.codex.locate import LOCATE
from clew.formats.codex.reader import read
from clew.formats.protocol import Found, Home
from codex_samples import ID, OTHER, message, meta, shape

THIRD = "01a22df5-7ada-8893-8deb-9be09a8006e3"


def put(home: Path, name: str, data: bytes = b"{}\n") -> Path:
    path = home / ".codex" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def found(home: Path) -> dict[str, Found]:
    return {one.id: one for one in LOCATE.find(Home(home))}


def test_only_prefix_and_id_of_the_name_count(tmp_path: Path) -> None:
    put(tmp_path, f"sessions/2026/11/30/rollout-2026-11-30T19-36-34-{ID}.jsonl")
    put(tmp_path, f"sessions/rollout-{OTHER}.jsonl")
    put(tmp_path, f"sessions/2026/session-{THIRD}.jsonl")
    put(tmp_path, f"sessions/2026/rollout-2026-11-30T19-36-34-{THIRD}.jsonl.bak")
    put(tmp_path, "sessions/2026/rollout-2026-11-30T19-36-34-..%2f..%2fetc.jsonl")
    put(tmp_path, "session_index.jsonl")
    assert set(found(tmp_path)) == {ID, OTHER}


def test_nothing_there_is_nothing_found(tmp_path: Path) -> None:
    assert found(tmp_path) == {}


def test_files_of_one_thread_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    folder = "sessions/2026/11/30/rollout-2026-11-30T19-"
    third = put(tmp_path, f"{folder}59-00-{ID}_{THIRD}.jsonl")
    second = put(tmp_path, f"{folder}40-00-{ID}_{OTHER}.jsonl")
    first = put(tmp_path, f"{folder}36-34-{ID}.jsonl")
    (one,) = found(tmp_path).values()
    assert one.files == (first, second, third)
    assert one.path == first
    assert one.stamp[1] == 9


def test_a_plain_file_goes_before_its_compressed_sibling(tmp_path: Path) -> None:
    name = f"sessions/2026/11/30/rollout-2026-11-30T19-36-34-{ID}.jsonl"
    plain = put(tmp_path, name)
    put(tmp_path, name + ".zst")
    alone = put(tmp_path, f"sessions/2026/11/29/rollout-2026-11-29T19-36-34-{OTHER}.jsonl.zst")
    assert found(tmp_path)[ID].files == (plain,)
    assert found(tmp_path)[OTHER].files == (alone,)


def test_archived_threads_are_archived_and_can_be_parents(tmp_path: Path) -> None:
    parent = meta(OTHER, 0) + message("user", "one", ordinal=1)
    put(tmp_path, f"archived_sessions/rollout-2026-11-30T19-36-34-{OTHER}.jsonl", parent)
    base = {"thread_id": OTHER, "end_ordinal_exclusive": 2}
    child = meta(ID, 2, history_base=base) + message("user", "two", ordinal=3)
    put(tmp_path, f"sessions/2026/11/30/rollout-2026-11-30T19-36-35-{ID}.jsonl", child)
    threads = found(tmp_path)
    assert (threads[OTHER].kind, threads[ID].kind) == ("archived", "session")
    source = LOCATE.load(threads[ID], Home(tmp_path))
    assert source.streams[0].path == f"sessions/2026/11/30/rollout-2026-11-30T19-36-35-{ID}.jsonl"
    assert shape(read(source)) == [("user", "one"), ("user", "two")]


def test_a_file_that_went_away_is_not_found(tmp_path: Path) -> None:
    path = put(tmp_path, f"sessions/rollout-{ID}.jsonl")
    (one,) = found(tmp_path).values()
    path.unlink()
    with pytest.raises(NotFoundError):
        LOCATE.load(one, Home(tmp_path))


def test_a_folder_of_that_name_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / ".codex" / "sessions" / f"rollout-{OTHER}.jsonl").mkdir(parents=True)
    put(tmp_path, f"sessions/rollout-{ID}.jsonl")
    assert set(found(tmp_path)) == {ID}


def test_the_agents_own_variable_names_the_base(tmp_path: Path) -> None:
    home = Home(tmp_path, {"CODEX_HOME": str(tmp_path / "elsewhere")})
    assert LOCATE.base(home) == tmp_path / "elsewhere"
    assert LOCATE.base(Home(tmp_path)) == tmp_path / ".codex"
    assert [place.name for place in LOCATE.places(home)] == ["sessions", "archived_sessions"]


@pytest.mark.parametrize(
    ("name", "head", "claimed"),
    [
        ("x.jsonl", meta(), True),
        ("x.jsonl", b"\xef\xbb\xbf" + meta(), True),
        (f"rollout-{ID}.jsonl.zst", b"\x28\xb5\x2f\xfd\x00", True),
        ("rollout-x.jsonl", b'{"id":"a","timestamp":"2025-05-07T17:24:21.597Z","instructions":null}\n', True),
        ("x.zst", b"\x28\xb5\x2f\xfd\x00", False),
        ("x.jsonl", b'{"type":"user","sessionId":"a"}\n', False),
        ("x.jsonl", b"", False),
    ],
)
def test_a_rollout_is_known_by_its_first_line(name: str, head: bytes, claimed: bool) -> None:
    assert LOCATE.claims(Path(name), head) is claimed


def test_settings_come_from_the_configuration(tmp_path: Path) -> None:
    assert LOCATE.settings(Home(tmp_path)).provider == "openai"
    put(tmp_path, "config.toml", b'model = "gpt-5.5"\nmodel_provider = "proxy"\n[model_providers.proxy]\nname = "p"\n')
    settings = LOCATE.settings(Home(tmp_path))
    assert (settings.provider, settings.model, settings.providers) == ("proxy", "gpt-5.5", ("openai", "proxy"))
    put(tmp_path, "config.toml", b"model = [\n")
    assert LOCATE.settings(Home(tmp_path)).provider == "openai"
    put(tmp_path, "config.toml", b"model = 5\nmodel_providers = 7\n")
    assert LOCATE.settings(Home(tmp_path)).model == ""


def test_a_name_comes_from_the_index(tmp_path: Path) -> None:
    put(tmp_path, f"sessions/rollout-{ID}.jsonl", meta() + message("user", "hello"))
    (one,) = found(tmp_path).values()
    assert read(LOCATE.load(one, Home(tmp_path))).title == ""
    rows = [(OTHER, "other"), (ID, "first"), (ID, "knots"), (OTHER, ID)]
    lines = "".join(f'{{"id":"{id_}","thread_name":"{name}","updated_at":"x"}}\n' for id_, name in rows)
    put(tmp_path, "session_index.jsonl", lines.encode() + b"garbage " + ID.encode() + b"\n")
    assert read(LOCATE.load(one, Home(tmp_path))).title == "knots"
