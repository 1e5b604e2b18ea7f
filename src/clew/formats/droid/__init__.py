"""Droid: JSON lines in the order in which they are sent, one file a session, settings beside it."""

from clew.formats.droid.locate import DroidLocate
from clew.formats.droid.reader import read
from clew.formats.droid.records import VERSION
from clew.formats.droid.resume import DroidResume
from clew.formats.droid.splice import rebase, splice
from clew.formats.droid.writer import write
from clew.formats.protocol import Format, Traits

FORMAT = Format(
    name="droid",
    title="Droid",
    traits=Traits(record_kind="line", transport="droid-jsonl", verified=VERSION, offline=False),
    read=read,
    locate=DroidLocate(),
    resume=DroidResume(),
    write=write,
    splice=splice,
    rebase=rebase,
)

__all__ = ["FORMAT"]
