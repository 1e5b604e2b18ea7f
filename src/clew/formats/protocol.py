"""What a format is: five rooms behind one object, pure where they can be.

`read`, `write` and `splice` are pure: bytes and values in, bytes and values out; clock and ids are passed in.
`locate` looks into an agent's home but never writes; `resume` only says which command line to run and who is live.
A third party offers the same object through the entry point group `clew.formats`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from clew.conversation.loss import Loss
from clew.conversation.model import Message
from clew.conversation.source import Buffer, Ending, Session, SideFile, Source


class Traits(msgspec.Struct, frozen=True):
    """What a format declares about itself.

    `record_kind`: line, range (of a document), row, or file. `transport` names the id space for handles. `carries_id`:
    whether the records carry the session's id. `cursor_in_key`: whether a place in a tree names the writer's target.
    `holds_*`: what it can say. `any_uuid`: whether clew may choose the id (a derived version 8 UUID).
    `writes`: whether writing is offered; `verified` the version whose real agent resumed what we wrote. `listed_by`
    names the files by which the agent finds a session: they are placed last, so that it never finds half a one.
    """

    record_kind: Literal["line", "range", "row", "file"]
    transport: str
    carries_id: bool = True
    cursor_in_key: bool = False
    holds_images: bool = True
    holds_result_images: bool = True
    holds_empty: bool = True
    any_uuid: bool = True
    writes: bool = True
    verified: str = ""
    offline: bool = True
    listed_by: tuple[str, ...] = ()
    exported: bool = False
    """Whether it is no agent's: its files are written under `--out` only, and nothing resumes from one."""
    names_model: bool = False
    """Whether a session that clew wrote goes on only under a model that is named: the agent's default, if no other."""


class Home(msgspec.Struct, frozen=True):
    """Where agents' homes are looked for: the user's home folder, and the agents' own variables where they count.

    `env` is empty when a root was named on the command line (docs/cli.md).
    """

    root: Path
    env: Mapping[str, str] = {}


class Found(msgspec.Struct, frozen=True):
    """One session as its place shows it, before anything of it is read.

    `path` is the main file (or the database); `files` all streams in order; `kind` is session, helper or archived.
    `stamp` changes whenever a stream does: (mtime in ns, size in bytes) summed over the streams.
    """

    agent: str
    id: str
    path: Path
    files: tuple[Path, ...] = ()
    stamp: tuple[int, int] = (0, 0)
    kind: Literal["session", "helper", "archived"] = "session"
    cwd_hint: str = ""
    problem: str = ""
    """Why it cannot be opened, when that is known already: such a session is listed, never hidden."""
    hint: str = ""
    """What to do about the problem, where the format knows."""
    hides: bool = False
    """Whether it is no session but a database with the problem: which sessions it has is not known."""


class Owner(msgspec.Struct, frozen=True):
    """A live process that holds a session: the agent's own sign of it, checked against the process table."""

    pid: int
    detail: str
    start_ticks: int | None = None


class Settings(msgspec.Struct, frozen=True):
    """What the agent is set to now, as far as its home says: empty where it does not."""

    provider: str = ""
    model: str = ""
    providers: tuple[str, ...] = ()


class WriteOptions(msgspec.Struct, frozen=True):
    """What a writer needs besides the conversation: nothing is invented inside.

    `session_id` is the new session's id; `cwd` the folder it is for; `now_ms` the time of writing (ms since 1970,
    UTC); `new_id` gives a fresh id for a name (the same name gives the same id again); `origin` is `agent:id` of
    the source; `title` and `model` may be empty. `path` is where the stream lies already, for a splice. `facts` is
    what the format's own `surroundings` found in the target's home.
    """

    session_id: str
    cwd: str
    now_ms: int
    new_id: Callable[[str], str]
    origin: str = ""
    title: str = ""
    model: str = ""
    path: str = ""
    facts: Mapping[str, str] = {}


class WrittenFile(msgspec.Struct, frozen=True):
    """One file to place: path relative to the agent's base folder, mode, and its bytes in pieces.

    `chunks` is called anew for each pass, so that a text of 200 MB is never held.
    """

    path: str
    chunks: Callable[[], Iterable[Buffer]]
    mode: int = 0o600
    role: Literal["stream", "side", "index"] = "stream"


class Written(msgspec.Struct, frozen=True):
    """What a writer made: the files, and what the target could not carry."""

    session_id: str
    files: tuple[WrittenFile, ...]
    losses: tuple[Loss, ...] = ()
    invented: int = 0
    """How many answers had to be invented for calls without a result."""


class Locate(Protocol):
    """Where an agent's sessions lie."""

    def base(self, home: Home) -> Path:
        """Returns the agent's base folder, to which streams' paths are relative."""
        ...

    def places(self, home: Home) -> tuple[Path, ...]:
        """Returns the folders and databases that are looked in, for messages."""
        ...

    def find(self, home: Home) -> Iterator[Found]:
        """Yields every session that lies there, cheaply; one bad file never hides the others."""
        ...

    def load(self, found: Found, home: Home) -> Source:
        """Returns the source of a session; raises NotFoundError or UnreadableSource."""
        ...

    def claims(self, path: Path, head: bytes) -> bool:
        """Tells whether a file of unknown origin, whose first bytes are `head`, is of this format."""
        ...

    def settings(self, home: Home) -> Settings:
        """Returns what the agent is set to now, as far as its home says."""
        ...


class Resume(Protocol):
    """Command lines of the agent, and who holds a session."""

    program: str

    def argv(self, session_id: str, *, model: str = "", extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Returns the command line that resumes a session."""
        ...

    def fork_argv(self, session_id: str) -> tuple[str, ...]:
        """Returns the command line that forks a session; empty where the agent has none."""
        ...

    def owner(self, found: Found, home: Home) -> Owner | None:
        """Returns the live process that holds the session by the agent's own sign, or None."""
        ...

    def owners(self, home: Home) -> Mapping[str, Owner]:
        """Returns all live owners by session id, in one look: a list of 10,000 sessions asks once."""
        ...


class ReadFunction(Protocol):
    """Reads a source whole, or goes on from `since` where it can; total: it never raises on any bytes.

    Every byte of every stream is in exactly one record, `created_by` names the record of each message, messages are in
    normal form (`conversation.normal.NormalBuilder`), context is left out, what is odd is reported as damage, and
    every mark of the format's own writer is undone. `since` may be ignored; then `continues` stays None.
    """

    def __call__(self, source: Source, since: Ending | None = None) -> Session: ...


class WriteFunction(Protocol):
    """Writes a conversation in normal form as a new session.

    What it writes reads back to the same keys, for every such conversation (`python -m clew.laws`): what the agent
    cannot take as it is becomes legal and carries a mark (`formats.marks`), a call without a result gets an answer
    that is marked as invented, and what cannot be said at all is a loss.
    """

    def __call__(self, messages: Sequence[Message], options: WriteOptions) -> Written: ...


class SpliceFunction(Protocol):
    """Appends messages to a restored prefix without touching a byte of it (docs/residue.md, 8).

    The stream keeps its path, and the session its id. Calls that stand open in the prefix are answered first, as
    invented. Raises UnwritableContent where nothing can be put behind the prefix (a document that is cut off).
    """

    def __call__(self, prefix: Session, messages: Sequence[Message], options: WriteOptions) -> Written: ...


class RebaseFunction(Protocol):
    """Rewrites a session's verbatim records for another session id, and only that id (docs/residue.md, 8.1)."""

    def __call__(self, session: Session, options: WriteOptions) -> Written: ...


class SurroundingsFunction(Protocol):
    """Returns what a writer has to know of the home and of the folder that it writes for; it never writes."""

    def __call__(self, home: Home, cwd: str) -> Mapping[str, str]: ...


class PlaceRowsFunction(Protocol):
    """Brings the rows of one session to exactly `data`, in one transaction of the database's own engine.

    `path` is a stream's path (`formats.rows.name_rows`), `expect` the rows as they are to be found now, None for no
    such session. Anything else there raises Refused (`target_diverged`); then, and when it raises anything else,
    nothing was written. Rows of other sessions are never touched, shared ones only put where they are missing.
    """

    def __call__(self, home: Home, path: str, data: Buffer, expect: Buffer | None, now_ms: int) -> None: ...


class PresentRowsFunction(Protocol):
    """Returns the rows of one session as they are now, None where there is no such session."""

    def __call__(self, home: Home, path: str) -> Buffer | None: ...


class Format(msgspec.Struct, frozen=True):
    """One agent's format: its name in the command line, its full name, its traits and its five rooms.

    A format whose sessions are rows also places them (`place_rows`, `present_rows`). `make_id` spells an id that clew
    derived (a UUID) as the agent's own, where it takes no UUID.
    """

    name: str
    title: str
    traits: Traits
    read: ReadFunction
    locate: Locate
    resume: Resume
    write: WriteFunction | None = None
    splice: SpliceFunction | None = None
    rebase: RebaseFunction | None = None
    make_id: Callable[[str], str] | None = None
    surroundings: SurroundingsFunction | None = None
    place_rows: PlaceRowsFunction | None = None
    present_rows: PresentRowsFunction | None = None


__all__ = [
    "Buffer",
    "Ending",
    "Format",
    "Found",
    "Home",
    "Locate",
    "Owner",
    "PlaceRowsFunction",
    "PresentRowsFunction",
    "ReadFunction",
    "RebaseFunction",
    "Resume",
    "Session",
    "Settings",
    "SideFile",
    "Source",
    "SpliceFunction",
    "SurroundingsFunction",
    "Traits",
    "WriteFunction",
    "WriteOptions",
    "Written",
    "WrittenFile",
]
