"""What an operation is: work over many items, whatever the items are.

An operation has a name and modes, resolves its input to a `Sealed` value without creating anything, and opens a
worker that does one item at a time. Everything else (admission, reuse, log, manifest, concurrency, budget) is the
machinery's. `clew.runs.review` and `clew.runs.translate` are two; `docs/runs.md` shows a third in a few lines.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from clew.runs.admission import Identity
from clew.runs.fingerprint import UNKNOWN, Fingerprint, ItemId, RunDigest, field_hash, source_artifact
from clew.runs.lineage import Target
from clew.runs.log import SessionRef
from clew.runs.manifest import RunInput


class Item(Struct, frozen=True):
    """One piece of work. `tokens` estimates its cost for the budget; 0 where nothing is spent."""

    item_id: ItemId
    path: str
    fingerprint: Fingerprint
    old_path: str = ""
    tokens: int = 0


class Usage(Struct, frozen=True):
    """What was spent, in tokens."""

    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def total(self) -> int:
        """Both together."""
        return self.input_tokens + self.output_tokens

    def plus(self, other: Usage) -> Usage:
        """Returns the sum."""
        return Usage(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens)


class Done(Struct, frozen=True):
    """An item's finished result, a JSON object; and what it took: tokens, and the agent's session if it was one."""

    result: dict[str, Any] = {}
    usage: Usage = Usage()
    session: SessionRef | None = None
    model: str = ""


class Waived(Struct, frozen=True):
    """An item that is passed over on purpose; the reason is not blank."""

    reason: str


class Skipped(Struct, frozen=True):
    """Something of the input that was left out of the selection, and why."""

    path: str
    reason: str


class ItemFailed(Exception):
    """An item failed: its class is one of `manifest.FAILURE_CLASSES`; the reason is sanitised before it is kept.

    `ends_run` says that every other item would fail alike, so none is begun any more.
    """

    def __init__(
        self,
        classification: str,
        reason: str,
        *,
        usage: Usage | None = None,
        session: SessionRef | None = None,
        ends_run: bool = False,
    ) -> None:
        super().__init__(reason)
        self.classification = classification
        self.reason = reason
        self.usage = usage or Usage()
        self.session = session
        self.ends_run = ends_run


class ItemContext:
    """What the machinery gives to the work on one item: until when, whether to stop, and where to record.

    The work is asked, not forced: it looks at `remaining_s` and `cancelled`, and bounds what it waits for.
    """

    def __init__(
        self,
        run_id: str,
        *,
        remaining_s: Callable[[], float],
        cancelled: threading.Event,
        record: Callable[[str, Mapping[str, object]], None],
    ) -> None:
        self.run_id = run_id
        self.cancelled = cancelled
        self.remaining_s = remaining_s
        self.record = record

    def check(self) -> None:
        """Raises ItemFailed when the run was cancelled or the item's time is over."""
        if self.cancelled.is_set():
            raise ItemFailed("cancelled", "the run was interrupted")
        if self.remaining_s() <= 0:
            raise ItemFailed("timeout", "the item's time was over")


Worker = Callable[[Item, ItemContext], Done | Waived]


class Sealed(Struct, frozen=True):
    """An input resolved before the run exists: the run must use it, whatever moves afterwards.

    `scope` is the repository or folder whose runs this one joins, `requested` what was typed, for `clew run resume`,
    which resolves it anew. `private` is the operation's own: nothing of it is recorded.
    """

    identity: Identity
    items: tuple[Item, ...]
    given: RunInput
    scope: Path
    target: Target = Target()
    runtime_sha256: RunDigest = UNKNOWN
    requested: dict[str, Any] = {}
    branch: str = ""
    skipped: tuple[Skipped, ...] = ()
    private: Any = None


class Operation(Protocol):
    """Work over many items, as the machinery sees it."""

    @property
    def name(self) -> str:
        """The word in the manifest: `review`, `translate`, ..."""
        ...

    @property
    def modes(self) -> Mapping[str, bool]:
        """Every mode, and whether a run in it can be resumed."""
        ...

    def resolve(self) -> Sealed:
        """Returns the sealed input; creates no file, session, request or output."""
        ...

    def open(self, sealed: Sealed, run_id: str) -> AbstractContextManager[Worker]:
        """Returns the worker for the life of the run; it is called from several threads at once."""
        ...


def seal(
    operation: str,
    mode: str,
    items: tuple[Item, ...],
    *,
    scope: Path,
    rules: tuple[str, ...] = (),
    repository: RunDigest = UNKNOWN,
    tree: RunDigest | None = None,
    given: RunInput | None = None,
    target: Target | None = None,
    **more: Any,
) -> Sealed:
    """Returns a sealed input with its digests worked out: the artifact over the items, the rules over `rules`."""
    artifact = source_artifact(((item.item_id, item.fingerprint) for item in items), tree)
    base = given or RunInput(mode)
    return Sealed(
        identity=Identity(operation, mode, artifact, field_hash(*rules), repository),
        items=items,
        given=RunInput(
            mode=mode,
            requested_from=base.requested_from,
            requested_head=base.requested_head,
            resolved_base=base.resolved_base,
            resolved_head=base.resolved_head,
            exact_range=base.exact_range,
            source_artifact_sha256=artifact,
            snapshot_tree=base.snapshot_tree,
        ),
        scope=scope,
        target=target or Target(),
        **more,
    )
