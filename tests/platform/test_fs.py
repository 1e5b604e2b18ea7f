"""Writing files: all or nothing, only over what was expected, through no link, and clean after every
failure."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clew.conversation.digest import bytes_digest
from clew.errors import ClewError, NotFoundError, Refused, StoreLocked
from clew.platform import faults, fs, swap
from clew.platform.fs import ABSENT, Exactly

OLD = b"old bytes\n"


def exactly(data: bytes) -> Exactly:
    return Exactly(len(data), bytes_digest(data))


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old"
    path.write_bytes(OLD)
    return path


def test_a_new_file_with_its_folders_mode_and_digest(tmp_path: Path):
    path = tmp_path / "a" / "b" / "s.jsonl"
    done = fs.write_new(path, [b"one", bytearray(b"two"), memoryview(b"three")], root=tmp_path, mode=0o640)
    assert path.read_bytes() == b"onetwothree"
    assert (done.size, done.digest) == (11, bytes_digest(b"onetwothree"))
    assert (done.inode, done.mtime_ns) == (path.stat().st_ino, path.stat().st_mtime_ns)
    assert path.stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    assert names(tmp_path) == ["a", "a/b", "a/b/s.jsonl"]


def test_large_and_small_chunks_keep_their_order(tmp_path: Path):
    chunks = [b"a" * 10, b"b" * (3 << 20), b"", b"c" * 5, b"d" * (1 << 20), b"e"]
    done = fs.write_new(tmp_path / "s", iter(chunks), root=tmp_path)
    whole = b"".join(chunks)
    assert (tmp_path / "s").read_bytes() == whole
    assert (done.size, done.digest) == (len(whole), bytes_digest(whole))


def test_a_creation_never_overwrites(old: Path):
    with pytest.raises(Refused) as caught:
        fs.write_new(old, [b"new"], root=old.parent)
    assert caught.value.code == "target_diverged"
    assert old.read_bytes() == OLD
    assert names(old.parent) == ["old"]


def test_a_file_is_replaced_when_it_is_what_was_expected(old: Path):
    inode = old.stat().st_ino
    fs.replace_file(old, [b"new"], root=old.parent, expect=exactly(OLD))
    assert old.read_bytes() == b"new"
    assert old.stat().st_ino != inode
    assert names(old.parent) == ["old"]


@pytest.mark.parametrize("there", [b"other size", b"old bytez\n", None])
def test_a_file_is_not_replaced_when_it_is_another(old: Path, there: bytes | None):
    if there is None:
        old.unlink()
    else:
        old.write_bytes(there)
    with pytest.raises(Refused) as caught:
        fs.replace_file(old, [b"new"], root=old.parent, expect=exactly(OLD))
    assert caught.value.code == "target_diverged"
    assert (old.read_bytes() if there else None) == there
    assert len(names(old.parent)) == (1 if there else 0)


def test_appending_leaves_the_old_bytes_in_front(old: Path):
    done = fs.append_file(old, [b"more", b"!"], root=old.parent, expect=exactly(OLD))
    assert old.read_bytes() == OLD + b"more!"
    assert (done.size, done.digest) == (len(OLD) + 5, bytes_digest(OLD + b"more!"))


@pytest.mark.parametrize("there", [OLD + b"grown", b"old bytez\n", b"", None])
def test_appending_to_something_else_is_refused(old: Path, there: bytes | None):
    if there is None:
        old.unlink()
    else:
        old.write_bytes(there)
    with pytest.raises(Refused):
        fs.append_file(old, [b"more"], root=old.parent, expect=exactly(OLD))
    assert (old.read_bytes() if there is not None else None) == there


def test_removing_takes_only_what_was_expected(old: Path):
    with pytest.raises(Refused):
        fs.remove_expected(old, root=old.parent, expect=exactly(b"else"))
    assert old.read_bytes() == OLD
    fs.remove_expected(old, root=old.parent, expect=exactly(OLD))
    assert names(old.parent) == []


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_write_at_the_last_moment_is_seen_and_survives(
    old: Path, can_exchange: bool, monkeypatch: pytest.MonkeyPatch
):
    if not can_exchange:
        monkeypatch.setattr(swap, "exchange", lambda *names: False)
    with (
        faults.installed(place__before_swap=lambda: old.write_bytes(OLD + b"said meanwhile")),
        pytest.raises(Refused, match="last moment"),
    ):
        fs.replace_file(old, [b"new"], root=old.parent, expect=exactly(OLD))
    assert old.read_bytes() == OLD + b"said meanwhile"
    assert names(old.parent) == ["old"]


def test_a_write_between_the_swap_and_the_second_look_is_put_back(old: Path):
    held_open = old.open("ab", buffering=0)
    with (
        held_open,
        faults.installed(place__after_swap=lambda: held_open.write(b"late")),
        pytest.raises(Refused, match="last moment"),
    ):
        fs.replace_file(old, [b"new"], root=old.parent, expect=exactly(OLD))
    assert old.read_bytes() == OLD + b"late"
    assert names(old.parent) == ["old"]


@pytest.mark.parametrize("can_rename", [True, False])
def test_a_file_that_appears_at_the_last_moment_is_not_overwritten(
    tmp_path: Path, can_rename: bool, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "s"
    if not can_rename:
        monkeypatch.setattr(swap, "_load", lambda: None)
    with (
        faults.installed(place__before_swap=lambda: path.write_bytes(b"theirs")),
        pytest.raises(Refused, match="appeared"),
    ):
        fs.write_new(path, [b"ours"], root=tmp_path)
    assert path.read_bytes() == b"theirs"
    assert names(tmp_path) == ["s"]


def test_without_the_renames_of_the_system_everything_still_works(old: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(swap, "_load", lambda: None)
    fs.replace_file(old, [b"new"], root=old.parent, expect=exactly(OLD))
    fs.write_new(old.parent / "s", [b"s"], root=old.parent)
    assert (old.read_bytes(), (old.parent / "s").read_bytes()) == (b"new", b"s")
    fs.remove_expected(old, root=old.parent, expect=exactly(b"new"))
    assert names(old.parent) == ["s"]


def test_a_removal_puts_back_what_was_written_to_meanwhile(old: Path):
    with (
        faults.installed(place__before_remove=lambda: old.write_bytes(b"theirs")),
        pytest.raises(Refused),
    ):
        fs.remove_expected(old, root=old.parent, expect=exactly(OLD))
    assert old.read_bytes() == b"theirs"
    assert names(old.parent) == ["old"]


# --- links ------------------------------------------------------------------------------------------------


def test_no_link_below_the_root_is_written_through(tmp_path: Path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "sub").symlink_to(outside)
    (root / "file").symlink_to(outside / "file")
    (outside / "file").write_bytes(OLD)
    for act in (
        lambda: fs.write_new(root / "sub" / "s", [b"x"], root=root),
        lambda: fs.write_new(root / "sub" / "deep" / "s", [b"x"], root=root),
        lambda: fs.replace_file(root / "file", [b"x"], root=root, expect=exactly(OLD)),
        lambda: fs.append_file(root / "file", [b"x"], root=root, expect=exactly(OLD)),
        lambda: fs.write_new(root / "file", [b"x"], root=root),
        lambda: fs.remove_expected(root / "file", root=root, expect=exactly(OLD)),
        lambda: fs.write_new(root / ".." / "outside" / "s", [b"x"], root=root),
        lambda: fs.write_new(outside / "s", [b"x"], root=root),
    ):
        with pytest.raises(Refused) as caught:
            act()
        assert caught.value.code == "through_link"
    assert names(outside) == ["file"]
    assert (outside / "file").read_bytes() == OLD


def test_the_root_itself_may_be_reached_through_a_link(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to("real")
    fs.write_new(tmp_path / "root" / "s", [b"x"], root=tmp_path / "root")
    assert (tmp_path / "real" / "s").read_bytes() == b"x"


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_is_not_replaced(tmp_path: Path, kind: str):
    path = tmp_path / "s"
    if kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    for expect in (ABSENT, exactly(b"")):
        with pytest.raises(Refused) as caught:
            fs.replace_file(path, [b"x"], root=tmp_path, expect=expect)
        assert caught.value.code == "target_diverged"
    assert names(tmp_path) == ["s"]


def test_a_file_in_place_of_a_folder_is_an_error_with_the_path(tmp_path: Path):
    (tmp_path / "a").touch()
    with pytest.raises(ClewError, match="a/s"):
        fs.write_new(tmp_path / "a" / "s", [b"x"], root=tmp_path)


# --- failures ---------------------------------------------------------------------------------------------

POINTS = ("place.after-temp", "place.before-sync", "place.before-swap", "place.after-swap")


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    ("sort", "code"), [("ENOSPC", "disk_full"), ("EROFS", "no_permission"), ("EIO", "write_failed")]
)
def test_a_failure_anywhere_leaves_what_was_there_and_nothing_else(old: Path, point: str, sort: str, code: str):
    with faults.installed(f"{point}=raise:{sort}"), pytest.raises(ClewError) as caught:
        fs.replace_file(old, [b"new"], root=old.parent, expect=exactly(OLD))
    assert caught.value.code == code
    assert str(old) in caught.value.message
    assert caught.value.hint
    assert old.read_bytes() == OLD
    assert names(old.parent) == ["old"]


def test_a_full_disk_in_the_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real = os.write
    written = 0

    def write(fd: int, data: bytes) -> int:
        nonlocal written
        written += 1
        if written > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(fs.os, "write", write)
    with pytest.raises(ClewError) as caught:
        fs.write_new(tmp_path / "a" / "b" / "s", (b"x" * (1 << 20) for _ in range(5)), root=tmp_path)
    assert caught.value.code == "disk_full"
    assert names(tmp_path) == []


def test_an_error_of_the_producer_rises_as_it_is_and_leaves_nothing(tmp_path: Path):
    def chunks() -> Iterator[bytes]:
        yield b"x"
        raise NotFoundError("gone")

    with pytest.raises(NotFoundError, match="gone"):
        fs.write_new(tmp_path / "a" / "s", chunks(), root=tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("point", [*POINTS, "place.before-folder-sync"])
def test_killed_anywhere_the_file_is_whole_old_or_new(old: Path, point: str):
    code = (
        "import sys; from pathlib import Path; from clew.platform import faults, fs\n"
        "faults.install(sys.argv[2])\n"
        "path = Path(sys.argv[1])\n"
        f"expect = fs.Exactly({len(OLD)}, {bytes_digest(OLD)!r})\n"
        "fs.replace_file(path, [b'new'], root=path.parent, expect=expect)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(old), f"{point}=kill"], timeout=60, check=False)
    assert done.returncode == -9
    swapped = point in ("place.after-swap", "place.before-folder-sync")
    assert old.read_bytes() == (b"new" if swapped else OLD)
    fs.remove_stale_temps(old.parent)
    assert names(old.parent) == ["old"]


def test_a_temporary_file_in_use_is_not_taken_for_a_stale_one(tmp_path: Path):
    removed: list[int] = []
    with faults.installed(place__before_sync=lambda: removed.append(fs.remove_stale_temps(tmp_path))):
        fs.write_new(tmp_path / "s", [b"x"], root=tmp_path)
    assert removed == [0]
    assert names(tmp_path) == ["s"]


def test_two_writers_of_one_path_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fs, "LOCK_TIMEOUT_S", 0.0)
    seen: list[str] = []

    def second() -> None:
        try:
            fs.write_new(tmp_path / "other", [b"x"], root=tmp_path)
        except StoreLocked as error:
            seen.append(error.code)

    with faults.installed(place__before_folder_sync=second):
        fs.write_new(tmp_path / "s", [b"x"], root=tmp_path)
    assert seen == ["store_locked"]
    assert names(tmp_path) == ["s"]


def test_folders_are_made_private(tmp_path: Path):
    fs.ensure_folder(tmp_path / "a" / "b")
    fs.ensure_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").touch()
    with pytest.raises(ClewError):
        fs.ensure_folder(tmp_path / "file" / "x")
