"""Gemini CLI: a session a file, lines that are replayed, or an older document. The five rooms behind `FORMAT`."""

from clew.formats.gemini.locate import LOCATE, surroundings
from clew.formats.gemini.reader import AGENT, read
from clew.formats.gemini.rebase import rebase
from clew.formats.gemini.records import VERSION
from clew.formats.gemini.resume import RESUME
from clew.formats.gemini.splice import splice
from clew.formats.gemini.writer import write
from clew.formats.protocol import Format, Traits

FORMAT = Format(
    name=AGENT,
    title="Gemini CLI",
    traits=Traits(record_kind="line", transport="gemini-chats", verified=VERSION),
    read=read,
    locate=LOCATE,
    resume=RESUME,
    write=write,
    splice=splice,
    rebase=rebase,
    surroundings=surroundings,
)

__all__ = ["FORMAT"]
