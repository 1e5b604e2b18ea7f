"""Sessions that are single files in known places: found by pattern, opened without following a link.

For agents of which clew reads files and starts nothing: `Shelf` is their locate room, `Aside` their resume room.
Nothing is written here, and no id from inside a file builds a path.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from clew.conversation.source import SideFile, Source, Stream
from clew.errors import UnsupportedVersion
from clew.formats.folders import LINK, odd_kind
from clew.formats.protocol import Found, Home, Owner, Settings
from clew.platform.mapped import open_source


def look_at(
    agent: str, path: Path, session_id: str, cwd: str = "", problem: str = "", beside: Iterable[Path] = ()
) -> Found:
    """Returns a file as it is found: with what stands against opening it, and with the stamp of its change.

    `beside` are the files that describe the session, where there are any: the stamp is also of their change.
    """
    stamp = (0, 0)
    try:
        facts = path.lstat()
        stamp = (facts.st_mtime_ns, facts.st_size)
        if stat.S_ISLNK(facts.st_mode):
            problem = problem or LINK
        elif not stat.S_ISREG(facts.st_mode):
            problem = problem or "not a regular file"
    except OSError as error:
        problem = problem or f"cannot be looked at: {error.strerror}"
    for file in beside:
        try:
            facts = file.lstat()
        except OSError:
            continue
        stamp = (max(stamp[0], facts.st_mtime_ns), stamp[1] + facts.st_size)
        problem = problem or odd_kind(file.name, facts.st_mode)
    return Found(agent, session_id, path, (path,), stamp, "session", cwd, problem)


def places_of(base: Path, patterns: Iterable[str]) -> tuple[Path, ...]:
    """Returns what patterns name before their first sign that stands for many names; each place once."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        parts = pattern.split("/")
        fixed = next((at for at, part in enumerate(parts) if "*" in part), len(parts))
        if fixed or len(parts) == 1:
            found[base.joinpath(*parts[:fixed])] = None
    return tuple(found)


def files_below(base: Path, pattern: str) -> list[Path]:
    """Returns the files that a pattern names below a folder, sorted; none where the folder may not be read."""
    try:
        return sorted(base.glob(pattern))
    except OSError:
        return []


def open_stream(path: Path, base: Path) -> Stream:
    """Returns a file as a stream; its path is relative to the base folder where it lies below it."""
    inside = path.is_relative_to(base)
    mapped = open_source(path, root=base if inside else None)
    name = path.relative_to(base).as_posix() if inside else path.as_posix()
    return Stream(name, memoryview(mapped.data), mapped.mode, mapped.release)


def side_file(path: Path, base: Path) -> SideFile | None:
    """Returns a file beside a session; None where there is none that may be read."""
    try:
        facts = path.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(facts.st_mode) or not path.is_relative_to(base):
        return None

    def load() -> memoryview:
        return memoryview(open_source(path, root=base).data)

    return SideFile(path.relative_to(base).as_posix(), stat.S_IMODE(facts.st_mode), facts.st_size, load)


class Shelf:
    """Finds, opens and recognises sessions that are single files.

    `base` gives the folder that paths are relative to, `patterns` say which files below it are sessions, `name` gives
    the id that a place carries, `knows` recognises a file by its first bytes. `refuse` gives the reason why a layout is
    not read, or nothing; then it is refused by name. `beside` gives the side files of a session.
    """

    def __init__(
        self,
        agent: str,
        base: Callable[[Home], Path],
        patterns: Iterable[str],
        knows: Callable[[Path, bytes], bool],
        *,
        name: Callable[[Path], str] = lambda path: path.stem,
        refuse: Callable[[Path], str] = lambda path: "",
        beside: Callable[[Path], Iterable[Path]] = lambda path: (),
        hidden: bool = False,
    ) -> None:
        self.agent, self._base, self.patterns, self._knows = agent, base, tuple(patterns), knows
        self.name, self.refuse, self.beside, self.hidden = name, refuse, beside, hidden

    def base(self, home: Home) -> Path:
        """Returns the folder to which streams' paths are relative."""
        return self._base(home)

    def places(self, home: Home) -> tuple[Path, ...]:
        """Returns the folders and files that are looked in; none where no home has one."""
        return () if self.hidden else places_of(self._base(home), self.patterns)

    def find(self, home: Home) -> Iterator[Found]:
        """Yields every file that the patterns name."""
        seen: set[Path] = set()
        for pattern in self.patterns:
            for path in files_below(self._base(home), pattern):
                if path not in seen:
                    seen.add(path)
                    yield look_at(self.agent, path, self.name(path))

    def load(self, found: Found, home: Home) -> Source:
        """Returns the source of a session; raises NotFoundError, UnreadableSource or UnsupportedVersion."""
        base = self._base(home)
        reason = self.refuse(found.path)
        if reason:
            raise UnsupportedVersion(f"{found.path}: {reason}", path=str(found.path), session=found.id)
        side = tuple(file for path in self.beside(found.path) if (file := side_file(path, base)) is not None)
        return Source((open_stream(found.path, base),), side, hint_id=self.name(found.path), hint_cwd=found.cwd_hint)

    def claims(self, path: Path, head: bytes) -> bool:
        """Tells whether a file of unknown origin, whose first bytes are `head`, is of this format."""
        return self._knows(path, head)

    def settings(self, home: Home) -> Settings:
        """Returns nothing: clew does not know what this agent is set to."""
        return Settings()


class Aside:
    """The resume room of an agent that clew does not start: no command line, no live owner."""

    def __init__(self, program: str = "", argv: Callable[[str], tuple[str, ...]] = lambda session_id: ()) -> None:
        self.program = program
        self._argv = argv

    def argv(self, session_id: str, *, model: str = "", extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Returns the command line that resumes a session; empty where there is none."""
        line = self._argv(session_id)
        return (*line, *extra) if line else ()

    def fork_argv(self, session_id: str) -> tuple[str, ...]:
        """Returns nothing: there is no way to fork that clew knows."""
        return ()

    def owner(self, found: Found, home: Home) -> Owner | None:
        """Returns None: no sign of a live owner is known."""
        return None

    def owners(self, home: Home) -> Mapping[str, Owner]:
        """Returns nothing."""
        return {}
