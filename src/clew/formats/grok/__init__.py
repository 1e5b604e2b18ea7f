"""Grok Build: a folder a session, with its history, its stream for display and its description."""

from __future__ import annotations

from clew.formats.grok.locate import GrokLocate
from clew.formats.grok.reader import AGENT, SUMMARY, read
from clew.formats.grok.resume import GrokResume
from clew.formats.grok.writer import VERSION, rebase, splice, write
from clew.formats.protocol import Format, Traits

FORMAT = Format(
    name=AGENT,
    title="Grok Build",
    traits=Traits(record_kind="line", transport="grok", carries_id=False, verified=VERSION, listed_by=(SUMMARY,)),
    read=read,
    locate=GrokLocate(),
    resume=GrokResume(),
    write=write,
    splice=splice,
    rebase=rebase,
)

__all__ = ["FORMAT"]
