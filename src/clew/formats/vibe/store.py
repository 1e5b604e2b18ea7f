"""Goes on behind a session that Vibe keeps in its unified store: a further generation beside the old ones.

Nothing that is there changes but CURRENT, which names the generation that counts and is placed last. The new
generation has one chunk more, in which the new messages stand, and the documents of the old one byte for byte; the
list on Vibe's screen shows the new turns from the next prompt on. Only a store at rest is gone on with: where a turn
broke off, its journal says more than the chunks, and Vibe has to settle that first. What the store cannot say is
marked under `_meta` of a message's first part, which Vibe keeps and never sends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any, cast

import msgspec

from clew.conversation.groups import group_messages
from clew.conversation.model import Message, Part, Text
from clew.conversation.source import Session, Stream
from clew.errors import UnwritableContent
from clew.formats import raws
from clew.formats.marks import INVENTED, CallIds, Names
from clew.formats.outline import (
    Answered,
    Cover,
    RecordMark,
    Replied,
    Said,
    WrittenCall,
    call_names,
    count_losses,
    cover,
    joined_text,
    outline,
    record_mark,
)
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.spelling import spell, spell_lazily
from clew.formats.times import write_time
from clew.formats.vibe import records as rec
from clew.formats.vibe.folder import CURRENT, store_folder, store_kind
from clew.formats.vibe.writer import no_image

_GENERATION = re.compile(r"/generations/(\d{16})/", re.ASCII)
_COPIED = ("runtime-state.json", "projection-state.json")


class Resting(msgspec.Struct, frozen=True):
    """A store at rest: its folder, the name of its generation and of the next one, and the documents of both."""

    folder: str
    generation: str
    following: str
    manifest: dict[str, Any]
    current: dict[str, Any]
    checkpoint: Stream
    copied: dict[str, bytes]


def go_on(prefix: Session, messages: Sequence[Message], options: WriteOptions) -> Written:
    """Appends messages in normal form to a session of the unified store; raises UnwritableContent where none may."""
    store = _at_rest(prefix)
    items, unanswered = _Items(prefix, messages).all()
    body = b"[" + b",".join(items) + b"]"
    name = sha256(body).hexdigest()
    checkpoint = cast(dict[str, Any], store.manifest["checkpoint"])
    manifest = store.manifest | {
        "generation": store.following,
        "created_at": write_time(options.now_ms),
        "checkpoint": checkpoint | {"chunks": [*cast(list[str], checkpoint["chunks"]), name]},
    }
    manifest_body = _canonical(manifest)
    current = store.current | {
        "generation": store.following,
        "manifest_sha256": sha256(manifest_body).hexdigest(),
    }
    place = f"{store.folder}/generations/{store.following}"
    side = [(f"{place}/{copied}", data) for copied, data in store.copied.items()]
    side.append((f"{place}/manifest.json", manifest_body + b"\n"))
    losses, invented = count_losses(messages, no_image, no_image)
    files = (
        *(_file(path, data, "side") for path, data in side),
        *_streams(prefix, store, f"{store.folder}/chunks/{name}.json", body + b"\n", f"{place}/checkpoint.json"),
        _file(f"{store.folder}/{CURRENT}", _canonical(current) + b"\n", "index"),
    )
    return Written(prefix.id, files, losses, invented + unanswered)


def _streams(prefix: Session, store: Resting, path: str, chunk: bytes, checkpoint: str) -> Iterator[WrittenFile]:
    """Yields the streams of the session in order: the old chunks, the new one, the checkpoint, the journal."""
    for stream in prefix.records.streams:
        if store_kind(stream.path) == "generations":
            yield _file(path, chunk, "stream")
            yield _file(checkpoint, bytes(stream.data), "stream")
        else:
            yield _file(stream.path, stream.data, "stream", stream.mode)


def _file(path: str, data: Any, role: Any, mode: int = 0o600) -> WrittenFile:
    return WrittenFile(path, lambda: (data,), mode, role)


def _canonical(value: dict[str, Any]) -> bytes:
    """Returns a document as the store wants it: its digest is taken over exactly this spelling."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _at_rest(prefix: Session) -> Resting:
    """Returns the store that a session lies in; raises UnwritableContent where it is not at rest or not whole."""
    checkpoint = next((s for s in prefix.records.streams if store_kind(s.path) == "generations"), None)
    found = _GENERATION.search(checkpoint.path) if checkpoint is not None else None
    if checkpoint is None or found is None:
        raise _refused(prefix, "has no generation that counts")
    journal = [s for s in prefix.records.streams if store_kind(s.path) == "journal"]
    if any(len(memoryview(stream.data)) for stream in journal):
        raise _refused(prefix, "was left in the middle of a turn")
    folder, generation = store_folder(checkpoint.path), found.group(1)
    side = {file.path: file for file in prefix.side}
    place = f"{folder}/generations/{generation}"
    try:
        manifest = json.loads(bytes(side[f"{place}/manifest.json"].load()))
        current = json.loads(bytes(side[f"{folder}/{CURRENT}"].load()))
        copied = {name: bytes(side[f"{place}/{name}"].load()) for name in _COPIED}
    except (KeyError, ValueError) as error:
        raise _refused(prefix, "is not whole") from error
    if not isinstance(manifest, dict) or not isinstance(current, dict):
        raise _refused(prefix, "is not whole")
    chunks: Any = (manifest.get("checkpoint") or {}).get("chunks")  # type: ignore[union-attr]
    if manifest.get("execution_state") != "quiescent" or not isinstance(chunks, list):  # type: ignore[union-attr]
        raise _refused(prefix, "was left in the middle of a turn")
    names = [int(hit.group(1)) for path in side if (hit := _GENERATION.search(path)) and path.startswith(folder)]
    following = f"{max(names, default=0) + 1:016d}"
    return Resting(folder, generation, following, manifest, current, checkpoint, copied)  # type: ignore[arg-type]


def _refused(prefix: Session, why: str) -> UnwritableContent:
    return UnwritableContent(
        f"session {prefix.id} in Vibe's own store {why}; nothing can be appended to it",
        code="taken_over",
        hint="Resume it in Vibe once, or use --new: a second session with the whole conversation.",
        session=prefix.id,
    )


class _Items:
    """The items of the new chunk, one a message."""

    def __init__(self, prefix: Session, messages: Sequence[Message]) -> None:
        self.prefix, self.messages = prefix, messages
        self.turn = _last_turn(prefix)

    def all(self) -> tuple[list[bytes], int]:
        """Returns the items, and how many answers to open calls of the prefix are among them."""
        ids = CallIds(taken=_taken(self.prefix))
        names = Names()
        names.reserve(call_names((*self.prefix.messages, *self.messages)))
        unanswered = _open_calls(self.prefix)
        items = [self._answer(Answered(call, None)) for call in unanswered]
        for entry in outline(self.messages, ids, names):
            if type(entry) is Said:
                items.append(self._user(entry))
            elif type(entry) is Replied:
                items.append(self._reply(entry))
            else:
                assert type(entry) is Answered
                items.append(self._answer(entry))
        return items, len(unanswered)

    def _item(self, content: bytes, members: bytes) -> bytes:
        head = b'{"message":{"content":' + content + members + b'},"source":"history","turn_index":'
        return head + b"%d}" % self.turn

    def _user(self, said: Said) -> bytes:
        self.turn += 1
        covered = cover(said.parts, no_image)
        mark = None
        if said.message.origin != "user":
            mark = RecordMark(origin=said.message.origin, kind=said.message.kind)
        return self._item(_content(covered, record_mark(covered, mark)), b',"role":"user"')

    def _reply(self, reply: Replied) -> bytes:
        covered = cover(reply.parts, no_image)
        mark = RecordMark(model=reply.message.model) if reply.message.model else None
        return self._item(_content(covered, record_mark(covered, mark)), b',"role":"assistant"')

    def _answer(self, answer: Answered) -> bytes:
        mark: RecordMark | None = None
        failed = answer.result is None or bool(answer.result.is_error)
        if answer.result is None:
            covered, mark = Cover((Text(INVENTED),)), RecordMark(invented=True)
        else:
            covered = cover(joined_text(answer.parts), no_image)
            mark = record_mark(covered)
        members = b',"name":' + spell(answer.call.name) + b',"outcome":' + (b'"failure"' if failed else b'"success"')
        return self._item(_content(covered, mark), members + b',"role":"tool","tool_call_id":' + spell(answer.call.id))


def _content(covered: Cover, mark: RecordMark | None) -> bytes:
    """Returns the parts of a message; its mark stands in the first of them."""
    blocks: list[bytes] = []
    for number, part in enumerate(covered.parts):
        member = b'"_meta":{"clew":' + msgspec.json.encode(mark) + b"}," if mark is not None and not number else b""
        blocks.append(b"{" + member + _block(part) + b"}")
    return b"[" + b",".join(blocks) + b"]"


def _block(part: Part | WrittenCall) -> bytes:
    if type(part) is WrittenCall:
        arguments = b'"arguments":{"raw":' + spell(part.arguments.decode()) + b',"type":"json","value":'
        rest = b'},"id":' + spell(part.id) + b',"name":' + spell(part.name) + b',"type":"tool_call"'
        return arguments + part.arguments + rest
    assert type(part) is Text, "neither reasoning nor images are written"
    return b'"text":' + spell_lazily(part.source) + b',"type":"text"'


def _items_of(prefix: Session) -> Iterator[rec.Item]:
    records = prefix.records
    for number in range(len(records)):
        if store_kind(records.place(number)[0].path) != "chunks":
            continue
        data = bytes(records[number]).strip(b" \n[],")
        found = rec.ITEMS.one(msgspec.Raw(data)) if data else None
        if found is not None:
            yield found


def _last_turn(prefix: Session) -> int:
    turn = -1
    for item in _items_of(prefix):
        turn = item.turn_index if isinstance(item.turn_index, int) else turn
    return turn


def _taken(prefix: Session) -> frozenset[str]:
    ids: set[str] = set()
    for item in _items_of(prefix):
        if item.message is not None and item.message.role == "assistant":
            parts = rec.PARTS.many(item.message.content)
            ids.update(raws.as_word(part.id) for part in parts if part.type == "tool_call")
    return frozenset(ids)


def _open_calls(prefix: Session) -> list[WrittenCall]:
    """Returns the calls of the last message that nothing answers, with the ids that stand in the store."""
    last = None
    for group in group_messages(prefix.messages):
        last = group
    if last is None or len(last.results) >= len(last.head.calls):
        return []
    waiting: list[WrittenCall] = []
    for item in _items_of(prefix):
        m = item.message
        if m is None:
            continue
        if m.role == "assistant":
            calls = [part for part in rec.PARTS.many(m.content) if part.type == "tool_call"]
            waiting = [WrittenCall(raws.as_word(p.id), raws.as_word(p.name), b"{}") for p in calls]
        elif m.role == "user":
            waiting = []
        elif m.role == "tool":
            waiting = [call for call in waiting if call.id != m.tool_call_id]
    return waiting
