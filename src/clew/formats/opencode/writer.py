"""Writes a conversation as rows of OpenCode's database, and goes on behind rows that are there.

Promised: what the agent needs to list the session and to send all of it; times and ids that ascend, so that the rows
come out of the database in the order in which they were written; no reasoning (the agent would send another model's
as plain text), no empty text, no tokens or costs of others. A call without a result gets a marked, invented one.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from clew.conversation.loss import Loss
from clew.conversation.model import Call, Image, Message, Reasoning, Text
from clew.conversation.source import Buffer, Session
from clew.conversation.text import mend_surrogates
from clew.errors import UnwritableContent
from clew.formats.marks import INVENTED, CallIds, Mark, Names, guard_text, is_invented, standin_text, wrap_arguments
from clew.formats.opencode.names import letters, timed_id
from clew.formats.opencode.schema import columns_of
from clew.formats.opencode.tail import Tail, read_tail
from clew.formats.opencode.turns import OURS
from clew.formats.protocol import WriteOptions, Written, WrittenFile
from clew.formats.rows import PlainJson, Value, encode_row, is_rows, name_rows

VERSION = "1.18.33"
"""The version of the agent that resumed what is written here."""

DATABASE = "opencode.db"
GLOBAL = "global"
"""The project of folders that are in no repository."""

_HELD = ("image/png", "image/jpeg", "image/gif", "image/webp")
_NO_TOKENS = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
_NOBODY = "msg_" + "0" * 26
_COLUMNS = {table: columns_of(table) for table in ("project", "session", "message", "part")}
_encode = msgspec.json.Encoder().encode

Json = dict[str, Any]
Cells = dict[str, Value | PlainJson]


def write(messages: Sequence[Message], options: WriteOptions) -> Written:
    """Writes a conversation in normal form as a new session."""
    times = _times(messages, options.now_ms, None)

    def chunks() -> Iterator[bytes]:
        yield from _head(messages, options, times)
        yield from _Rows(messages, options, options.session_id, Tail(), times).lines()

    path = name_rows(options.facts.get("database", DATABASE), options.session_id)
    file = WrittenFile(path, chunks)
    return Written(options.session_id, (file,), count_losses(messages), count_unanswered(messages))


def splice(prefix: Session, messages: Sequence[Message], options: WriteOptions) -> Written:
    """Appends messages in normal form to a session's rows; raises UnwritableContent where it is not kept in rows."""
    if [is_rows(stream.path) for stream in prefix.records.streams] != [True]:
        raise UnwritableContent(
            f"session {prefix.id} is kept in the files of an older OpenCode, which are not gone on with",
            code="older_layout",
            hint="Start OpenCode once, so that it takes them into its database; then try again.",
            session=prefix.id,
        )
    stream = prefix.records.streams[0]
    tail = read_tail(prefix)
    times = _times(messages, _latest(prefix, messages, tail, options.now_ms), tail.last_ms)

    def chunks() -> Iterator[Buffer]:
        data = memoryview(stream.data)
        end = len(data) if tail.offset is None else tail.offset
        for at in range(0, end, 1 << 20):
            yield data[at : min(at + (1 << 20), end)]
        if end and data[end - 1] != 0x0A:
            yield b"\n"
        yield from _Rows(messages, options, prefix.id, tail, times).lines()
        yield data[end:]

    file = WrittenFile(stream.path, chunks, stream.mode)
    return Written(prefix.id, (file,), count_losses(messages), count_unanswered(messages))


def _latest(prefix: Session, messages: Sequence[Message], tail: Tail, now_ms: int) -> int:
    """Returns the latest time that new messages may have; raises UnwritableContent where there is no room."""
    if tail.before_ms is None:
        return now_ms
    count = sum(message.role != "tool" for message in messages)
    if (tail.last_ms or 0) + count >= tail.before_ms:
        raise UnwritableContent(
            f"session {prefix.id} was taken back to a place where {count} messages have no room",
            code="reverted",
            hint="Go on there in OpenCode, or undo that, then try again; or write a new session with --new.",
            session=prefix.id,
        )
    return min(now_ms, tail.before_ms - 1)


def _times(messages: Sequence[Message], now_ms: int, last_ms: int | None) -> list[int]:
    """Returns a time for each message that is no result: its own as far as they ascend, and none after `now_ms`.

    A prompt that the agent takes later has to come behind all of them.
    """
    heads = [message.time_ms for message in messages if message.role != "tool"]
    given = [time for time in heads if time is not None and 0 < time <= now_ms]
    times: list[int] = []
    before = last_ms if last_ms is not None else (min(given) - len(heads) if given else now_ms - len(heads))
    for time in heads:
        own = time if time is not None and 0 < time <= now_ms else before
        before = max(before + 1, own)
        times.append(before)
    for place in range(len(times)):
        times[-1 - place] = min(times[-1 - place], max(now_ms, (last_ms or 0) + len(times)) - place)
    floor = (last_ms or 0) + 1
    for place, time in enumerate(times):
        times[place] = floor = max(time, floor)
        floor += 1
    return times


# --- what stands before the messages ---------------------------------------------------------------------------


def _head(messages: Sequence[Message], options: WriteOptions, times: Sequence[int]) -> Iterator[bytes]:
    facts = options.facts
    project = facts.get("project", GLOBAL)
    worktree = facts.get("worktree", "/")
    now = options.now_ms
    row: Cells = {
        "id": project,
        "worktree": worktree,
        "vcs": facts.get("vcs"),
        "time_created": now,
        "time_updated": now,
        "sandboxes": "[]",
    }
    yield _line("project", row, shared=True)
    yield _line("session", _session(messages, options, project, worktree, times))


def _session(
    messages: Sequence[Message], options: WriteOptions, project: str, worktree: str, times: Sequence[int]
) -> Cells:
    model = _model(options)
    row: Cells = {
        "id": options.session_id,
        "project_id": project,
        "slug": "clew-" + letters(options.session_id, 8).lower(),
        "directory": _clean(options.cwd),
        "path": _below(worktree, _clean(options.cwd)),
        "title": _title(messages, options),
        "version": VERSION,
        "summary_additions": 0,
        "summary_deletions": 0,
        "summary_files": 0,
        "metadata": _json({"clew": Mark(from_=options.origin)}) if options.origin else None,
        "cost": 0.0,
        "agent": None,
        "model": _json({"id": model["modelID"], "providerID": model["providerID"]}) if model else None,
        "time_created": times[0] if times else options.now_ms,
        "time_updated": max(options.now_ms, times[-1]) if times else options.now_ms,
    }
    tokens: Cells = {name: 0 for name in _COLUMNS["session"] if name.startswith("tokens_")}
    return row | tokens


def _below(worktree: str, folder: str) -> str:
    """Returns the folder as seen from the worktree, as the agent spells it: without a slash in front."""
    root = worktree.rstrip("/")
    return folder[len(root) :].strip("/") if folder == root or folder.startswith(root + "/") else folder.strip("/")


def _title(messages: Sequence[Message], options: WriteOptions) -> str:
    """Returns the title, else the first line that a person typed: one has to be there."""
    if options.title:
        return _clean(options.title)
    for message in messages:
        if message.role == "user" and message.origin == "user":
            words = " ".join(message.text[:400].split())
            if words:
                return _clean(words[:80])
    return "Carried by clew"


def _model(options: WriteOptions) -> dict[str, str] | None:
    """Returns the model to go on with as the agent names one, or None where nobody said."""
    provider, slash, model = (options.model or options.facts.get("model", "")).partition("/")
    return {"providerID": provider, "modelID": model} if slash and provider and model else None


def _clean(text: str) -> str:
    return mend_surrogates(text)


def _line(table: str, row: Cells, *, shared: bool = False) -> bytes:
    columns = _COLUMNS[table]
    return encode_row(table, columns, [row.get(name) for name in columns], shared=shared)


def _json(value: object) -> PlainJson:
    """Returns compact JSON; a lone surrogate in it, which no file can hold, is U+FFFD."""
    try:
        return PlainJson(_encode(value))
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":"))
        return PlainJson(mend_surrogates(text).encode())


# --- messages and parts ----------------------------------------------------------------------------------------


class _Rows:
    """Makes the rows of messages, one after the other; keeps names, call ids and what answers what."""

    def __init__(
        self, messages: Sequence[Message], options: WriteOptions, session_id: str, tail: Tail, times: Sequence[int]
    ) -> None:
        self.messages, self.options, self.session_id, self.times = messages, options, session_id, times
        self.model = _model(options) or tail.model
        self.cwd = tail.directory or _clean(options.cwd)
        self.root = tail.root or options.facts.get("worktree", "/")
        self.asked = tail.asked or _NOBODY
        self.names = Names()
        self.names.reserve(call.name for message in messages for call in message.calls)
        self.ids = CallIds(taken=tail.calls)
        self.answers = _answers(messages)

    def lines(self) -> Iterator[bytes]:
        """Yields the lines of all messages with their parts."""
        number = 0
        for place, message in enumerate(self.messages):
            if message.role == "tool":
                continue
            time_ms = self.times[number]
            number += 1
            id_ = timed_id("msg", time_ms, 0, self.options.new_id(f"message {number}"))
            if message.role == "user":
                self.asked = id_
                data, parts = self._user(message, time_ms), list(self._user_parts(message, id_))
            else:
                data = self._assistant(message, time_ms)
                parts = list(self._assistant_parts(message, place, id_, time_ms))
            yield self._row("message", id_, time_ms, data, {})
            for count, part in enumerate(parts, 1):
                part_id = timed_id("prt", time_ms, count, f"{id_} {count}")
                yield self._row("part", part_id, time_ms, part, {"message_id": id_})

    def _row(self, table: str, id_: str, time_ms: int, data: Json, more: Cells) -> bytes:
        row: Cells = {
            "id": id_,
            "session_id": self.session_id,
            "time_created": time_ms,
            "time_updated": time_ms,
            "data": _json(data),
        }
        return _line(table, row | more)

    def _user(self, message: Message, time_ms: int) -> Json:
        data: Json = {"role": "user", "time": {"created": time_ms}, "agent": "build"}
        return data | ({"model": self.model} if self.model else {})

    def _user_parts(self, message: Message, message_id: str) -> Iterator[Json]:
        """Yields the parts of a user's message; one of the agent's says so on its first part."""
        mark = Mark(origin="agent", kind=message.kind) if message.origin == "agent" else Mark()
        parts = [part for part in message.parts if not (isinstance(part, Text) and part.is_empty)]
        if message.origin == "agent" and not (parts and isinstance(parts[0], Text)):
            parts.insert(0, Text(""))  # it is not sent, and carries the mark
        for number, part in enumerate(parts):
            if isinstance(part, Text):
                yield _text_part(part.text, mark, synthetic=message.origin == "agent")
            elif isinstance(part, Image) and is_held(part):
                yield {"type": "file", "mime": part.media_type.lower(), "url": _data_url(part)}
            elif isinstance(part, Image):
                standin = msgspec.structs.replace(mark, standin=1)
                yield _text_part(_standin(part, number), standin, synthetic=message.origin == "agent")

    def _assistant(self, message: Message, time_ms: int) -> Json:
        return {
            "parentID": self.asked,
            "role": "assistant",
            "mode": "build",
            "agent": "build",
            "path": {"cwd": self.cwd, "root": self.root},
            "cost": 0,
            "tokens": _NO_TOKENS,
            "modelID": message.model or OURS,
            "providerID": OURS,
            "time": {"created": time_ms, "completed": time_ms},
            "finish": "tool-calls" if message.calls else "stop",
        }

    def _assistant_parts(self, message: Message, place: int, message_id: str, time_ms: int) -> Iterator[Json]:
        yield {"type": "step-start"}
        calls = 0
        mark = Mark(kind=message.kind) if message.kind else Mark()
        for number, part in enumerate(message.parts):
            if isinstance(part, Text) and not part.is_empty:
                yield _text_part(part.text, mark) | {"time": {"start": time_ms, "end": time_ms}}
            elif isinstance(part, Image):
                yield _text_part(_standin(part, number), msgspec.structs.replace(mark, standin=1))
            elif isinstance(part, Call):
                result = self.answers.get((place, calls))
                calls += 1
                yield self._tool(part, result, message_id, f"{message_id} call {calls}", time_ms)
        reason = "tool-calls" if calls else "stop"
        yield {"type": "step-finish", "reason": reason, "cost": 0, "tokens": _NO_TOKENS}

    def _tool(self, call: Call, result: Message | None, message_id: str, seed: str, time_ms: int) -> Json:
        given, name = self.ids.open_call(call.id), self.names.legal(call.name)
        arguments, wrapped = wrap_arguments(call.arguments)
        base = Mark(
            name=call.name if name != call.name else None, id=call.id if given != call.id else None, text=wrapped
        )
        state, mark = self._state(result, base, message_id, seed, time_ms)
        part: Json = {"type": "tool", "tool": name, "callID": given}
        part["state"] = {"status": state.pop("status"), "input": msgspec.Raw(arguments), **state}
        return part | ({"metadata": {"clew": mark}} if mark != Mark() else {})

    def _state(self, result: Message | None, mark: Mark, message_id: str, seed: str, time_ms: int) -> tuple[Json, Mark]:
        """Returns the state of a call, without its input, and the mark that goes with it."""
        if result is None:
            time: Json = {"start": time_ms, "end": time_ms}
            return {"status": "error", "error": INVENTED, "time": time}, msgspec.structs.replace(mark, invented=True)
        text, images = result.text, [part for part in result.parts if isinstance(part, Image)]
        kept = [image for image in images if is_held(image)]
        left = [image for image in images if not is_held(image)]
        if is_invented(text):
            text, mark = guard_text(text), msgspec.structs.replace(mark, said=True)
        if left:
            text += "".join(_standin(image, number) for number, image in enumerate(left))
            mark = msgspec.structs.replace(mark, standin=len(left))
        end = result.time_ms if result.time_ms is not None and result.time_ms > time_ms else time_ms
        time = {"start": time_ms, "end": end}
        if result.is_error is True and not kept:
            return {"status": "error", "error": text, "time": time}, mark
        if result.is_error is True:
            mark = msgspec.structs.replace(mark, error=True)
        state: Json = {"status": "completed", "output": text, "title": "", "metadata": {}, "time": time}
        if kept:
            state["attachments"] = [
                self._attachment(image, message_id, time_ms, f"{seed} {n}") for n, image in enumerate(kept)
            ]
        return state, mark

    def _attachment(self, image: Image, message_id: str, time_ms: int, seed: str) -> Json:
        return {
            "id": timed_id("prt", time_ms, 0, seed),
            "sessionID": self.session_id,
            "messageID": message_id,
            "type": "file",
            "mime": image.media_type.lower(),
            "url": _data_url(image),
        }


def _text_part(text: str, mark: Mark, *, synthetic: bool = False) -> Json:
    part: Json = {"type": "text", "text": text}
    if synthetic:
        part["synthetic"] = True
    return part | ({"metadata": {"clew": mark}} if mark != Mark() else {})


def _standin(image: Image, number: int) -> str:
    kind = "".join(c for c in image.media_type if c.isascii() and (c.isalnum() or c in "/+.-"))
    return standin_text(kind or "image", number + 1)


def _data_url(image: Image) -> str:
    return f"data:{image.media_type.lower()};base64,{image.data}"


def is_held(image: Image) -> bool:
    """Tells whether the agent sends an image on: one of four types, with its bytes."""
    return image.media_type.lower() in _HELD and bool(image.data)


def _answers(messages: Sequence[Message]) -> dict[tuple[int, int], Message]:
    """Returns the result of each call, by the place of the call's message and the number of the call in it.

    Results stand directly behind the message of their call: an open call of the same id before it is not theirs.
    """
    waiting: dict[str, deque[tuple[int, int]]] = {}
    answers: dict[tuple[int, int], Message] = {}
    for place, message in enumerate(messages):
        if message.role == "tool":
            calls = waiting.get(message.call_id)
            if calls:
                answers[calls.popleft()] = message
            continue
        waiting = {}
        for number, call in enumerate(message.calls):
            waiting.setdefault(call.id, deque()).append((place, number))
    return answers


def count_losses(messages: Iterable[Message]) -> tuple[Loss, ...]:
    """Returns what rows cannot say of these messages, without decoding a text."""
    reasoning = images = 0
    for message in messages:
        for part in message.parts:
            reasoning += isinstance(part, Reasoning)
            images += isinstance(part, Image) and (message.role == "assistant" or not is_held(part))
    found = (("reasoning blocks", reasoning), ("images", images))
    return tuple(Loss(what, count) for what, count in found if count)


def count_unanswered(messages: Sequence[Message]) -> int:
    """Returns how many calls have no result."""
    return sum(len(message.calls) for message in messages) - len(_answers(messages))
