"""Writes a conversation as a session that Gemini CLI lists, resumes, and sends whole to its model.

Calls stand among the parts of a message and results in a message of the user behind it, each once: in the agent's own
other form (`toolCalls` with results) every resume would send the results one time more. A text that the agent would
drop or mistake stands behind a part with one invisible sign. The file's name has the second in it, so that the stub
which a resume in the same minute makes is another file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from clew.conversation.model import Image, Message, Part, Text
from clew.conversation.text import text_of
from clew.formats.gemini.content import sort_text
from clew.formats.gemini.records import BLANK, DROPPED, project_hash
from clew.formats.marks import Mark
from clew.formats.parts.spelling import Pieces, around, encode_value, string_pieces
from clew.formats.parts.values import head_of
from clew.formats.parts.writing import Content, Dialect, Writer, count_losses, thoughts_of
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.spelling import spell
from clew.formats.times import write_time
from clew.ids import is_safe_name

PLACES = "tmp"
CHATS = "chats"
OWNER_FILE = ".project_root"
_OTHER = re.compile(r"[^a-z0-9]+")


def drops(parts: Sequence[Part]) -> bool:
    """Tells whether the agent would leave out a user's message of these parts when it resumes."""
    for part in parts:
        if isinstance(part, Image):
            return False
        if isinstance(part, Text):
            head = head_of(part.source).lstrip(BLANK)
            if not head:
                head = text_of(part.source).lstrip(BLANK)
            if head:
                return head.startswith(DROPPED)
    return True


DIALECT = Dialect(
    kinds=frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}),
    sort=sort_text,
    drops=drops,
)


def write(messages: Sequence[Message], options: WriteOptions) -> Written:
    """Writes a conversation in normal form as a new session."""
    slug = options.facts.get("slug") or options.facts.get("claim") or make_slug(options.cwd)
    losses, invented = count_losses(messages, DIALECT, thinks=True)
    start = next((m.time_ms for m in messages if m.time_ms is not None), options.now_ms)

    def chunks() -> Pieces:
        yield _header(options, start)
        yield from (piece for record in Records(messages, options).records() for piece in (*record, b"\n"))

    files = [WrittenFile(options.path or stream_path(slug, options.session_id, start), chunks)]
    if options.cwd and "slug" not in options.facts:
        files.append(owner_file(slug, options.cwd))
    return Written(options.session_id, tuple(files), losses, invented)


def owner_file(slug: str, cwd: str) -> WrittenFile:
    """Returns the mark that says which folder a slug is of; the agent adds it to its own list."""
    name = cwd.encode("utf-8", "replace")
    return WrittenFile(f"{PLACES}/{slug}/{OWNER_FILE}", lambda: [name], role="index")


def unmarked_owner(path: str, cwd: str, options: WriteOptions) -> tuple[WrittenFile, ...]:
    """Returns the mark of the slug that a session lies under, where the home has none for its folder.

    None where the home was not looked at, where the slug is another folder's, or a hash: the agent knows those itself.
    """
    parts = path.split("/")
    if parts[0] != PLACES or parts[2:3] != [CHATS] or not cwd or cwd != options.cwd:
        return ()
    taken = options.facts.get("taken", "").split("\n")
    if "claim" not in options.facts or parts[1] in taken or len(parts[1]) == 64:
        return ()
    return (owner_file(parts[1], cwd),)


def make_slug(cwd: str) -> str:
    """Returns the name that the agent itself would first try for a folder."""
    name = _OTHER.sub("-", cwd.rstrip("/").rpartition("/")[2].lower()).strip("-")
    return name[:100] or "project"


def stream_path(slug: str, session_id: str, start_ms: int, ending: str = ".jsonl") -> str:
    """Returns where a session's file lies, below the base folder; asserts that the id may be part of a name."""
    assert is_safe_name(session_id), "the caller gives ids of clew's own making"
    moment = write_time(start_ms)[:19].replace(":", "-")
    return f"{PLACES}/{slug}/{CHATS}/session-{moment}-{session_id[:8]}{ending}"


def _header(options: WriteOptions, start_ms: int) -> bytes:
    """The time of the last change is the time of writing: the agent clears away what is old."""
    header: dict[str, object] = {
        "sessionId": options.session_id,
        "projectHash": project_hash(options.cwd),
        "startTime": write_time(start_ms),
        "lastUpdated": write_time(options.now_ms),
        "kind": "main",
    }
    if options.cwd:
        header["directories"] = [options.cwd.encode("utf-8", "replace").decode()]
    if options.title:
        header["summary"] = options.title.encode("utf-8", "replace").decode()
    if options.origin:
        header["clew"] = Mark(from_=options.origin)
    return encode_value(header) + b"\n"


class Records:
    """Makes the records of a conversation, one message an object; used for new sessions and behind old ones."""

    def __init__(
        self, messages: Sequence[Message], options: WriteOptions, *, first: int = 0, taken: frozenset[str] = frozenset()
    ) -> None:
        self.messages, self.options = messages, options
        self.writer = Writer(messages, DIALECT, taken=taken)
        self.count = first
        self.time_ms = next((m.time_ms for m in messages if m.time_ms is not None), options.now_ms)

    def records(self) -> Iterator[Pieces]:
        """Yields each record in pieces; all results of one message are one record."""
        waiting: list[Content] = []
        for content in self.writer.contents():
            if content.sort == "result":
                waiting.append(content)
                continue
            if waiting:
                yield self.answers(waiting)
                waiting = []
            yield self._record(content)
        if waiting:
            yield self.answers(waiting)

    def answers(self, contents: Sequence[Content]) -> Pieces:
        """Yields the record of these results."""
        calls = {name: mark for content in contents if content.mark for name, mark in content.mark.calls.items()}
        standin = sum(content.mark.standin for content in contents if content.mark)
        mark = None
        if calls or standin:
            found = next(content.mark for content in contents if content.mark)
            mark = msgspec.structs.replace(found, calls=calls, standin=standin)
        for content in contents:
            self._tick(content.message)
        yield self._head(b"user")
        for number, content in enumerate(contents):
            pieces = list(content.parts())
            assert pieces[0].startswith(b"["), "a content is a list of parts"
            pieces[0] = (b"," if number else b"[") + pieces[0][1:]
            assert pieces[-1].endswith(b"]"), "a content is a list of parts"
            pieces[-1] = pieces[-1][:-1]
            yield from pieces
        yield b"]" + _mark_member(mark) + b"}"

    def _record(self, content: Content) -> Pieces:
        self._tick(content.message)
        assert content.message is not None, "only made-up answers have none"
        if content.sort == "user":
            foot = _mark_member(content.mark) + b"}"
            yield from around(self._head(b"user"), content.parts(), foot)
            return
        yield from around(self._head(b"gemini"), content.parts(), b"")
        thoughts = thoughts_of(content.message)
        at = write_time(self.time_ms).encode() if thoughts else b""
        for number, thought in enumerate(thoughts):
            yield (b"," if number else b',"thoughts":[') + b'{"subject":"","description":'
            yield from string_pieces(thought)
            yield b',"timestamp":"' + at + b'"}'
        if thoughts:
            yield b"]"
        if content.message.model:
            yield b',"model":' + spell(content.message.model)
        yield _mark_member(content.mark) + b"}"

    def _head(self, sort: bytes) -> bytes:
        self.count += 1
        name = spell(self.options.new_id(f"record {self.count}"))
        at = write_time(self.time_ms).encode()
        return b'{"id":' + name + b',"timestamp":"' + at + b'","type":"' + sort + b'","content":'

    def _tick(self, message: Message | None) -> None:
        if message is not None and message.time_ms is not None:
            self.time_ms = message.time_ms


def _mark_member(mark: Mark | None) -> bytes:
    return b"" if mark is None else b',"clew":' + encode_value(mark)
