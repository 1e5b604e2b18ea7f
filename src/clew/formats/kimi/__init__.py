"""Kimi Code: a journal a session, in a folder with its description and side files. The five rooms behind `FORMAT`."""

from __future__ import annotations

from clew.formats.kimi.locate import KimiLocate
from clew.formats.kimi.reader import AGENT, STATE, read
from clew.formats.kimi.resume import KimiResume
from clew.formats.kimi.writer import VERSION, rebase, splice, write
from clew.formats.protocol import Format, Traits

FORMAT = Format(
    name=AGENT,
    title="Kimi Code",
    traits=Traits(
        record_kind="line",
        transport="kimi",
        carries_id=False,
        verified=VERSION,
        listed_by=(STATE,),
        names_model=True,
    ),
    read=read,
    locate=KimiLocate(),
    resume=KimiResume(),
    write=write,
    splice=splice,
    rebase=rebase,
)

__all__ = ["FORMAT"]
