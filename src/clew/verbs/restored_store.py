"""`clew store restored`: a person says that a backup was put in the store's place, where nothing can notice it.

Raises the floor under all fences, so that none is granted twice. Does no harm where it is not so, or said twice.
"""

from __future__ import annotations

import msgspec

from clew.errors import NotFoundError
from clew.verbs.context import Context


class RestoredStore(msgspec.Struct, frozen=True):
    """The store's own id, and the lowest fence that it still grants."""

    store_id: str
    fence_floor: int


def restored_store(ctx: Context) -> RestoredStore:
    """Raises the floor of the store of records; raises NotFoundError where there is none."""
    if not ctx.stores.has_records:
        raise NotFoundError(
            f"there are no records in {ctx.data}",
            hint="Put the backup in its place first, or name its folder with --data.",
            path=str(ctx.data),
        )
    state = ctx.stores.records.mark_restored()
    return RestoredStore(state.store_id, state.fence_floor)
