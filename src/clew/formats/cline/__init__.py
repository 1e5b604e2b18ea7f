"""Cline: a document of messages a session, with a description beside it; tasks of its VS Code extension."""

from clew.formats.cline.locate import LOCATE
from clew.formats.cline.reader import AGENT, read
from clew.formats.cline.resume import RESUME
from clew.formats.cline.splice import rebase, splice
from clew.formats.cline.writer import VERSION, write
from clew.formats.protocol import Format, Traits

FORMAT = Format(
    name=AGENT,
    title="Cline",
    traits=Traits(record_kind="range", transport=AGENT, verified=VERSION),
    read=read,
    locate=LOCATE,
    resume=RESUME,
    write=write,
    splice=splice,
    rebase=rebase,
    surroundings=LOCATE.surroundings,
)

__all__ = ["FORMAT"]
