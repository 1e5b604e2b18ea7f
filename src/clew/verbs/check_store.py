"""`clew store check`: all of clew's own data verified against its digests; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator

from clew.store.protocol import Problem
from clew.verbs.context import Context


def check_store(ctx: Context) -> Iterator[Problem]:
    """Yields what is wrong in the store; nothing when it is sound."""
    yield from ctx.stores.residue.fsck()
