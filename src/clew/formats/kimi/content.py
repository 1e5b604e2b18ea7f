"""From one record of the journal to parts of a message, with clew's own marks undone."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping

import msgspec

from clew.conversation.model import Call, Image, Part, Reasoning, Text
from clew.conversation.source import SideFile
from clew.conversation.text import JsonString, text_of
from clew.formats.kimi import records as rec
from clew.formats.marks import Mark, is_standin, unguard_text, unwrap_arguments

_DATA_URL = re.compile(rb'"data:([^;,"\\]*);base64,')
_BLOB = re.compile(r"blobref:([^;]*);([0-9A-Za-z]{16,128})\Z")
_STANDIN = re.compile(r"\[clew: an image stands here: (.*), number \d+ of", re.DOTALL)


def read_parts(raw: msgspec.Raw, mark: Mark | None, blobs: Mapping[str, SideFile]) -> tuple[Part, ...]:
    """Returns the parts of a content; in a record with a mark guards come off and stand-ins are images."""
    return tuple(part for piece in rec.decode_parts(raw) if (part := read_part(piece, mark, blobs)) is not None)


def read_part(piece: rec.Part, mark: Mark | None, blobs: Mapping[str, SideFile]) -> Part | None:
    """Returns one part, None for what is neither text, thought nor image."""
    if piece.type == "text":
        text = rec.as_text(piece.text)
        if text is None:
            return None
        return Text(text) if mark is None or not (mark.standin or mark.said) else _unmarked(text_of(text))
    if piece.type == "think":
        thought = rec.as_text(piece.think)
        return Reasoning(thought if thought is not None else "")
    if piece.type == "image_url":
        return _image(rec.decode(piece.image, rec.Url).url, blobs)
    return None


def _unmarked(text: str) -> Part:
    found = _STANDIN.match(text) if is_standin(text) else None
    return Text(unguard_text(text)) if found is None else Image(found.group(1))


def _image(raw: msgspec.Raw, blobs: Mapping[str, SideFile]) -> Image:
    url = rec.as_text(raw)
    if url is None:
        return Image("")
    view = memoryview(raw)
    head = _DATA_URL.match(bytes(view[:200]))
    if head is not None and b"\\" not in bytes(view[head.end() :]):
        body = JsonString(msgspec.Raw(b'"' + bytes(view[head.end() :])))
        return Image(head.group(1).decode("utf-8", "replace"), body)
    address = text_of(url)
    stored = _BLOB.match(address)
    if stored is None:
        return Image("", "", address)
    blob = blobs.get(stored.group(2))
    return Image(stored.group(1), b64encode(bytes(blob.load())).decode() if blob is not None else "")


def read_call(call_id: object, name: object, arguments: msgspec.Raw, mark: Mark | None) -> Call:
    """Returns a call under the id that it has in the file, with its own name and arguments."""
    source = rec.as_arguments(arguments)
    called = rec.text(name)
    if mark is not None:
        if mark.text:
            text = unwrap_arguments(text_of(source).encode())
            source = source if text is None else text
        called = mark.name if mark.name is not None else called
    return Call(rec.text(call_id), called, source)
