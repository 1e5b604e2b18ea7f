"""Hermes: rows of a database that all sessions share. The five rooms behind `FORMAT`."""

from __future__ import annotations

from clew.conversation.source import Buffer
from clew.formats.hermes.database import present_rows, put_rows
from clew.formats.hermes.locate import LOCATE
from clew.formats.hermes.reader import AGENT, read
from clew.formats.hermes.rebase import rebase
from clew.formats.hermes.resume import RESUME
from clew.formats.hermes.writer import VERSION, splice, write
from clew.formats.protocol import Format, Home, Traits
from clew.formats.rows import database_of, session_of


def _place_rows(home: Home, path: str, data: Buffer, expect: Buffer | None, now_ms: int) -> None:
    put_rows(LOCATE.base(home) / database_of(path), session_of(path), data, expect, now_ms)


def _present_rows(home: Home, path: str) -> Buffer | None:
    return present_rows(LOCATE.base(home) / database_of(path), session_of(path))


FORMAT = Format(
    name=AGENT,
    title="Hermes",
    traits=Traits(record_kind="row", transport="hermes", holds_result_images=False, verified=VERSION),
    read=read,
    locate=LOCATE,
    resume=RESUME,
    write=write,
    splice=splice,
    rebase=rebase,
    surroundings=LOCATE.surroundings,
    place_rows=_place_rows,
    present_rows=_present_rows,
)

__all__ = ["FORMAT"]
