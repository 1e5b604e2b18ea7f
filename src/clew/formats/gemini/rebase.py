"""Makes a session's verbatim records those of another session: its id, and only that, changes, byte for byte.

The id stands in the header and in every `$set` that repeats it; in a document among its own members. Texts, calls and
ids of messages are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from clew.conversation.source import Buffer, Session, SideFile, Stream
from clew.formats.gemini.document import is_document
from clew.formats.gemini.writer import CHATS, make_slug, stream_path
from clew.formats.parts.spelling import change_member
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.spelling import spell
from clew.ids import is_safe_name

_MEMBER = b'"sessionId"'


def rebase(session: Session, options: WriteOptions) -> Written:
    """Returns the session's records with `options.session_id` for its own."""
    assert is_safe_name(options.session_id), "the caller gives ids of clew's own making"
    stream = session.records.streams[0] if session.records.streams else Stream("", b"")
    old, new = spell(session.id), spell(options.session_id)

    last = len(session.records) - 1
    whole = is_document(memoryview(stream.data), stream.path)

    def chunks() -> Iterator[Buffer]:
        for number in range(last + 1):
            if whole and 0 < number < last:
                yield session.records[number]
                continue
            yield from change_member(bytes(session.records[number]), _MEMBER, old, new, _is_own)

    path = options.path or _path(stream.path, session, options)
    files = [WrittenFile(path, chunks, stream.mode)]
    for side in session.side:
        place = _side_path(side.path, session.id, options.session_id)
        if place:
            files.append(WrittenFile(place, lambda s=side: [_load(s)], side.mode, "side"))
    return Written(options.session_id, tuple(files))


def _load(side: SideFile) -> Buffer:
    return side.load()


def _is_own(place: tuple[bytes, ...]) -> bool:
    return place in ((), (b'"$set"',))


def _path(path: str, session: Session, options: WriteOptions) -> str:
    parts = path.split("/")
    slug = parts[parts.index(CHATS) - 1] if CHATS in parts[1:] else make_slug(options.cwd or session.cwd)
    slug = options.facts.get("slug") or slug
    ending = PurePosixPath(path).suffix or ".jsonl"
    return stream_path(slug, options.session_id, options.now_ms, ending if ending == ".json" else ".jsonl")


def _side_path(path: str, old: str, new: str) -> str:
    """Returns where a side file lies for the new session; nothing for one whose place does not name the id."""
    parts = path.split("/")
    for own, other in ((old, new), (f"session-{old}", f"session-{new}")):
        if own in parts[:-1]:
            at = parts.index(own)
            return "/".join((*parts[:at], other, *parts[at + 1 :]))
    return ""
