"""pi: JSON lines in a tree, one file a session, the last line is where it goes on."""

from clew.formats.pi.locate import PiLocate, surroundings
from clew.formats.pi.reader import read
from clew.formats.pi.records import VERSION
from clew.formats.pi.resume import PiResume
from clew.formats.pi.splice import rebase, splice
from clew.formats.pi.writer import write
from clew.formats.protocol import Format, Traits

FORMAT = Format(
    name="pi",
    title="pi",
    traits=Traits(record_kind="line", transport="pi-jsonl", cursor_in_key=True, verified=VERSION),
    read=read,
    locate=PiLocate(),
    resume=PiResume(),
    write=write,
    splice=splice,
    rebase=rebase,
    surroundings=surroundings,
)

__all__ = ["FORMAT"]
