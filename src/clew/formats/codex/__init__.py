"""Codex CLI: rollouts under `sessions/`, one line a record. The five rooms behind `FORMAT`."""

from __future__ import annotations

from clew.formats.codex.locate import AGENT, LOCATE
from clew.formats.codex.reader import read
from clew.formats.codex.rebase import rebase
from clew.formats.codex.resume import RESUME
from clew.formats.codex.splice import splice
from clew.formats.codex.writer import VERSION, write
from clew.formats.protocol import Format, Traits

FORMAT = Format(
    name=AGENT,
    title="Codex",
    traits=Traits(record_kind="line", transport="codex", verified=VERSION),
    read=read,
    locate=LOCATE,
    resume=RESUME,
    write=write,
    splice=splice,
    rebase=rebase,
)

__all__ = ["FORMAT"]
