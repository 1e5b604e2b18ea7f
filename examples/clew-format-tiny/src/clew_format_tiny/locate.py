"""Where the documents lie: `.tiny/<id>/doc.json` below the home, or below what TINY_HOME names."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from clew.conversation.source import SideFile, Source, Stream
from clew.formats.folders import Later, entries_of
from clew.formats.protocol import Found, Home, Settings
from clew.platform.fs import open_source


class TinyLocate:
    """Finds and loads documents; changes nothing."""

    def base(self, home: Home) -> Path:
        return Path(home.env["TINY_HOME"]) if "TINY_HOME" in home.env else home.root / ".tiny"

    def places(self, home: Home) -> tuple[Path, ...]:
        return (self.base(home),)

    def find(self, home: Home) -> Iterator[Found]:
        base = self.base(home)
        for folder in sorted(base.iterdir()) if base.is_dir() else ():
            doc = folder / "doc.json"
            try:
                facts = doc.lstat()
            except OSError:
                continue
            problem = "" if stat.S_ISREG(facts.st_mode) and not folder.is_symlink() else "is reached through a link"
            stamp = (facts.st_mtime_ns, facts.st_size)
            yield Found("tiny", folder.name, doc, (doc,), stamp, problem=problem)

    def load(self, found: Found, home: Home) -> Source:
        base = self.base(home)
        below = found.path.is_relative_to(base)
        folder = found.path.parent
        name = found.path.relative_to(base).as_posix() if below else found.path.as_posix()
        with open_source(found.path, root=base if below else None) as opened:
            stream = Stream(name, bytes(opened.data), opened.mode)
        parent = name.rpartition("/")[0]
        names = [f"files/{file}" for file in _names(folder / "files")]
        names += ["card.json"] if "card.json" in _names(folder) else []  # it comes home with the session
        side = tuple(_side(f"{parent}/{file}", folder / file) for file in names)
        return Source((stream,), side, lambda other: self._resolve(other, home), hint_id=found.id)

    def _resolve(self, session_id: str, home: Home) -> Source | None:
        found = next((one for one in self.find(home) if one.id == session_id and not one.problem), None)
        return self.load(found, home) if found else None

    def claims(self, path: Path, head: bytes) -> bool:
        return head.lstrip().startswith(b"{") and b'"tiny":' in head[:200]

    def settings(self, home: Home) -> Settings:
        return Settings()


def _names(folder: Path) -> list[str]:
    """Returns the names of a folder's files; no link is followed, neither to the folder nor in it."""
    inside = () if folder.is_symlink() else entries_of(folder)
    return [entry.name for entry in inside if entry.is_file(follow_symlinks=False)]


def _side(name: str, path: Path) -> SideFile:
    facts = path.lstat()
    return SideFile(name, stat.S_IMODE(facts.st_mode), facts.st_size, Later(path, path.parent))
