"""Framing of JSON lines: every byte in exactly one record, whatever is in them; nothing raises, nothing hangs.

A record is a line with its terminator. Where writers left several records on one line, or the rest of a torn one in
front of a whole one, the line is cut into several records, so that whole ones are recovered. What cannot be decoded
is an opaque record, reported with file, record, offset and sort.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

import msgspec

from clew.conversation.loss import Damage
from clew.conversation.source import Buffer, Records, Stream
from clew.conversation.text import mend_surrogates

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_BOM = b"\xef\xbb\xbf"
_OPENING = re.compile(rb'\{\s*"')
_CHUNK = 1 << 20
_MAX_TRIES = 200
_MAX_TRIED_BYTES = 1 << 27
_RELEASE_EVERY = 16 << 20


def line_ends(data: Buffer, start: int = 0) -> Iterator[int]:
    """Yields the offset behind each newline from `start` on, and the end of the data if the last line has none."""
    view = memoryview(data)
    position, size = start, len(view)
    last = start
    while position < size:
        chunk = bytes(view[position : position + _CHUNK])
        at = chunk.find(b"\n")
        while at >= 0:
            last = position + at + 1
            yield last
            at = chunk.find(b"\n", at + 1)
        position += len(chunk)
    if last < size:
        yield size


class SlowDecoder(Protocol[T_co]):
    """Decodes what the fast path refuses; raises msgspec.DecodeError for what is no record either."""

    def decode(self, data: bytes, /) -> T_co: ...


class JsonLines(Generic[T]):
    """Iterates over a stream's records as (record number, decoded value or None).

    `decoder` is the fast path; where it refuses, `slow` gets the line (the same decoder by default), and then what
    the standard library's parser makes of it: bad UTF-8 and lone surrogates replaced, control characters let
    through. `starts` grows as the iteration goes on; damage is appended to `damage`, and the numbers of records in
    which lone surrogates were replaced to `mended`.
    """

    def __init__(
        self,
        records: Records,
        stream: Stream,
        decoder: msgspec.json.Decoder[T],
        damage: list[Damage],
        *,
        growing: bool = False,
        start: int = 0,
        slow: SlowDecoder[T] | None = None,
    ) -> None:
        self.records, self.stream, self.decoder, self.damage = records, stream, decoder, damage
        self.slow: SlowDecoder[T] = slow or decoder
        self.mended: list[int] = []
        self._replaced = False
        self.growing, self.start = growing, start
        self.first = len(records)
        self.starts = records.add_stream(stream)
        self.line = 0

    def __iter__(self) -> Iterator[tuple[int, T | None]]:
        view = memoryview(self.stream.data)
        decode, starts, number = self.decoder.decode, self.starts, self.first
        release, released = self.stream.release, self.start
        begin = self.start
        if begin:  # records before the start are the caller's; they were cut by an earlier reading
            starts.append(0)
            number += 1
        for end in line_ends(view, begin):
            self.line += 1
            starts.append(begin)
            line = view[begin:end]
            try:
                value: T | None = decode(line)
            except (msgspec.DecodeError, RecursionError):
                for value in self._mend(begin, end):
                    yield number, value
                    number += 1
            else:
                if not _is_utf8(line):  # the fast path looks only at what it decodes
                    self._report(number, begin, "bad utf-8")
                yield number, value
                number += 1
            begin = end
            if release is not None and end - released > _RELEASE_EVERY:
                release()
                released = end

    def _report(self, record: int, offset: int, sort: str, detail: str = "", *, lost: bool = True) -> None:
        self.damage.append(Damage(self.stream.path, record, offset, sort, detail, self.line, lost))

    def _mend(self, begin: int, end: int) -> Iterator[T | None]:
        """Yields the values of a line that the fast path refused; its first start is already noted."""
        number = self.first + len(self.starts) - 1
        line = bytes(memoryview(self.stream.data)[begin:end])
        body = line.rstrip(b"\r\n")
        if not body.strip(b" \t\r\n"):
            yield None  # a blank line is a record without content
            return
        lead = 0
        if body.startswith(_BOM):
            lead = len(_BOM)
            if begin == 0:
                self._report(number, begin, "byte-order mark", lost=False)
        nuls = len(body) - len(body.lstrip(b"\x00")) if not lead else 0
        if nuls:
            whole = not body.strip(b"\x00")
            self._report(number, begin, "nul run", f"{nuls} zero bytes", lost=whole)
            if whole:
                yield None
                return
            lead = nuls
        text_end = len(body.rstrip(b"\x00"))
        if text_end < len(body):
            self._report(number, begin + text_end, "nul run", f"{len(body) - text_end} zero bytes", lost=False)
        self._replaced = False
        value, sort = self._decode(body[lead:text_end])
        if value is not None:
            if self._replaced:
                self.mended.append(number)
            if sort:
                self._report(number, begin, sort, lost=sort == "bad utf-8")
            yield value
            return
        if sort == "too deep":
            self._report(number, begin, sort, "nested deeper than any reader follows")
            yield None
            return
        yield from self._split(begin, end, line, lead, text_end, sort)

    def _decode(self, data: bytes) -> tuple[T | None, str]:
        """Returns the value and what is odd about it; None and the sort of damage when it is no record."""
        try:
            return self.slow.decode(data), ""
        except RecursionError:
            return None, "too deep"
        except msgspec.DecodeError:
            pass
        sort = ""
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text, sort = data.decode("utf-8", "replace"), "bad utf-8"
        try:
            value = json.loads(
                text, strict=False, parse_constant=_refuse_constant, parse_int=_hold_number, parse_float=_hold_number
            )
        except RecursionError:
            return None, "too deep"
        except ValueError:
            return None, sort or "not json"
        if not isinstance(value, dict):
            return None, "not an object"
        record = self._convert(value)  # type: ignore[arg-type]
        return record, sort if record is not None else sort or "foreign record"

    def _convert(self, value: dict[str, object]) -> T | None:
        """Makes a record of a leniently parsed object; a lone surrogate, which no decoder takes, is U+FFFD."""
        try:
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            text = _HELD_NUMBER.sub(r"\1", text)
            mended = mend_surrogates(text)
            self._replaced = mended is not text
            return self.slow.decode(mended.encode())
        except (msgspec.DecodeError, RecursionError, ValueError):
            return None

    def _split(self, begin: int, end: int, line: bytes, lead: int, text_end: int, sort: str) -> Iterator[T | None]:
        """Cuts a line into whole records, with at most a fragment in front of them or behind them."""
        number = self.first + len(self.starts) - 1
        for pieces in self._candidates(line, lead, text_end):
            first = pieces[0][0]
            if first > lead:
                self._report(number, begin, "fragment", _uuid_of(line[lead:first]))
                yield None
                number += 1
                self.starts.append(begin + first)
            else:
                self._report(number, begin, "missing newline", f"{len(pieces)} records on one line", lost=False)
            for i, (at, value) in enumerate(pieces):
                if i:
                    number += 1
                    self.starts.append(begin + at)
                yield value
            return
        whole, rest = self._leading(line, lead, text_end)
        if whole and rest >= text_end:
            self._report(number, begin, "missing newline", f"{len(whole)} records on one line", lost=False)
        for i, (at, value) in enumerate(whole):
            if i:
                number += 1
                self.starts.append(begin + at)
            yield value
        if whole and rest >= text_end:
            return
        if whole:
            number += 1
            self.starts.append(begin + rest)
        last = end == len(memoryview(self.stream.data)) and not line.endswith(b"\n")
        if last and self.growing:
            self._report(number, begin + rest, "still being written", lost=False)
        else:
            sort = "torn tail" if last else "fragment" if whole else sort
            self._report(number, begin + rest, sort, _uuid_of(line[rest : rest + 4096]))
        yield None

    def _leading(self, line: bytes, lead: int, text_end: int) -> tuple[list[tuple[int, T]], int]:
        """Returns the whole records that stand in front of a torn one, and where that begins."""
        text = line[:text_end].decode("latin-1")
        whole: list[tuple[int, T]] = []
        at, rest = lead, 0
        while at < text_end and text[at] == "{":
            end = _object_end(text, at)
            value = self._decode(line[at:end])[0] if end > 0 else None
            if value is None:
                break
            whole.append((at, value))
            while end < text_end and text[end] in _BETWEEN:
                end += 1
            at = rest = end
        return whole, rest

    def _candidates(self, line: bytes, lead: int, text_end: int) -> Iterator[list[tuple[int, T]]]:
        """Yields the first way to read the line's end as a row of whole records; the rest in front is a fragment."""
        budget = _MAX_TRIED_BYTES
        text = line[:text_end].decode("latin-1")  # one character a byte, and none from 0x80 on is structure
        dead: set[int] = set()
        for tries, match in enumerate(_OPENING.finditer(line, lead, text_end)):
            budget -= text_end - match.start()
            if tries >= _MAX_TRIES or budget < 0:
                return
            pieces = self._row(line, text, match.start(), dead)
            if len(pieces) > 1 or (pieces and match.start() > lead and not _is_inside(text, lead, match.start())):
                yield pieces
                return

    def _row(self, line: bytes, text: str, at: int, dead: set[int]) -> list[tuple[int, T]]:
        """Returns the records from `at` to the end, or none; `dead` are places from which there is no way."""
        pieces: list[tuple[int, T]] = []
        while at < len(text):
            if at in dead:
                return []
            dead.add(at)
            size = _object_end(text, at)
            if size < 0:
                return []
            value, _ = self._decode(line[at:size])
            if value is None:
                return []
            pieces.append((at, value))
            at = size
            while at < len(text) and text[at] in _BETWEEN:
                at += 1
        return pieces


def _is_utf8(data: memoryview) -> bool:
    """Tells whether a line is strict UTF-8, without holding a second copy of a long one."""
    try:
        if len(data) <= _CHUNK:
            piece = bytes(data)
            return piece.isascii() or bool(piece.decode())
        decoder = codecs.getincrementaldecoder("utf-8")()
        for at in range(0, len(data), _CHUNK):
            decoder.decode(data[at : at + _CHUNK])
        decoder.decode(b"", True)
    except UnicodeDecodeError:
        return False
    return True


_HELD_NUMBER = re.compile('"\ufdd0([-+0-9.eE]+)\ufdd1"')


def _hold_number(spelling: str) -> str:
    """Holds a number by its spelling: no double and no limit of digits may change it on the way."""
    return f"\ufdd0{spelling}\ufdd1"


def _refuse_constant(name: str) -> object:
    raise ValueError(name)  # NaN and its kind are no JSON, whatever the standard library takes


_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


def _is_inside(text: str, begin: int, at: int) -> bool:
    """Tells whether the object at `at` is a value of the one that begins before it, and so no record of its own.

    It is where a value is due: behind a colon, a bracket or a comma that stands in no string. A record torn just
    there, with a whole one behind it, is taken for the same; far more often the end of the inner object is the tear.
    """
    before = text[begin:at].rstrip()
    if not before or before[-1] not in ":[,":
        return False
    for match in _STRING.finditer(text, begin):
        if match.end() > at:
            return match.start() > at
    return True


_BETWEEN = " \t\r\x00"
_SCAN = json.JSONDecoder(strict=False, parse_int=str, parse_float=str, parse_constant=str).raw_decode


def _object_end(text: str, at: int) -> int:
    """Returns the offset behind the object that begins at `at`, or -1; it gives up at the first thing amiss.

    Any scan that looks on for a closing brace instead takes quadratic time on torn lines.
    """
    try:
        return _SCAN(text, at)[1]
    except (ValueError, RecursionError):
        return -1


_UUID = re.compile(rb'"(?:uuid|id)"\s*:\s*"([0-9A-Za-z_-]{1,64})"')


def _uuid_of(data: bytes) -> str:
    match = _UUID.search(data)
    return f"id {match.group(1).decode()}" if match else ""
