"""`clew store check`: all of clew's own data verified against its digests; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator

from clew.store.protocol import Problem
from clew.verbs.context import Context


def check_store(ctx: Context) -> Iterator[Problem]:
    """Yields what is wrong in the stores, the records first; nothing when they are sound."""
    for sentence in ctx.stores.check_records():
        yield Problem("file_damaged", sentence)
    yield from ctx.stores.residue.fsck()
