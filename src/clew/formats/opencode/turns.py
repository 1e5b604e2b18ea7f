"""From stored messages and parts to messages of the conversation, as OpenCode itself sends them, our marks undone.

A row of the user's may hold what a person typed and, marked as synthetic, what the agent put beside it (the text of an
attached file, the task of a command): each becomes a message of its own, stamped with the row of its first part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from clew.conversation.model import Call, Image, Kind, Message, Origin, Part, Reasoning, Text
from clew.conversation.text import JsonString, JsonValue, Lazy, text_of
from clew.formats.marks import INVENTED, Mark, is_standin, unguard_text, unwrap_arguments
from clew.formats.opencode.entries import Entry, Piece
from clew.formats.opencode.records import (
    ATTACHMENTS,
    ERROR,
    STATE,
    STATE_METADATA,
    ToolState,
    as_text,
    decode,
    is_there,
    mark_in,
    member,
)

OURS = "clew"
"""The provider that replies carry which clew wrote: no provider that the agent knows."""

CLEARED = "[Old tool result content cleared]"
"""What the agent sends instead of a result that it has cleared to save room."""

ASKED = "What did we do so far?"
"""What the agent sends where a compaction was asked for."""

RAN = "The following tool was executed by the user"
"""What the agent sends where a person ran a command or a task by himself."""

STANDIN = re.compile(
    r"\[clew: an image stands here: ([^,\]]*), number \d+ of this message; this agent cannot hold it\.\]"
)
_REMINDER = re.compile(r"\s*<system-reminder>.*</system-reminder>\s*", re.DOTALL)
_DATA_URL = re.compile(rb'"data:([^;,"\\]*)[^,"\\]*;base64,')


class Said(msgspec.Struct, frozen=True):
    """A message and the record that created it."""

    message: Message
    record: int


class Telling:
    """One way through a session: `full` as everything was said, else as the agent sends it now.

    `taken` holds the ids of calls without a result so far: a later call of the same id gets another one, since here
    a result belongs to its own part and not to whichever call came first. `renamed` has the original ids of calls that
    a mark names, by the ids under which they are told. `cut` tells that something was left out.
    """

    def __init__(self, *, full: bool) -> None:
        self.full = full
        self.taken: set[str] = set()
        self.renamed: dict[str, str] = {}
        self.cut = False


def messages_of(entry: Entry, telling: Telling) -> Iterator[Said]:
    """Yields the messages of one stored message."""
    if entry.data.role == "user":
        yield from _of_user(entry)
    elif entry.data.role == "assistant":
        if not telling.full and is_dropped(entry):
            telling.cut = True
        else:
            yield from _of_assistant(entry, telling)


def is_dropped(entry: Entry) -> bool:
    """Tells whether the agent leaves a reply out because it failed; an aborted one with content stays."""
    if not is_there(entry.data.error):
        return False
    error = decode(ERROR, entry.data.error)
    aborted = error is not None and error.name == "MessageAbortedError"
    return not (aborted and any(p.data.type not in ("step-start", "reasoning") for p in entry.parts))


# --- the user's rows ------------------------------------------------------------------------------------------


class _Run:
    """Parts side by side that one person or program put there."""

    def __init__(self, origin: Origin, kind: Kind, record: int) -> None:
        self.origin: Origin = origin
        self.kind: Kind = kind
        self.record = record
        self.parts: list[Part] = []


def _of_user(entry: Entry) -> Iterator[Said]:
    whole = _mark_of_row(entry)
    runs: list[_Run] = []
    for piece in entry.parts:
        part, origin, kind = _part_of(piece, whole)
        if part is None:
            continue
        if not runs or runs[-1].origin != origin or runs[-1].kind != kind:
            runs.append(_Run(origin, kind, piece.record if runs else entry.record))
        runs[-1].parts.append(part)
    for run in runs:
        yield Said(Message("user", tuple(run.parts), run.origin, run.kind, entry.time_ms), run.record)


def _mark_of_row(entry: Entry) -> Mark | None:
    """Returns our mark on the first part where it says that the whole row is the agent's."""
    mark = mark_in(entry.parts[0].data.metadata) if entry.parts else None
    return mark if mark is not None and mark.origin == "agent" else None


def _part_of(piece: Piece, whole: Mark | None) -> tuple[Part | None, Origin, Kind]:
    part, origin, kind = _user_part(piece)
    return (part, origin, kind) if whole is None else (part, "agent", kind_of(whole.kind))


def _user_part(piece: Piece) -> tuple[Part | None, Origin, Kind]:
    data = piece.data
    match data.type:
        case "text":
            text = as_text(data.text)
            if text is None or data.ignored is True:
                return None, "user", ""
            mark = mark_in(data.metadata)
            if mark is not None:
                return _unmarked(text, mark), "user", ""
            if data.synthetic is not True:
                return Text(text), "user", ""
            return _synthetic(text)
        case "file":
            image = read_image(data.mime, data.url)
            return image, "agent" if data.synthetic is True else "user", "notice" if data.synthetic is True else ""
        case "compaction":
            return Text(ASKED), "agent", "command"
        case "subtask":
            return Text(RAN), "agent", "command"
        case _:
            return None, "user", ""


def _synthetic(text: Lazy) -> tuple[Part | None, Origin, Kind]:
    """Returns what the agent put there: a reminder is context, a command and a notice are not."""
    head = text_of(text)
    if _REMINDER.fullmatch(head):
        return None, "agent", ""
    return Text(text), "agent", "command" if head == RAN else "notice"


def kind_of(name: str) -> Kind:
    """Returns the kind of that name, none for any other name."""
    match name:
        case "summary" | "interruption" | "command" | "notice":
            return name
        case _:
            return ""


def _unmarked(text: Lazy, mark: Mark) -> Part:
    if mark.standin:
        found = STANDIN.fullmatch(text_of(text))
        if found is not None:
            return Image(found.group(1))
    return Text(unguard_text(text_of(text))) if mark.said else Text(text)


def read_image(mime: object, url: msgspec.Raw) -> Image | None:
    """Returns the image in a file part, its base64 undecoded; None where the file is no image."""
    if not isinstance(mime, str) or not mime.startswith("image/"):
        return None
    view = memoryview(url)
    head = _DATA_URL.match(bytes(view[:200]))
    if head is not None and b"\\" not in bytes(view[head.end() :]):
        return Image(mime, JsonString(msgspec.Raw(b'"' + bytes(view[head.end() :]))))
    text = as_text(url)
    return Image(mime, "", text_of(text) if text is not None else "")


# --- the model's rows -------------------------------------------------------------------------------------------


def _of_assistant(entry: Entry, telling: Telling) -> Iterator[Said]:
    parts: list[Part] = []
    results: list[Said] = []
    kind: Kind = "summary" if bytes(memoryview(entry.data.summary)) == b"true" else ""
    for piece in entry.parts:
        data = piece.data
        if data.type == "text":
            text = as_text(data.text)
            if text is not None:
                mark = mark_in(data.metadata)
                kind = kind_of(mark.kind) if mark is not None and mark.kind else kind
                parts.append(_unmarked(text, mark) if mark is not None else Text(text))
        elif data.type == "reasoning":
            parts.append(Reasoning(as_text(data.text) or ""))
        elif data.type == "tool":
            call, result = _tool(piece, entry, telling)
            parts.append(call)
            results += [result] if result is not None else []
    yield Said(
        Message("assistant", tuple(parts), "model", kind, entry.time_ms, model_of(entry), entry.id), entry.record
    )
    yield from results


def model_of(entry: Entry) -> str:
    """Returns the model that a reply is from."""
    name = entry.data.model_id
    return name if isinstance(name, str) and name != OURS else ""


def provider_of(entry: Entry) -> str:
    """Returns the provider that a reply is from; nothing where clew wrote the reply."""
    name = entry.data.provider_id
    return name if isinstance(name, str) and name != OURS else ""


def _tool(piece: Piece, entry: Entry, telling: Telling) -> tuple[Call, Said | None]:
    data = piece.data
    mark = mark_in(data.metadata) or Mark()
    state = decode(STATE, data.state) if is_there(data.state) else None
    state = state if state is not None else ToolState()
    arguments: Lazy = JsonValue(state.input) if is_there(state.input) else ""
    if mark.text:
        found = unwrap_arguments(bytes(memoryview(state.input)))
        arguments = found if found is not None else arguments
    name = mark.name if mark.name is not None else data.tool if isinstance(data.tool, str) else ""
    written = data.call_id if isinstance(data.call_id, str) else piece.id
    id_ = _told_id(written, piece, mark, telling)
    outcome = _outcome(state, mark, telling)
    if outcome is None:
        telling.taken.add(written)
        return Call(id_, name, arguments), None
    ended = member(state.time, "end")
    time_ms = ended if type(ended) is int else entry.time_ms
    message = Message("tool", outcome[0], "agent", "", time_ms, "", "", id_, outcome[1])
    return Call(id_, name, arguments), Said(message, piece.record)


def _told_id(written: str, piece: Piece, mark: Mark, telling: Telling) -> str:
    """Returns the id under which a call is told, so that no result goes to another one; notes its original id."""
    again = written in telling.taken
    told = f"{written}#{piece.id}" if again or written in telling.renamed else written
    if mark.id is not None:
        telling.renamed[told] = mark.id
    elif told != written and not again:
        telling.renamed[told] = written
    return told


def _outcome(state: ToolState, mark: Mark, telling: Telling) -> tuple[tuple[Part, ...], bool | None] | None:
    """Returns the parts of a result and whether it is an error; None where the call was never answered."""
    if state.status == "completed":
        if member(state.time, "compacted") and not telling.full:
            telling.cut = True
            return (Text(CLEARED),), False
        text = as_text(state.output) or ""
        parts = (*_result_text(text, mark), *_attached(state.attachments))
        return parts, mark.error if mark.error is not None else False
    if state.status == "error":
        text = as_text(state.error) or ""
        if mark.invented or text_of(text) == INVENTED:
            return None
        noted = decode(STATE_METADATA, state.metadata) if is_there(state.metadata) else None
        if noted is not None and noted.interrupted is True:
            text = as_text(noted.output) or text
        return _result_text(text, mark), True
    return None


def _result_text(text: Lazy, mark: Mark) -> tuple[Part, ...]:
    if not mark.said and not mark.standin:
        return (Text(text),)
    plain = text_of(text)
    images: list[Image] = []
    for _ in range(mark.standin):
        at = plain.rfind("[clew: an image stands here")
        found = STANDIN.fullmatch(plain, at) if at >= 0 and is_standin(plain[at:]) else None
        if found is None:
            break
        plain = plain[:at]
        images.insert(0, Image(found.group(1)))
    return (Text(unguard_text(plain) if mark.said else plain), *images)


def _attached(raw: msgspec.Raw) -> Iterator[Image]:
    files = decode(ATTACHMENTS, raw) if is_there(raw) else None
    for file in files or ():
        image = read_image(file.mime, file.url)
        if image is not None:
            yield image
