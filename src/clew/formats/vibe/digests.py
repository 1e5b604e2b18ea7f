"""Whether the documents of a store are the ones that were written: each is named by the digest of its bytes.

A chunk's file name is its SHA-256, a manifest names that of its checkpoint, CURRENT that of the manifest; all without
the newline at the end. Documents that are not there are passed over: others report them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256

import msgspec

from clew.conversation.source import Buffer, Source
from clew.formats.raws import DECODE_ERRORS
from clew.formats.vibe.folder import CURRENT, store_folder, store_kind

_JSON = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_HEX = 64


def wrong_digests(source: Source, load: Callable[[str], bytes]) -> Iterator[str]:
    """Yields the paths of documents whose bytes are others than their digests say; `load` gets a side file's bytes."""
    for stream in source.streams:
        if store_kind(stream.path) == "chunks":
            name = stream.path.rpartition("/")[2].removesuffix(".json")
            if not _is_named(stream.data, name):
                yield stream.path
        elif store_kind(stream.path) == "generations":
            path = f"{stream.path.rpartition('/')[0]}/manifest.json"
            manifest = load(path)
            if not _is_named(stream.data, _word(_member(manifest, "checkpoint"), "sha256")):
                yield stream.path
            current = load(f"{store_folder(stream.path)}/{CURRENT}")
            if manifest and not _is_named(manifest, _word(current, "manifest_sha256")):
                yield path


def _is_named(data: Buffer, name: str) -> bool:
    return len(name) != _HEX or sha256(bytes(data).removesuffix(b"\n")).hexdigest() == name


def _member(data: bytes, name: str) -> bytes:
    try:
        return bytes(_JSON(data).get(name, b""))
    except DECODE_ERRORS:
        return b""


def _word(data: bytes, name: str) -> str:
    try:
        found: object = msgspec.json.decode(_member(data, name) or b"0")
    except DECODE_ERRORS:
        return ""
    return found if isinstance(found, str) else ""
