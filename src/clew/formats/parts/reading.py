"""From the parts of one record to messages, with the marks of clew's own writer undone.

A record without a mark is taken literally, but for whole texts that the agent itself puts there (`Sorter`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from clew.conversation.model import Call, Image, Kind, Message, Origin, Reasoning, Text
from clew.conversation.model import Part as Said
from clew.conversation.text import JsonString, JsonValue, Lazy, is_empty, size_hint, text_of
from clew.formats.marks import INVENTED, is_invented, is_standin, unguard_text, unwrap_arguments
from clew.formats.parts.values import (
    NONE,
    FunctionResponse,
    Part,
    RecordMark,
    as_text,
    first_byte,
    is_object,
    is_text,
    read_call,
    read_image,
    read_output,
    read_parts,
    read_response,
)
from clew.formats.spelling import is_like_ours

Sorter: TypeAlias = Callable[[Lazy], Kind | None]
"""Says what a text of a user's record is: "" said by a person, another kind put there by the agent, None context."""

GUARD = "\u200b"
"""The text part that stands before a text which the agent would drop or mistake. No agent trims it away."""

NO_MARK = RecordMark()
_STANDIN = re.compile(r"\[clew: an image stands here: (.*), number \d+ of", re.DOTALL)
_ORIGINS: dict[str, Origin] = {"user": "user", "agent": "agent", "model": "model"}
_KINDS: dict[str, Kind] = {k: k for k in ("", "summary", "interruption", "command", "notice")}  # type: ignore[misc]


class Speech:
    """Turns contents, taken in the order of the conversation, into messages.

    Calls and results have the ids that stand in the file; `renamed` has the original ones, for the normal form. It
    counts what the model in the middle cannot say.
    """

    def __init__(self, sort: Sorter) -> None:
        self._sort = sort
        self.renamed: dict[str, str] = {}
        self.skipped: dict[str, int] = {}

    # --- what the model said --------------------------------------------------------------------------------

    def reply(self, parts: Sequence[Part], mark: RecordMark | None) -> list[Said]:
        """Returns what a content of the model says, in order."""
        said: list[Said] = []
        for part in parts:
            if is_object(part.function_call):
                call = self.call(part.function_call, mark)
                if call is not None:
                    said.append(call)
            elif is_text(part.text):
                text = JsonString(part.text)
                said.append(Reasoning(text) if part.thought else _unmarked(text, mark))
            elif (image := read_image(part)) is not None:
                said.append(image)
            elif not is_object(part.function_response):
                self._skip("parts of an unknown kind")
        return said

    def call(self, raw: msgspec.Raw, mark: RecordMark | None) -> Call | None:
        """Returns a call with its own name and arguments, and the id that stands in the file."""
        found = read_call(raw)
        if found is None:
            return None
        written, name = as_text(found.id), as_text(found.name)
        source: Lazy = _arguments(found.args)
        own = mark.calls.get(written) if mark is not None else None
        if own is None:
            return Call(written, name, source)
        if own.text:
            text = unwrap_arguments(bytes(found.args))
            source = source if text is None else text
        if own.id is not None:
            self.renamed[written] = own.id
        return Call(written, own.name if own.name is not None else name, source)

    # --- results ----------------------------------------------------------------------------------------------

    def results(self, parts: Sequence[Part], mark: RecordMark | None, only: str | None = None) -> list[Result]:
        """Returns the results in a content; what stands behind a response and is no response of its own is its picture.

        With `only`, a result of another call is left out, and one that names no call is taken for that call's.
        """
        found: list[Result] = []
        taken = False
        for part in parts:
            if is_object(part.function_response):
                response = read_response(part.function_response)
                taken = response is not None and (only is None or as_text(response.id) in ("", only))
                if response is not None and taken:
                    found.append(self._result(response, mark, only))
            elif taken and (image := read_image(part)) is not None:
                found[-1].pictures.append(image)
            elif taken and mark is not None and mark.standin and is_text(part.text):
                said = _unmarked(JsonString(part.text), mark)
                if isinstance(said, Image):
                    found[-1].pictures.append(said)
        return found

    def _result(self, response: FunctionResponse, mark: RecordMark | None, only: str | None) -> Result:
        written = as_text(response.id) or only or ""
        own = (mark.calls.get(written) if mark is not None else None) or NO_MARK
        text, failed = read_output(response.response)
        nested = read_parts(response.parts)
        pictures = [image for part in nested if (image := read_image(part)) is not None] if nested else []
        for part in nested:
            said = _unmarked(JsonString(part.text), mark) if is_text(part.text) else None
            if isinstance(said, Image):
                pictures.append(said)
            elif said is not None:
                self._skip("texts beside a result")
        invented = own.invented or (failed and not own.said and _is_invented(text))
        if own.said:
            text = unguard_text(text_of(text))
        return Result(written, text, pictures, failed, invented)

    # --- what the user's side said ----------------------------------------------------------------------------

    def heard(self, parts: Sequence[Part], mark: RecordMark | None) -> tuple[list[Said], Origin, Kind]:
        """Returns what a user's content says beside its results, and who said it."""
        said: list[Said] = []
        kinds: set[Kind] = set()
        is_result = False
        for part in parts:
            if is_object(part.function_response):
                is_result = True
            elif is_text(part.text):
                source = JsonString(part.text)
                if is_result and mark is not None and mark.standin:
                    continue
                kind = self._sort(source) if mark is None else ""
                if kind is not None and not is_empty(source):
                    kinds.add(kind)
                    said.append(_unmarked(source, mark))
            elif (image := read_image(part)) is not None:
                if not is_result:
                    said.append(image)
            elif not part.thought:
                self._skip("parts of an unknown kind")
        if mark is None:
            kind = kinds.pop() if len(kinds) == 1 else ""
            return said, "agent" if kind else "user", kind
        if mark.said and said and isinstance(said[0], Text) and said[0].text == GUARD:
            del said[0]
        origin = _ORIGINS.get(mark.origin, "user")
        return said, origin, _KINDS.get(mark.kind, "")

    def _skip(self, what: str) -> None:
        self.skipped[what] = self.skipped.get(what, 0) + 1


class Result:
    """A response as it stands in a file: the id of its call there, and what it says."""

    __slots__ = ("failed", "invented", "pictures", "text", "written")

    def __init__(self, written: str, text: Lazy, pictures: list[Image], failed: bool, invented: bool) -> None:
        self.written, self.text = written, text
        self.pictures, self.failed, self.invented = pictures, failed, invented

    def message(self, time_ms: int | None) -> Message:
        """Returns it as a message."""
        parts: list[Said] = [] if is_empty(self.text) else [Text(self.text)]
        return Message("tool", (*parts, *self.pictures), "agent", "", time_ms, "", "", self.written, self.failed)


def _arguments(raw: msgspec.Raw) -> Lazy:
    first = first_byte(raw)
    if first == 0x22:
        return JsonString(raw)
    return JsonValue(raw) if first and raw is not NONE else ""


def _is_invented(text: Lazy) -> bool:
    return size_hint(text) <= 2 * len(INVENTED) and is_invented(text_of(text))


def _unmarked(source: Lazy, mark: RecordMark | None) -> Text | Image:
    """Returns a text; in a record with stand-ins its guard is taken off, and what stands for an image is one."""
    if mark is None or not mark.standin or not is_like_ours(source):
        return Text(source)
    text = text_of(source)
    found = _STANDIN.match(text) if is_standin(text) else None
    return Text(unguard_text(text)) if found is None else Image(found.group(1))
