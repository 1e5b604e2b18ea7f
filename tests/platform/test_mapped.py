"""Reading a session's file, and what is refused without blocking."""

from __future__ import annotations

import mmap
import os
import socket
from pathlib import Path

import pytest

from clew.errors import NotFoundError, UnreadableSource
from clew.platform import mapped
from clew.platform.fs import open_source


def test_a_small_file_comes_as_bytes_with_its_facts(tmp_path: Path):
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"{}\n")
    path.chmod(0o640)
    with open_source(path) as source:
        assert source.data == b"{}\n"
        facts = path.stat()
        assert (source.mode, source.size, source.inode) == (0o640, 3, facts.st_ino)
        assert source.mtime_ns == facts.st_mtime_ns
        source.release()
        assert source.data == b"{}\n"


def test_an_empty_file_is_a_file(tmp_path: Path):
    (tmp_path / "s").touch()
    with open_source(tmp_path / "s") as source:
        assert source.data == b""


def test_a_large_file_is_mapped_and_can_be_released_while_it_is_read(tmp_path: Path):
    path = tmp_path / "big"
    path.write_bytes(b"0123456789abcdef" * (mapped.MAP_FROM // 16))
    with open_source(path, root=tmp_path) as source:
        assert isinstance(source.data, mmap.mmap)
        assert source.data[:4] == b"0123"
        source.release(100_000)
        source.release()
        assert source.data[:4] == b"0123"
        assert source.data[-4:] == b"cdef"
        view = memoryview(source.data)
    assert bytes(view[:4]) == b"0123"
    view.release()


def test_a_file_that_grows_is_read_up_to_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "s"
    path.write_bytes(b"one\n")
    facts = path.stat()
    monkeypatch.setattr(mapped.os, "fstat", lambda fd: facts)
    path.write_bytes(b"one\ntwo\n")
    with open_source(path) as source:
        assert source.data == b"one\n"


def test_what_is_not_there_is_not_found(tmp_path: Path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "no", tmp_path / "no" / "no", tmp_path / "file" / "no"):
        with pytest.raises(NotFoundError) as caught:
            open_source(path)
        assert caught.value.concerns["path"] == str(path)
        with pytest.raises(NotFoundError):
            open_source(path, root=tmp_path)


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "pipe", "socket", "device", "loop", "in_link", "nul"])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, kind: str):
    path = tmp_path / "s"
    (tmp_path / "real").write_bytes(b"secret")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").touch()
    if kind == "link":
        path.symlink_to("real")
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(path))
    elif kind == "device":
        path = Path("/dev/null")
    elif kind == "loop":
        path.symlink_to("s2")
        (tmp_path / "s2").symlink_to("s")
        path = path / "below"
    elif kind == "in_link":
        path.symlink_to("d")
        path = path / "f"
        assert open_source(path).data == b""
    else:
        path = tmp_path / "a\0b"
    with pytest.raises((UnreadableSource, NotFoundError)) as caught:
        open_source(path, root=tmp_path if path.is_relative_to(tmp_path) else None)
    assert str(path) in caught.value.message
    if kind == "in_link":
        assert isinstance(caught.value, UnreadableSource | NotFoundError)


def test_what_lies_outside_of_the_root_is_refused(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").touch()
    with pytest.raises(UnreadableSource):
        open_source(tmp_path / "a" / ".." / "b", root=tmp_path / "a")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_says_so(tmp_path: Path):
    (tmp_path / "s").touch(mode=0)
    with pytest.raises(UnreadableSource, match="may not be read"):
        open_source(tmp_path / "s")


def test_a_refusal_of_the_system_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "s").touch()

    def refuse(*args: object, **kwargs: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(mapped.os, "open", refuse)
    with pytest.raises(UnreadableSource, match="may not be read") as caught:
        open_source(tmp_path / "s")
    assert "permission" in caught.value.hint
