"""How values are spelled in a written file of JSON lines: strict UTF-8, compact, one line a record.

A text that is spelled in plain ASCII already is copied as it stands and never decoded; every other one is spelled
anew, with U+FFFD for lone surrogates. The separators that some readers take for ends of lines are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from clew.conversation.source import Buffer, Stream
from clew.conversation.text import JsonString, Lazy, mend_surrogates, text_of

Json = dict[str, object]

_PIECE = 1 << 20
_ENCODE = msgspec.json.Encoder().encode
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_SEPARATORS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))


def spell_text(source: Lazy) -> msgspec.Raw | str:
    """Returns what to put into a record for a text: its own spelling where that is safe, else the text itself."""
    if isinstance(source, JsonString):
        data = bytes(source.raw)
        if data.startswith(b'"') and data.isascii() and b"\\u" not in data and _CONTROL.search(data) is None:
            return msgspec.Raw(data)
    return mend_surrogates(text_of(source))


def encode_line(value: object) -> bytes:
    """Returns a record as one line of JSON with its newline."""
    data = _ENCODE(value)
    if not data.isascii():
        for sign, escape in _SEPARATORS:
            data = data.replace(sign, escape)
    return data + b"\n"


def whole_lines(stream: Stream) -> Iterator[Buffer]:
    """Yields a stream as it is, in pieces, and the newline that its last line may lack: new lines go behind that."""
    data = memoryview(stream.data)
    for at in range(0, len(data), _PIECE):
        yield data[at : at + _PIECE]
    if len(data) and data[-1] != 0x0A:
        yield b"\n"
