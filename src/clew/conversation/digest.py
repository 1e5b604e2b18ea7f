"""The digest of a segment and the id of a source: BLAKE3 over parts framed with their lengths.

Both rules are of the residue spec (5.1 and 5.2). A digest guards against damage and accident, not against
somebody who can write the store. No state, no input but the arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct

from blake3 import blake3

from clew.ids import Digest, NativeId, SourceId

_U64 = Struct("<Q").pack
_SOURCE_DOMAIN = b"clew-source-v1"


def segment_digest(records: Iterable[bytes | memoryview]) -> Digest:
    """Returns the digest of a segment: BLAKE3 over, for each record, its length as 8 bytes little-endian,
    then it."""
    parts: list[bytes | memoryview] = []
    for record in records:
        parts.append(_U64(len(record)))
        parts.append(record)
    return Digest(blake3(b"".join(parts)).hexdigest())


def framed_digest(lengths: Sequence[int], data: bytes | memoryview) -> Digest:
    """Returns the digest of the segment whose records, of these lengths, lie end to end in `data`.

    Lengths that do not cover `data` exactly give a digest that matches no segment.
    """
    parts: list[bytes | memoryview] = []
    at = 0
    for length in lengths:
        parts.append(_U64(length))
        parts.append(data[at : at + length])
        at += length
    if at != len(data):
        return Digest("")
    return Digest(blake3(b"".join(parts)).hexdigest())


def bytes_digest(data: bytes | memoryview) -> Digest:
    """Returns plain BLAKE3 of `data` in hex, as side files have it."""
    return Digest(blake3(data).hexdigest())


def source_id(format_name: str, session_id: NativeId | None, first_record: bytes | memoryview) -> SourceId:
    """Returns the name of one stored session as such: over format, session id (empty if none), first record.

    Each part is framed with its length as 8 bytes little-endian, behind the domain `clew-source-v1`. A format
    whose first record is rewritten in place passes another stable record, or none as empty bytes.
    """
    digest = blake3(_SOURCE_DOMAIN)
    for part in (
        format_name.encode("utf-8", "surrogatepass"),
        (session_id or "").encode("utf-8", "surrogatepass"),
        first_record,
    ):
        digest.update(_U64(len(part)))
        digest.update(part)
    return SourceId(digest.hexdigest())
