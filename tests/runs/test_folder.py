"""Where runs lie, their active locks, and deleting them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import AmbiguousError, NotFoundError, RunError, UsageError
from clew.runs.active import ActiveLock, probe
from clew.runs.engine import carry_out
from clew.runs.folder import delete_run, encode_scope, find_all, get_run, scope_folder
from runs.toys import Toy, make_settings, tree_of


def test_scenario_119_a_held_lock_is_active_and_a_second_opener_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.lock"
    assert probe(path) == "inactive", "missing"
    assert not path.exists(), "a probe creates nothing"
    with ActiveLock(path, "r") as held:
        assert held.supported
        assert probe(path) == "active"
        assert probe(path) == "active", "a probe leaves nothing held, and takes nothing away"
        with pytest.raises(RunError, match="already active") as caught, ActiveLock(path, "r"):
            pass
        assert caught.value.code == "run_active"
    assert probe(path) == "inactive", "released"
    held.close()
    assert path.exists(), "the file stays"
    path.write_text("4711\nstale")
    assert probe(path) == "inactive", "stale"
    with ActiveLock(path, "r"):
        assert probe(path) == "active"


def test_a_lock_falls_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "r.lock"
    code = (
        "import os, sys, pathlib; from clew.runs.active import ActiveLock; "
        "ActiveLock(pathlib.Path(sys.argv[1]), 'r').__enter__(); print('held', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        assert probe(path) == "active"
        child.kill()
    assert probe(path) == "inactive"


def test_where_locking_is_impossible_the_run_goes_on(tmp_path: Path) -> None:
    with ActiveLock(tmp_path / "missing" / "r.lock", "r") as lock:
        assert not lock.supported
    (tmp_path / "link.lock").symlink_to(tmp_path / "elsewhere")
    assert probe(tmp_path / "link.lock") == "unknown"


@given(st.text("ab-/", max_size=8), st.text("ab-/", max_size=8))
def test_folders_of_different_paths_differ(left: str, right: str) -> None:
    assert (encode_scope(Path("/" + left)) == encode_scope(Path("/" + right))) == (
        Path("/" + left) == Path("/" + right)
    )


def test_folder_names_are_readable_and_bounded() -> None:
    assert encode_scope(Path("/home/dev/a b/c")).startswith("home-dev-a-b-c-")
    assert encode_scope(Path("/")).startswith("empty-")
    assert len(encode_scope(Path("/" + "x" * 4000))) < 120


def test_runs_are_found_by_a_unique_beginning(tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    one = carry_out(Toy({"a": "1"}), settings).manifest.run_id
    two = carry_out(Toy({"a": "1"}, scope=Path("/other")), settings).manifest.run_id
    assert get_run(tmp_path, one).run_id == one
    with pytest.raises(AmbiguousError) as caught:
        get_run(tmp_path, "run-")
    assert len(caught.value.concerns["candidates"]) == 2  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="no run is called"):
        get_run(tmp_path, "zzz")
    assert {run.run_id for run in find_all(tmp_path)} == {one, two}
    assert list(find_all(tmp_path / "missing")) == []


def test_one_id_under_two_repositories_is_never_picked(tmp_path: Path) -> None:
    for scope in ("/one", "/two"):
        carry_out(Toy({"a": "1"}, scope=Path(scope)), make_settings(tmp_path))
    with pytest.raises(AmbiguousError, match="names 2 runs"):
        get_run(tmp_path, "run-1")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\\b", ".hidden", "a\0b"])
def test_an_id_is_one_path_element(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        delete_run(tmp_path, name, None)


def test_deleting_asks_for_the_repository_that_the_log_records(tmp_path: Path) -> None:
    home, runs = tmp_path / "shop", tmp_path / "runs"
    home.mkdir()
    (tmp_path / "link").symlink_to(home)
    settings = make_settings(runs)
    run = carry_out(Toy({"a": "1"}, scope=home), settings).manifest.run_id
    before = tree_of(tmp_path)
    with pytest.raises(RunError) as caught:
        delete_run(runs, run, tmp_path)
    assert caught.value.code == "run_other_repo"
    assert tree_of(tmp_path) == before
    deleted = delete_run(runs, run, tmp_path / "link")
    assert not deleted.path.exists()
    assert not deleted.lock_path.exists()


def test_a_log_that_records_no_folder_is_deleted_by_its_id_alone(tmp_path: Path) -> None:
    folder = scope_folder(tmp_path, Path("/x"))
    folder.mkdir(parents=True)
    (folder / "old.jsonl").write_bytes(b"")
    with pytest.raises(RunError) as caught:
        delete_run(tmp_path, "old", Path("/x"))
    assert caught.value.code == "run_unverifiable"
    delete_run(tmp_path, "old", None)
    assert list(find_all(tmp_path)) == []


def test_an_active_run_and_a_linked_log_are_not_deleted(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    folder = scope_folder(runs, Path("/x"))
    folder.mkdir(parents=True)
    (folder / "live.jsonl").write_bytes(b"")
    with ActiveLock(folder / "live.lock", "live"), pytest.raises(RunError, match="is active"):
        delete_run(runs, "live", None)
    (tmp_path / "target.jsonl").write_bytes(b"")
    (folder / "link.jsonl").symlink_to(tmp_path / "target.jsonl")
    with pytest.raises(NotFoundError):
        delete_run(runs, "link", None)
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "far.jsonl").write_bytes(b"")
    os.symlink(tmp_path / "far", runs / "far")
    with pytest.raises(NotFoundError):
        delete_run(runs, "far", None)
