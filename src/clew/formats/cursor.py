"""Cursor: the agent's transcripts, JSON lines. Read, kept and restored; its own stores are refused by name.

From public sources: a line has a role and a message, a text alone or blocks in the manner of Anthropic's API. What the
user typed stands in `<user_query>`; what stands around it is context. Results may be missing: it is a transcript, not
what Cursor resumes from. Older transcripts (`.txt`) and the databases are known too little to be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from clew.conversation.model import Message, Part, Text
from clew.conversation.source import Ending, Session, Source
from clew.formats.blocks import read_blocks
from clew.formats.loose import NONE, Members, members_of, word_in
from clew.formats.protocol import Format, Traits
from clew.formats.shelf import Aside, Shelf
from clew.formats.sketch import Sketch

AGENT = "cursor"
_OPEN, _CLOSE = "<user_query>", "</user_query>"
_LINE = re.compile(rb'\{"role":"(?:user|assistant)","message":\{"content":')
_OLD = "an older transcript of Cursor, whose form clew does not know well enough to read it"
_STORE = "a store of Cursor's own, whose form clew does not know well enough to read it"


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a transcript whole."""
    sketch = Sketch(AGENT, source)
    for stream in source.streams:
        for number, line in sketch.lines(stream):
            _take(sketch, line, number)
    return sketch.finish()


def _take(sketch: Sketch, line: Members, number: int) -> None:
    role = word_in(line.get("role", NONE))
    found = read_blocks(members_of(line.get("message", NONE)).get("content", NONE))
    for _ in range(found.unknown):
        sketch.skip("content blocks of an unknown kind")
    for result in found.results:
        sketch.say(result, number)
    if role == "user":
        sketch.say(Message("user", tuple(map(_typed, found.parts))), number)
    elif role == "assistant":
        sketch.say(Message("assistant", tuple(found.parts), "model"), number)
    elif "role" in line or "message" in line:
        sketch.report(number, "foreign record", "a line of an unknown role")


def _typed(part: Part) -> Part:
    """Returns what the user typed of a text."""
    if not isinstance(part, Text):
        return part
    found = list(_queries(part.text))
    return Text("\n".join(found)) if found else part


def _queries(text: str) -> Iterator[str]:
    """Yields what stands in each wrapper, without the line ends beside it."""
    at = text.find(_OPEN)
    while at >= 0:
        end = text.find(_CLOSE, at)
        if end < 0:
            return
        yield text[at + len(_OPEN) : end].removeprefix("\n").removesuffix("\n")
        at = text.find(_OPEN, end)


def _refuse(path: Path) -> str:
    if path.suffix == ".txt":
        return _OLD
    return _STORE if path.suffix in (".db", ".vscdb") else ""


def _knows(path: Path, head: bytes) -> bool:
    if path.suffix == ".vscdb" or (path.name == "store.db" and head.startswith(b"SQLite format 3\x00")):
        return True
    return _LINE.match(head.replace(b": ", b":").replace(b", ", b",")) is not None


FORMAT = Format(
    name=AGENT,
    title="Cursor",
    traits=Traits(record_kind="line", transport=AGENT, carries_id=False, any_uuid=False, writes=False, offline=False),
    read=read,
    locate=Shelf(
        AGENT,
        lambda home: home.root / ".cursor",
        ("projects/*/agent-transcripts/*.jsonl", "projects/*/agent-transcripts/*.txt"),
        _knows,
        refuse=_refuse,
    ),
    resume=Aside(),
)
