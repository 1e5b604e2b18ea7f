"""Amp: threads as one JSON document each. Read, kept and restored; the vendor's server knows no thread made here.

From public sources: messages hold blocks in the manner of Anthropic's API.
"""

from __future__ import annotations

import re
from pathlib import Path

from clew.conversation.model import Message
from clew.conversation.source import Ending, Session, Source
from clew.formats.blocks import read_blocks
from clew.formats.loose import NONE, items_of, members_of, scalar_in, word_in
from clew.formats.protocol import Format, Home, Traits
from clew.formats.shelf import Aside, Shelf
from clew.formats.sketch import Sketch
from clew.formats.times import read_time

AGENT = "amp"
_ID = re.compile(rb'"id"\s*:\s*"T-[0-9a-f-]{36}"')


def read(source: Source, since: Ending | None = None) -> Session:
    """Reads a thread whole."""
    sketch = Sketch(AGENT, source)
    for stream in source.streams[:1]:
        for number, message in sketch.document(stream, "messages"):
            usage = members_of(message.get("usage", NONE))
            time = read_time(scalar_in(usage.get("timestamp", NONE)))
            found = read_blocks(message.get("content", NONE), time)
            for _ in range(found.unknown):
                sketch.skip("content blocks of an unknown kind")
            role = word_in(message.get("role", NONE))
            for result in found.results:
                sketch.say(result, number)
            if role == "user":
                sketch.say(Message("user", tuple(found.parts), "user", "", time), number)
            elif role == "assistant":
                model = word_in(usage.get("model", NONE))
                sketch.say(Message("assistant", tuple(found.parts), "model", "", time, model), number)
            else:
                sketch.report(number, "foreign record", "a message of an unknown role")
        root = sketch.frame.members(bytes(stream.data)) if sketch.frame is not None else {}
        sketch.about.id = word_in(root.get("id", NONE))
        sketch.about.title = word_in(root.get("title", NONE))
        sketch.about.created_ms = read_time(scalar_in(root.get("created", NONE)))
        traces = items_of(members_of(root.get("meta", NONE)).get("traces", NONE))
        ends = [read_time(scalar_in(members_of(trace).get("endTime", NONE))) for trace in traces]
        sketch.about.updated_ms = max((end for end in ends if end is not None), default=None)
    for stream in source.streams[1:]:
        sketch.whole(stream)
    return sketch.finish()


def _base(home: Home) -> Path:
    data = home.env.get("XDG_DATA_HOME")
    return (Path(data) if data else home.root / ".local" / "share") / "amp" / "threads"


FORMAT = Format(
    name=AGENT,
    title="Amp",
    traits=Traits(record_kind="range", transport=AGENT, any_uuid=False, writes=False, offline=False),
    read=read,
    locate=Shelf(
        AGENT,
        _base,
        ("T-*.json",),
        lambda path, head: head.lstrip().startswith(b"{") and _ID.search(head[:4096]) is not None,
    ),
    resume=Aside(),
)
