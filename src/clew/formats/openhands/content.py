"""What one event says, as a piece for the normal form, with clew's own marks undone.

The words that the agent puts before a failure when it sends it are not taken in: the flag says the same. What a
command's end tells (exit code, folder) is sent and is taken in.
"""

from __future__ import annotations

import re

import msgspec

from clew.conversation.model import Call, Image, Message, Part, Reasoning, Text
from clew.conversation.text import Lazy, is_empty
from clew.formats import raws, unmark
from clew.formats.marks import Mark
from clew.formats.openhands import records as rec
from clew.formats.outline import RecordMark
from clew.formats.spelling import is_like_ours
from clew.formats.times import read_time

REJECTED = "Action rejected: "
EMPTY = "empty"
"""The kind of a result's mark where the result was empty and a sentence stands in its place."""

_DATA = re.compile(r"data:([^;,]*);base64,")
_STRINGS = msgspec.json.Decoder(list[str]).decode
_CODES = (int, str)


class Content:
    """Turns events, taken in order, into messages of the conversation.

    Calls and results have the ids that stand in the files; it remembers their original ones, what the marks of calls
    say of their results, and counts what the model in the middle cannot say.
    """

    def __init__(self) -> None:
        self.renamed: dict[str, str] = {}
        self.skipped: dict[str, int] = {}
        self.foreign = ""
        self.promised: dict[str, str] = {}
        """The calls whose results were written behind them, each with the id of its reply."""
        self._results: dict[str, Mark] = {}

    def message(self, event: rec.Event) -> Message | None:
        """Returns what an event says; None for one that is no part of the conversation."""
        kind = raws.as_word(event.kind)
        if kind == rec.MESSAGE:
            return self._said(event)
        if kind == rec.ACTION:
            return self._acted(event)
        if kind in rec.ANSWERS:
            return self._answered(event)
        if kind == rec.SUMMARY:
            return summary_of(event)
        return None

    def _mark(self, raw: msgspec.Raw) -> RecordMark | None:
        mark = unmark.read_mark(raw) if raw is not raws.NONE else None
        if mark is not None and mark.from_ and not self.foreign:
            self.foreign = mark.from_
        return mark

    def _said(self, event: rec.Event) -> Message | None:
        m = rec.MESSAGES.one(event.llm_message)
        if m is None:
            return None
        mark = self._mark(m.clew)
        time = read_time(event.timestamp)
        parts = self._parts(m.content, mark)
        if m.role == "user":
            told = unmark.origin_in(mark)
            if told is None and event.source != "user":
                told = ("agent", "notice")
            origin, kind = told or ("user", "")
            return Message("user", tuple(parts), origin, kind, time)
        if m.role != "assistant":
            return None
        thought = _thought(m.reasoning_content, m.thinking_blocks)
        return Message("assistant", (*thought, *parts), "model", "", time, mark.model if mark is not None else "")

    def _acted(self, event: rec.Event) -> Message | None:
        call = rec.TOOL_CALLS.one(event.tool_call)
        if call is None:
            return None
        mark = action_mark(call.clew)
        if mark is not None and mark.from_ and not self.foreign:
            self.foreign = mark.from_
        written = raws.as_word(call.id) or raws.as_word(event.tool_call_id)
        made = unmark.call_part(written, raws.as_word(call.name), raws.as_arguments(call.arguments), mark)
        if made.id != written:
            self.renamed[written] = made.id
        if mark is not None:
            self._results.update(mark.results)
            if mark.answered:
                self.promised[written] = raws.as_word(event.llm_response_id)
        parts: list[Part] = [*_thought(event.reasoning_content, event.thinking_blocks)]
        parts += self._parts(event.thought, mark)
        parts.append(Call(written, made.name, made.source))
        model = mark.model if mark is not None else ""
        return Message("assistant", tuple(parts), "model", "", read_time(event.timestamp), model)

    def _answered(self, event: rec.Event) -> Message | None:
        written = raws.as_word(event.tool_call_id)
        mark = self._results.get(written)
        failed = True
        if event.kind == rec.FAILURE:
            parts = _texts(raws.as_text(event.error), mark)
        elif event.kind == rec.REJECTION:
            parts = [Text(REJECTED), *_texts(raws.as_text(event.rejection_reason), mark)]
        else:
            observation = rec.OBSERVATIONS.one(event.observation) or rec.Observation()
            failed = observation.is_error is True
            parts = self._observed(observation, mark)
        if mark is not None and mark.kind == EMPTY:
            parts = []
        alone = parts[0] if len(parts) == 1 else None
        told = failed or (mark is None and type(alone) is Text and is_like_ours(alone.source))
        if unmark.is_made_up(tuple(parts), mark, failed=told):
            return None
        return Message("tool", tuple(parts), "agent", "", read_time(event.timestamp), "", "", written, failed)

    def _observed(self, observation: rec.Observation, mark: Mark | None) -> list[Part]:
        parts = self._parts(observation.content, mark)
        if observation.kind == rec.TERMINAL:
            return _with_shell(parts, rec.SHELLS.one(observation.metadata))
        if observation.kind == rec.TASK:
            told = (observation.task_id, observation.subagent, observation.status)
            task, helper, status = (raws.as_word(one) for one in told)
            return [Text(f"Task ID: {task}\nSubagent: {helper}\nStatus: {status}"), *parts]
        if raws.is_text(observation.screenshot_data):
            parts.append(Image("image/png", raws.as_text(observation.screenshot_data)))
        return parts

    def _parts(self, raw: msgspec.Raw, mark: Mark | None) -> list[Part]:
        """Returns the parts of a content: a list of them, or one text."""
        if raws.is_text(raw):
            return _texts(raws.as_text(raw), mark)
        out: list[Part] = []
        for part in rec.PARTS.many(raw):
            if part.type == "text":
                out += _texts(raws.as_text(part.text), mark)
            elif part.type == "image":
                out += [image_at(url) for url in _urls(part.image_urls)]
            else:
                what = "content blocks of an unknown kind"
                self.skipped[what] = self.skipped.get(what, 0) + 1
        return out


def action_mark(raw: msgspec.Raw) -> rec.ActionMark | None:
    """Returns the mark in a call's member `clew`, or None where there is none."""
    if raws.first_byte(raw) != 0x7B:
        return None
    try:
        return rec.ACTION_MARKS(raw)
    except raws.DECODE_ERRORS:
        return None


def summary_of(event: rec.Event) -> Message:
    """Returns the summary that takes the place of forgotten events."""
    parts = _texts(raws.as_text(event.summary), None)
    return Message("user", tuple(parts), "agent", "summary", read_time(event.timestamp))


def image_at(url: str) -> Image:
    """Returns an image by its address, with its bytes where the address holds them."""
    found = _DATA.match(url)
    return Image(found.group(1), url[found.end() :]) if found is not None else Image("", "", url)


def _texts(source: Lazy, mark: Mark | None) -> list[Part]:
    return [] if is_empty(source) else [unmark.text_part(source, mark)]


def _urls(raw: msgspec.Raw) -> list[str]:
    if raws.first_byte(raw) != 0x5B:
        return []
    try:
        return [url for url in _STRINGS(raw) if url]
    except raws.DECODE_ERRORS:
        return []


def _thought(content: msgspec.Raw, blocks: msgspec.Raw) -> list[Reasoning]:
    if raws.is_text(content) and not is_empty(raws.as_text(content)):
        return [Reasoning(raws.as_text(content))]
    return [Reasoning(raws.as_text(b.thinking)) for b in rec.THOUGHTS.many(blocks) if raws.is_text(b.thinking)]


def _with_shell(parts: list[Part], shell: rec.Shell | None) -> list[Part]:
    """Returns the output of a command with what the agent sends around it."""
    if shell is None:
        return parts
    before, after = raws.as_word(shell.prefix), raws.as_word(shell.suffix)
    if raws.as_word(shell.working_dir):
        after += f"\n[Current working directory: {shell.working_dir}]"
    if raws.as_word(shell.py_interpreter_path):
        after += f"\n[Python interpreter: {shell.py_interpreter_path}]"
    code = shell.exit_code
    if type(code) in _CODES and code != -1:
        after += f"\n[Command finished with exit code {code}]"
    return [*([Text(before)] if before else []), *parts, *([Text(after)] if after else [])]
