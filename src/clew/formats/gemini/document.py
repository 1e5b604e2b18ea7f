"""The older form: one JSON document with the messages in a list; its records are ranges of bytes (`framing`)."""

from __future__ import annotations

import json

from clew.formats import framing
from clew.formats.framing import Frame

__all__ = ["Frame", "frame_document", "is_document"]

_BOM = b"\xef\xbb\xbf"


def frame_document(data: bytes) -> Frame | None:
    """Returns where things lie, or None where the bytes are no document with messages."""
    frame = framing.frame_document(data, "messages")
    return frame if frame is not None and frame.opened else None


def is_document(data: bytes | memoryview, path: str) -> bool:
    """Tells whether a file is one document rather than lines.

    Its first line is no whole object; or the file is named as a document and holds nothing but one object.
    """
    head = bytes(data[: 1 << 16]).removeprefix(_BOM).lstrip()
    if not head.startswith(b"{"):
        return False
    line, newline, rest = head.partition(b"\n")
    if newline and _is_opening(line):
        return True
    return path.endswith(".json") and not rest.strip() and b'"messages"' in head


def _is_opening(line: bytes) -> bool:
    """Tells whether a line opens an object that goes on behind it."""
    line = line.strip()
    if line == b"{":
        return True
    if line.endswith(b"}"):
        return False
    try:
        json.loads(line)
    except ValueError:
        return line.endswith((b",", b"[", b"{"))
    return False
