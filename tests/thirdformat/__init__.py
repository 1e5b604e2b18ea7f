"""A third format, as another package would bring it: one JSON document a session, with side files.

It is unlike the built-in ones where formats can differ, so that what is true for it too follows from the protocol and
not from two formats being alike: its records are byte ranges of one document; a reply has one text; arguments must be
an object; results need a status and hold no picture; long outputs and pictures lie in side files. It is complete, and
it is small: a new format may be begun by copying it.

    .tiny/<id>/doc.json     {"tiny":1, "id":..., "cwd":..., "messages":[ ... ], "title":..., "updated":...}
    .tiny/<id>/files/*      texts of long outputs, pictures
"""

from __future__ import annotations

from clew.formats.protocol import Format, Traits
from thirdformat.locate import TinyLocate
from thirdformat.reader import read
from thirdformat.resume import TinyResume
from thirdformat.writer import rebase, splice, write

NAME = "tiny"

FORMAT = Format(
    name=NAME,
    title="Tiny",
    traits=Traits(record_kind="range", transport="tiny", holds_result_images=False),
    read=read,
    locate=TinyLocate(),
    resume=TinyResume(),
    write=write,
    splice=splice,
    rebase=rebase,
)

__all__ = ["FORMAT", "NAME"]
