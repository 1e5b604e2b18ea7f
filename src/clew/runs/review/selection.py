"""Which changes are reviewed: filters over the changes of a diff, and a reason for each that is left out.

The order of the reasons: deleted, not a file, unmerged, binary, the file filter, the extension, the size. Excluded
changes never become items.
"""

from __future__ import annotations

from msgspec import Struct

from clew.runs.operation import Skipped
from clew.runs.review.diff import LINK, SUBMODULE, Change
from clew.runs.review.glob import matches
from clew.runs.review.rules import FileFilter

BYTES_A_TOKEN = 4
"""An estimate that suits code; the limit is a guard, not a bill."""

DEFAULT_TOKEN_LIMIT = 60_000

NOT_REVIEWED = (
    "*.lock",
    "*.min.{js,css}",
    "*.map",
    "*.{svg,ico,pdf,csv,tsv,ipynb,snap}",
    "package-lock.json",
    "pnpm-lock.yaml",
    "go.sum",
    "*.{po,pot,xlf}",
)
"""Generated or data by their names; an include that names them brings them back."""


class Chosen(Struct, frozen=True):
    """The outcome of a selection."""

    selected: tuple[Change, ...]
    skipped: tuple[Skipped, ...]


def estimate_tokens(size_bytes: int) -> int:
    """Returns about how many tokens so many bytes of text are."""
    return -(-size_bytes // BYTES_A_TOKEN)


def select(changes: tuple[Change, ...], chosen: FileFilter, token_limit: int) -> Chosen:
    """Returns the changes to review and why each of the others is not; `token_limit` bounds one file's patch."""
    selected: list[Change] = []
    skipped: list[Skipped] = []
    for change in changes:
        reason = _reason(change, chosen, token_limit)
        if reason:
            skipped.append(Skipped(change.name, reason))
        else:
            selected.append(change)
    return Chosen(tuple(selected), tuple(skipped))


def _reason(change: Change, chosen: FileFilter, token_limit: int) -> str:
    if change.status == "deleted":
        return "deleted"
    if change.mode in (SUBMODULE, LINK):
        return "submodule" if change.mode == SUBMODULE else "symbolic link"
    if change.status == "unmerged":
        return "unmerged"
    if change.is_binary:
        return "binary"
    if any(matches(pattern, change.path) for pattern in chosen.exclude):
        return "excluded"
    included = any(matches(pattern, change.path) for pattern in chosen.include)
    if chosen.include and not included:
        return "not included"
    if not included and any(matches(pattern, change.path) for pattern in NOT_REVIEWED):
        return "extension"
    tokens = estimate_tokens(len(change.patch))
    if token_limit and tokens > token_limit:
        return f"too large: about {tokens} tokens, the limit is {token_limit}"
    return ""
