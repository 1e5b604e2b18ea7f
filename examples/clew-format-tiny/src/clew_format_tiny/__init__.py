"""Tiny, an agent that does not exist: one JSON document a session, with side files and a card that lists it.

It has in small what agents have in large: a reply has one text; arguments must be an object; names and ids of calls are
restricted; every call needs an answer with a status, which holds no picture; long outputs and pictures lie in side
files; a user's text that looks like a note of the agent is taken for one; a session without a card is not listed; a
fork names its parent. docs/add-an-agent.md goes through it step by step. A new format may be begun by copying it.

    .tiny/<id>/doc.json     {"tiny":1, "id":..., "cwd":..., "messages":[ ... ], "title":..., "updated":...}
    .tiny/<id>/card.json    {"id":..., "title":..., "cwd":...}
    .tiny/<id>/files/*      texts of long outputs, pictures
"""

from __future__ import annotations

from clew.formats.protocol import Format, Traits
from clew_format_tiny.locate import TinyLocate
from clew_format_tiny.reader import read
from clew_format_tiny.resume import TinyResume
from clew_format_tiny.writer import rebase, splice, write

NAME = "tiny"

FORMAT = Format(
    name=NAME,
    title="Tiny",
    traits=Traits(record_kind="range", transport="tiny", holds_result_images=False, listed_by=("card.json",)),
    read=read,
    locate=TinyLocate(),
    resume=TinyResume(),
    write=write,
    splice=splice,
    rebase=rebase,
)

__all__ = ["FORMAT", "NAME"]
