"""Who is asked about an item: one protocol for agents and endpoints, and patience with the network alone.

An asker gives a text, what it cost and, for an agent, the session it was said in; or it raises ItemFailed. Only
`Unreached` (no connection, a server that is busy or down) is tried again, with growing pauses inside the item's time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from clew.runs.lineage import Target
from clew.runs.log import SessionRef
from clew.runs.operation import ItemContext, ItemFailed, Usage

MAX_ANSWER_BYTES = 16 << 20


class Answer(Struct, frozen=True):
    """What came back: the text, its cost, the model that says it answered, the agent's session."""

    text: str
    usage: Usage = Usage()
    model: str = ""
    session: SessionRef | None = None


class Unreached(ItemFailed):
    """The network or the server failed before an answer was begun; asking again costs nothing and may help.

    `pause_s` is how long the server wants to be left alone; 0 when it said nothing.
    """

    def __init__(self, reason: str, *, pause_s: float = 0, classification: str = "provider") -> None:
        super().__init__(classification, reason)
        self.pause_s = pause_s


class AskAgent(Protocol):
    """Something that answers a question about an item: an agent without a terminal, or an endpoint."""

    @property
    def target(self) -> Target:
        """The labels of provider and model that the manifest records."""
        ...

    @property
    def protocol(self) -> str:
        """How it is spoken to: an agent's name, `openai`, `anthropic`."""
        ...

    @property
    def host(self) -> str:
        """The host that is asked; empty for an agent. It goes into a digest, nowhere else."""
        ...

    @property
    def works_in_folder(self) -> bool:
        """Tells whether it wants to lie in a checkout and read there."""
        ...

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names at the top of a checkout that are not laid out, since it would obey them; empty for an endpoint."""
        ...

    def ask(self, question: str, folder: Path | None, context: ItemContext) -> Answer:
        """Returns the answer, within the item's time; raises ItemFailed, or Unreached for the network."""
        ...


class Patience(Struct, frozen=True):
    """How often the network is tried, and the pauses: `first_s`, doubled each time up to `longest_s`."""

    tries: int = 4
    first_s: float = 1.0
    longest_s: float = 30.0


def pause_for(context: ItemContext, seconds: float) -> None:
    """Waits, at most for the item's time, and returns early when the run is cancelled."""
    context.cancelled.wait(max(0.0, min(seconds, context.remaining_s())))


def ask_patiently(
    asker: AskAgent,
    question: str,
    folder: Path | None,
    context: ItemContext,
    patience: Patience,
    pause: Callable[[ItemContext, float], None] = pause_for,
) -> Answer:
    """Returns the answer, trying again after what only the network did."""
    for attempt in range(1, patience.tries + 1):
        context.check()
        try:
            return asker.ask(question, folder, context)
        except Unreached as error:
            context.record("llm_error", {"number": attempt, "error": error.reason})
            wait = max(error.pause_s, min(patience.first_s * 2 ** (attempt - 1), patience.longest_s))
            if attempt == patience.tries or wait >= context.remaining_s():
                raise
            pause(context, wait)
    raise AssertionError("the last try returns or raises")
