"""The lines of a conversation, turn by turn: items for the model, events for the agent's own lists and display.

A turn begins with what a person said (`task_started`) and ends with `task_complete`; where the last one had no end,
a fork of the thread would begin with a notice that it was interrupted. Both history modes are written: legacy ones
mirror what was said in `user_message` and `agent_message` events, paginated ones in `item_completed`. A thread that
has no event of a user's message is in none of the agent's lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clew.conversation.model import Message
from clew.formats.codex.lines import Json, Line, Rows, spoken
from clew.formats.protocol import WriteOptions

NO_TEXT = "(no text)"
"""What the lists show for a thread whose first message has no text."""


class Turns:
    """Makes the lines of messages, going on from a running turn where there is one.

    `listed` says that the thread has an event of a user's message already; otherwise the first message stands in
    where nobody says anything.
    """

    def __init__(
        self,
        rows: Rows,
        options: WriteOptions,
        thread_id: str,
        *,
        paginated: bool = False,
        turn: str = "",
        listed: bool = False,
    ) -> None:
        self.rows, self.options, self.thread_id = rows, options, thread_id
        self.paginated, self.turn, self.listed = paginated, turn, listed
        self.count = 0
        self.last = ""

    def lines(self, messages: Sequence[Message]) -> Iterator[Line]:
        """Yields the lines of a conversation in normal form."""
        self.listed = self.listed or any(_is_said(message) for message in messages)
        for message in messages:
            if message.role == "tool":
                line = self.rows.of_result(message)
                if line is not None:
                    yield line
                continue
            yield from self.rows.invented(message.time_ms)
            if message.role == "user":
                yield from self._user(message)
            else:
                yield from self._assistant(message)
        yield from self.rows.invented(None)
        yield from self._end(None)

    def _user(self, message: Message) -> Iterator[Line]:
        if _is_said(message) or not self.turn:
            yield from self._end(message.time_ms)
            yield from self._begin(message.time_ms)
        yield self.rows.of_user(message)
        if _is_said(message) or not self.listed:
            self.listed = True
            yield self._said_event(message.text, message.time_ms)

    def _assistant(self, message: Message) -> Iterator[Line]:
        if not self.turn:
            yield from self._begin(message.time_ms)
        if not self.listed:
            self.listed = True
            yield self._said_event(self.options.title, message.time_ms)
        for line in self.rows.of_assistant(message):
            text = spoken(line)
            if text:
                self.last = text
                yield self._spoken_event(text, line.time_ms)
            yield line

    # --- events -------------------------------------------------------------------------------------------

    def _said_event(self, text: str, time_ms: int | None) -> Line:
        text = text or NO_TEXT
        if self.paginated:
            content: list[Json] = [{"type": "text", "text": text, "text_elements": ()}]
            return self._item({"type": "UserMessage", "id": self._new_id("item"), "content": content}, time_ms)
        return Line("event_msg", {"type": "user_message", "message": text, "kind": "plain"}, time_ms=time_ms)

    def _spoken_event(self, text: str, time_ms: int | None) -> Line:
        if self.paginated:
            content = [{"type": "Text", "text": text}]
            return self._item({"type": "AgentMessage", "id": self._new_id("item"), "content": content}, time_ms)
        return Line("event_msg", {"type": "agent_message", "message": text}, time_ms=time_ms)

    def _item(self, item: Json, time_ms: int | None) -> Line:
        payload: Json = {
            "type": "item_completed",
            "thread_id": self.thread_id,
            "turn_id": self.turn,
            "item": item,
            "completed_at_ms": self.options.now_ms if time_ms is None else time_ms,
        }
        return Line("event_msg", payload, time_ms=time_ms)

    def _begin(self, time_ms: int | None) -> Iterator[Line]:
        self.turn, self.last = self._new_id("turn"), ""
        payload: Json = {
            "type": "task_started",
            "turn_id": self.turn,
            "started_at": self._seconds(time_ms),
            "model_context_window": None,
            "collaboration_mode_kind": "default",
        }
        yield Line("event_msg", payload, time_ms=time_ms)

    def _end(self, time_ms: int | None) -> Iterator[Line]:
        if not self.turn:
            return
        payload: Json = {
            "type": "task_complete",
            "turn_id": self.turn,
            "last_agent_message": self.last or None,
            "completed_at": self._seconds(time_ms),
        }
        self.turn = ""
        yield Line("event_msg", payload, time_ms=time_ms)

    def _new_id(self, sort: str) -> str:
        self.count += 1
        return self.options.new_id(f"{sort} {self.count}")

    def _seconds(self, time_ms: int | None) -> int:
        return (self.options.now_ms if time_ms is None else time_ms) // 1000


def _is_said(message: Message) -> bool:
    return message.role == "user" and message.origin == "user"
