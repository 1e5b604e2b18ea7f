"""Digests of a run: names of items, fingerprints of what they hold, and one hash for each thing a resume compares.

All are SHA-256 in lower-case hex. Fields are framed by their length before they are hashed, so that no two lists of
fields have one digest. Nothing here reads a file, a repository or the environment.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import urllib.parse
from typing import TYPE_CHECKING, NewType

if TYPE_CHECKING:
    from collections.abc import Iterable

ItemId = NewType("ItemId", str)
"""64 hex digits naming an item by operation, mode and paths; its content plays no part."""

Fingerprint = NewType("Fingerprint", str)
"""64 hex digits of what an item holds; equal fingerprints may share a result."""

RunDigest = NewType("RunDigest", str)
"""64 hex digits of one compared field of a run; the empty string where the thing is absent or unknown."""

UNKNOWN = RunDigest("")
"""The digest of what could not be found out."""


def field_hash(*fields: bytes | str) -> RunDigest:
    """Returns the SHA-256 over the fields, each as 8 bytes of length (big-endian) and its bytes.

    No fields give the SHA-256 of nothing. Text is hashed as UTF-8; a lone surrogate counts as itself.
    """
    state = hashlib.sha256()
    for field in fields:
        data = field.encode("utf-8", "surrogatepass") if isinstance(field, str) else field
        state.update(len(data).to_bytes(8, "big"))
        state.update(data)
    return RunDigest(state.hexdigest())


def clean_path(path: str) -> str:
    """Returns `path` without `.`, `..` and doubled separators; `.` and the empty path are the empty string."""
    if not path:
        return ""
    cleaned = posixpath.normpath(path)
    if cleaned.startswith("//"):
        cleaned = cleaned[1:]
    return "" if cleaned == "." else cleaned


def item_id(operation: str, mode: str, old_path: str, new_path: str) -> ItemId:
    """Returns the name of an item: the same along a chain of resumes, whatever the item holds.

    An added file has no old path, a deleted one no new path, a changed one both; so a rename differs from an add.
    """
    text = "\0".join((operation, mode, clean_path(old_path), clean_path(new_path)))
    return ItemId(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


def item_fingerprint(mode: str, content: bytes) -> Fingerprint:
    """Returns the fingerprint of an item's content within a mode: for a review its diff as git gives it."""
    return Fingerprint(field_hash(mode, content))


def tree_digest(root: str | None, head: str | None, changes: str | None) -> RunDigest:
    """Returns the digest of a user's own work tree: its folder, its commit and the digest of its local changes.

    A member that is None is not known, and makes the whole unknown: what is unknown never equals anything.
    """
    if root is None or head is None or changes is None:
        return UNKNOWN
    return field_hash("tree", root, head, changes)


def source_artifact(entries: Iterable[tuple[ItemId, Fingerprint]], tree: RunDigest | None = None) -> RunDigest:
    """Returns the digest of a selected set: one entry an item id (the first stays), in the order of the ids.

    `tree` is the digest of the work tree, for an operation that works in the user's own; an unknown one makes the
    artifact unknown.
    """
    first: dict[ItemId, Fingerprint] = {}
    for name, fingerprint in entries:
        first.setdefault(name, fingerprint)
    fields: list[str] = []
    for name in sorted(first):
        fields += (name, first[name])
    if tree is None:
        return field_hash(*fields)
    return UNKNOWN if tree == UNKNOWN else field_hash(*fields, tree)


_SCP = re.compile(r"(?:[^@/\s]+@)?(?P<host>[A-Za-z0-9._-]{2,}):(?P<path>(?!//).+)\Z")


def remote_identity(url: str) -> str:
    """Returns what a remote's address names, without credentials: host and path, or the path of a local one.

    `https://user:secret@Host/a/b.git`, `git@host:a/b` and `ssh://host/a/b/` are all `host/a/b`.
    """
    url = url.strip()
    if not url:
        return ""
    if "://" in url:
        parts = urllib.parse.urlsplit(url)
        host = parts.netloc.rpartition("@")[2].lower()
        path = parts.path
        if parts.scheme == "file":
            return clean_path(path)
    elif (scp := _SCP.match(url)) is not None and not url.startswith(("/", ".")):
        host, path = scp["host"].lower(), scp["path"]
    else:
        return clean_path(url)
    path = clean_path("/" + path).strip("/").removesuffix(".git")
    return f"{host}/{path}"


def repository_digest(url: str) -> RunDigest:
    """Returns the digest of a remote's identity; the empty string when there is no remote."""
    identity = remote_identity(url)
    return field_hash(identity) if identity else UNKNOWN


def runtime_digest(
    *,
    protocol: str,
    model: str,
    host: str,
    language: str,
    timeout_s: float,
    concurrency: int,
    budget_tokens: int,
) -> RunDigest:
    """Returns the digest of how a run was carried out; recorded, and not compared when it is resumed."""
    return field_hash(protocol, model, host, language, f"{timeout_s:g}", str(concurrency), str(budget_tokens))
