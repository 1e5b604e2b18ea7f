"""ATIF, Harbor's trajectory documents: written for other programs to read, and read; nothing resumes from one."""

from clew.formats.atif.reader import AGENT, read
from clew.formats.atif.shelf import RESUME, SHELF
from clew.formats.atif.splice import rebase, splice
from clew.formats.atif.writer import write
from clew.formats.protocol import Format, Traits

FORMAT = Format(
    name=AGENT,
    title="ATIF",
    traits=Traits(record_kind="range", transport="atif", holds_images=False, holds_result_images=False, exported=True),
    read=read,
    locate=SHELF,
    resume=RESUME,
    write=write,
    splice=splice,
    rebase=rebase,
)

__all__ = ["FORMAT"]
