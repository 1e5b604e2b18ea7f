"""OpenHands CLI: a folder for each conversation, and in it a file for each event."""

from clew.formats.openhands.folder import STATE
from clew.formats.openhands.locate import OpenHandsLocate, surroundings
from clew.formats.openhands.reader import read
from clew.formats.openhands.records import VERSION
from clew.formats.openhands.resume import OpenHandsResume
from clew.formats.openhands.splice import rebase, splice
from clew.formats.openhands.writer import write
from clew.formats.protocol import Format, Traits

FORMAT = Format(
    name="openhands",
    title="OpenHands",
    traits=Traits(
        record_kind="file",
        transport="openhands-events",
        listed_by=(STATE,),
        verified=VERSION,
    ),
    read=read,
    locate=OpenHandsLocate(),
    resume=OpenHandsResume(),
    write=write,
    splice=splice,
    rebase=rebase,
    surroundings=surroundings,
)

__all__ = ["FORMAT"]
