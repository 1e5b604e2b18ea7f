"""Writes a conversation as a session of Grok, goes on behind restored records, and gives records another id.

The history is what the agent sends to its model; the stream for display is what it shows, and where a result of long
ago is still found. The agent writes its history anew whenever it likes and keeps no member that it does not know: what
must come back is in the values that it keeps (the wrapper of a prompt, `model_fingerprint` of a reply). The session's
own description is written last, because the agent lists a session by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from clew.conversation.groups import group_messages
from clew.conversation.loss import Loss
from clew.conversation.model import Image, Message, Reasoning
from clew.conversation.source import Buffer, Session, Stream
from clew.conversation.text import mend_surrogates
from clew.formats.grok import records as rec
from clew.formats.grok.folder import CWD, SESSIONS, group_name, is_hashed, session_path
from clew.formats.grok.lines import Display, Lines, can_hold
from clew.formats.grok.reader import DISPLAY, HISTORY, SUMMARY, folder_of, side_file
from clew.formats.jsonout import Json, whole_lines
from clew.formats.protocol import WriteOptions, Written, WrittenFile

VERSION = "1.0.41"
"""The version of the agent that resumed what is written here."""

_TITLE_SIGNS = 80
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def write(messages: Sequence[Message], options: WriteOptions) -> Written:
    """Writes a conversation in normal form as a new session of the folder `options.cwd`."""
    folder = session_path(options.cwd, options.session_id)
    model = options.model or next((m.model for m in reversed(messages) if m.model), "")

    def history() -> Iterator[bytes]:
        return Lines(messages, origin=options.origin, model=model).lines()

    def display() -> Iterator[bytes]:
        return Display(messages, options.session_id, options.now_ms).lines()

    first = next((m.time_ms for m in messages if m.time_ms is not None), options.now_ms)
    summary: Json = {
        "info": {"id": options.session_id, "cwd": options.cwd},
        "session_summary": mend_surrogates(options.title) or _first_prompt(messages),
        "created_at": time_text(first),
        "current_model_id": mend_surrogates(options.model),
        "chat_format_version": 1,
    }
    summary |= _counted(len(messages), options.now_ms)
    if options.title:
        summary |= {"generated_title": mend_surrogates(options.title), "title_is_manual": True}
    files = [
        WrittenFile(folder + DISPLAY, display, role="side"),
        WrittenFile(folder + HISTORY, history),
        _description(folder, summary),
    ]
    files += _named_group(folder, options.cwd)
    losses, invented = count_losses(messages)
    return Written(options.session_id, tuple(files), losses, invented)


def time_text(ms: int) -> str:
    """Returns a time as RFC 3339 in UTC, as the agent writes it; its nanoseconds end in zeros."""
    return (_EPOCH + timedelta(milliseconds=ms)).strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"


def _counted(count: int, now_ms: int) -> Json:
    now = time_text(now_ms)
    return {"updated_at": now, "last_active_at": now, "num_messages": count, "num_chat_messages": count}


def _first_prompt(messages: Sequence[Message]) -> str:
    said = next((m.text for m in messages if m.role == "user" and m.origin == "user" and m.text.strip()), "")
    return mend_surrogates(" ".join(said[: 4 * _TITLE_SIGNS].split())[:_TITLE_SIGNS]) or "(no text)"


def _description(folder: str, summary: object) -> WrittenFile:
    data = msgspec.json.format(msgspec.json.encode(summary), indent=2)
    return WrittenFile(folder + SUMMARY, lambda: (data,), role="index")


def _named_group(folder: str, cwd: str) -> list[WrittenFile]:
    """Returns the file that names a working folder beside its sessions, where their place does not spell it."""
    group = f"{SESSIONS}/{group_name(cwd)}/"
    if not is_hashed(cwd) or not folder.startswith(group):
        return []
    named = cwd.encode("utf-8", "replace")
    return [WrittenFile(group + CWD, lambda: (named,), role="index")]


# --- going on ---------------------------------------------------------------------------------------------------


def splice(prefix: Session, messages: Sequence[Message], options: WriteOptions) -> Written:
    """Appends messages in normal form to a session's restored records."""
    streams = prefix.records.streams
    path = streams[-1].path if streams else session_path(options.cwd, options.session_id) + HISTORY
    folder, session_id = folder_of(path), prefix.id or options.session_id
    tail = _Tail(prefix)

    def history() -> Iterator[Buffer]:
        yield from _prefix(streams[-1] if streams else None)
        model = prefix.model
        yield from Lines(messages, model=model, taken=tail.taken, prompts=tail.prompts).lines(tail.open)

    shown = side_file(prefix.side, folder + DISPLAY)

    def display() -> Iterator[Buffer]:
        if shown is not None:
            yield from _prefix(Stream(shown.path, shown.load(), shown.mode))
        writing = Display(messages, session_id, options.now_ms, taken=tail.taken, prompts=tail.prompts)
        yield from writing.lines()

    losses, invented = count_losses(messages)
    summary = _stored_summary(prefix, folder) or _plain_summary(prefix, options)
    summary |= _counted(len(prefix.messages) + len(messages), options.now_ms)
    files = [
        WrittenFile(folder + DISPLAY, display, shown.mode if shown is not None else 0o600, "side"),
        WrittenFile(path, history, streams[-1].mode if streams else 0o600),
        _description(folder, summary),
        *_named_group(folder, prefix.cwd or options.cwd),
    ]
    if path.endswith("/" + DISPLAY):  # without a history the stream for display is the prefix
        return _splice_display(prefix, messages, options, tail)
    return Written(session_id, tuple(files), losses, invented + len(tail.open))


def _splice_display(prefix: Session, messages: Sequence[Message], options: WriteOptions, tail: _Tail) -> Written:
    stream = prefix.records.streams[-1]

    def chunks() -> Iterator[Buffer]:
        yield from _prefix(stream)
        writing = Display(messages, prefix.id, options.now_ms, taken=tail.taken, prompts=tail.prompts)
        yield from writing.lines(plain=True)

    losses, invented = count_losses(messages)
    return Written(prefix.id, (WrittenFile(stream.path, chunks, stream.mode),), losses, invented)


def _prefix(stream: Stream | None) -> Iterator[Buffer]:
    """Yields a stream whole, and a newline where its last line has none."""
    return iter(()) if stream is None else whole_lines(stream)


class _Tail:
    """What the lines of a prefix leave: the call ids in it, those without a result, and how many prompts there were."""

    def __init__(self, prefix: Session) -> None:
        taken: set[str] = set()
        self.prompts = 0
        waiting: list[str] = []
        for number in range(len(prefix.records)):
            item = rec.decode(prefix.records[number], rec.Item)
            self.prompts = max(self.prompts, (rec.number(item.prompt_index) or 0) + (item.prompt_index is not None))
            calls = [rec.text(call.id) for call in rec.decode_list(item.calls, rec.Call)]
            if calls:
                taken.update(calls)
                waiting = calls
            elif rec.text(item.call_id) in waiting:
                waiting.remove(rec.text(item.call_id))
        self.taken = frozenset(taken)
        group = next(iter(deque(group_messages(prefix.messages), maxlen=1)), None)
        count = len(group.head.calls) - len(group.results) if group is not None else 0
        self.open = tuple(waiting[-count:]) if count else ()


def _stored_summary(prefix: Session, folder: str) -> dict[str, object]:
    """Returns the members of the session's description, undecoded."""
    file = side_file(prefix.side, folder + SUMMARY)
    try:
        return dict(msgspec.json.decode(bytes(file.load()), type=dict[str, msgspec.Raw])) if file is not None else {}
    except (msgspec.DecodeError, RecursionError):
        return {}


def _plain_summary(prefix: Session, options: WriteOptions) -> Json:
    created = prefix.created_ms if prefix.created_ms is not None else options.now_ms
    return {
        "info": {"id": prefix.id or options.session_id, "cwd": prefix.cwd or options.cwd},
        "session_summary": mend_surrogates(prefix.title) or _first_prompt(prefix.messages),
        "created_at": time_text(created),
        "current_model_id": mend_surrogates(prefix.model),
        "chat_format_version": 1,
    }


def count_losses(messages: Sequence[Message]) -> tuple[tuple[Loss, ...], int]:
    """Returns what this format cannot carry of a conversation, and how many calls go unanswered in it."""
    reasoning = images = flags = invented = 0
    for group in group_messages(messages):
        left = [call.id for call in group.head.calls]
        for result in group.results:
            flags += result.is_error is not None
            if result.call_id in left:
                left.remove(result.call_id)
        invented += len(left)
        for message in (group.head, *group.results):
            for part in message.parts:
                reasoning += isinstance(part, Reasoning)
                held = isinstance(part, Image) and message.role != "assistant" and can_hold(part)
                images += isinstance(part, Image) and not held
    found = (
        Loss("reasoning blocks", reasoning, "thinking of another model"),
        Loss("images", images, "said by the model, or kinds that the agent takes not"),
        Loss("error flags", flags, "a failure is only what the result's text says"),
    )
    return tuple(loss for loss in found if loss.count), invented


# --- another id -------------------------------------------------------------------------------------------------


def rebase(session: Session, options: WriteOptions) -> Written:
    """Returns the session's records as a session of another id; the history itself does not name it.

    The description and the stream for display do; all other side files go with the session as they are.
    """
    streams = session.records.streams
    old = folder_of(streams[-1].path) if streams else ""
    new = session_path(options.cwd or session.cwd, options.session_id)
    name = session.id.encode("utf-8", "replace")

    def renamed(load: Callable[[], Buffer]) -> Iterable[Buffer]:
        data, fresh = bytes(load()), options.session_id.encode()
        data = data.replace(b'"sessionId":"' + name + b'"', b'"sessionId":"' + fresh + b'"')
        yield data.replace(b'"eventId":"' + name + b"-", b'"eventId":"' + fresh + b"-")

    files: list[WrittenFile] = []
    for file in session.side:
        if not old or not file.path.startswith(old) or file.path == old + SUMMARY:
            continue
        if file.path == old + DISPLAY:
            chunks: Callable[[], Iterable[Buffer]] = lambda file=file: renamed(file.load)  # noqa: E731
        else:
            chunks = lambda file=file: (file.load(),)  # noqa: E731
        files.append(WrittenFile(new + file.path.removeprefix(old), chunks, file.mode, "side"))
    for stream in streams:
        is_display = stream.path == old + DISPLAY
        chunks = (lambda s=stream: renamed(lambda: s.data)) if is_display else (lambda s=stream: (s.data,))
        files.append(WrittenFile(new + stream.path.removeprefix(old), chunks, stream.mode))
    summary = _stored_summary(session, old) or _plain_summary(session, options)
    summary["info"] = {"id": options.session_id, "cwd": options.cwd or session.cwd}
    files.append(_description(new, summary))
    return Written(options.session_id, tuple(files))
