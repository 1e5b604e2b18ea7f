"""What an adapter promises: start or resume an agent with a token, prove it, hand messages over, release it.

Promised by every adapter, and checked by one law suite (tests/host/test_adapter_law.py):

* `start` returns as soon as the process exists, and its environment holds the spawn token; what it raises is
  `NotStarted` only where no process can exist;
* nothing is sent that was not asked for, nothing twice, and nothing before `prove` has answered;
* `send` says `Accepted` or `Rejected` only on the agent's own word; silence, a closed pipe and a timeout are `InDoubt`;
* the history window is what the agent itself keeps, read without starting anything;
* `release` is idempotent, never raises, and claims an exit only when it was seen.

Not promised: that an agent echoes client ids. An adapter never looks at a lease, a store or the clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, Protocol

import msgspec

from clew.errors import HostError
from clew.journal.reconcile import Window
from clew.journal.rows import Item
from clew.lineage.handle import Handle, Namespace
from clew.platform.process import ProcessIdentity

TOKEN_VARIABLE: Final = "CLEW_SPAWN_TOKEN"  # noqa: S105 - the name of a variable
"""The variable of an agent's environment that carries the token it was started with."""

Seen = Literal["exit_proven", "root_exit_observed", "unproven"]
"""What a release saw of the child: all of it ended; its own process ended, descendants unknown; nothing certain."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent is started. `handle` None: a new conversation; else that one is resumed.

    `environment` is whole: nothing is inherited, and the token stands in it. `home` is the agent's own folder.
    """

    token: str
    cwd: str
    home: str
    handle: Handle | None = None
    options: tuple[tuple[str, str], ...] = ()
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}


class Proof(msgspec.Struct, frozen=True):
    """What the agent answered to its handshake: the conversation it has open, how, and the token it echoes.

    `token` None: this agent echoes none. `origin`: it began the conversation, went on with it, or forked it.
    """

    handle: Handle
    origin: Literal["created", "resumed", "forked"]
    token: str | None = None


class Payload(msgspec.Struct, frozen=True):
    """One message to hand over: its client id, and its text blocks (None for what is no text) as `body` says them."""

    client_id: str
    body: bytes
    text: str | None = None


class Accepted(msgspec.Struct, frozen=True):
    """The agent took the message. `item_key` names its own item of it, where it says so."""

    item_key: str | None = None
    receipt: str | None = None


class Rejected(msgspec.Struct, frozen=True):
    """The agent refused the message, in its own words; it did not take effect."""

    reason: str


class ItemSeen(msgspec.Struct, frozen=True):
    """The agent told of an item of its conversation."""

    item: Item


class TurnEnded(msgspec.Struct, frozen=True):
    """The agent's turn is over."""


class Exited(msgspec.Struct, frozen=True):
    """The child is gone; nothing comes after this."""

    detail: str = ""


Event = ItemSeen | TurnEnded | Exited


class Unsupported(msgspec.Struct, frozen=True):
    """Why an agent cannot be driven here: it cannot (`host_unsupported`: missing, too old, the wrong system), or it may
    not (`host_disabled`: somebody switched that off). `detail` says what or who, and what would change it."""

    detail: str
    reason: Literal["host_unsupported", "host_disabled"] = "host_unsupported"


class NotStarted(HostError):
    """No process exists: the program is missing, or the system refused to start it."""

    default_code = "agent_missing"


class HandshakeFailed(HostError):
    """The child ended, or answered nonsense, before its handshake: it ran nothing."""

    default_code = "agent_refused"


class Child(Protocol):
    """One started agent. For use by one thread."""

    @property
    def process(self) -> ProcessIdentity:
        """The process that was started."""
        ...

    @property
    def token(self) -> str:
        """The token that it carries."""
        ...

    def prove(self) -> Proof:
        """Waits for the handshake and returns what the agent answered; raises HandshakeFailed."""
        ...

    def send(self, payload: Payload) -> Accepted | Rejected:
        """Hands one message over and waits for the agent's word; raises InDoubt when there is none."""
        ...

    def interrupt(self) -> None:
        """Asks the agent to stop its turn; harmless when there is none."""
        ...

    def receive(self, timeout_s: float) -> Event | None:
        """Returns the next event, or None when none came in that time."""
        ...

    def has_exited(self) -> bool:
        """Tells whether this process was seen to exit."""
        ...

    def release(self) -> Seen:
        """Ends the agent, at first kindly, and says what was seen. Idempotent; never raises."""
        ...


class Adapter(Protocol):
    """One agent, as a host drives it."""

    @property
    def namespace(self) -> Namespace:
        """Of the handles that it proves."""
        ...

    def unsupported(self) -> Unsupported | None:
        """Returns why this agent cannot be driven here, or None. Asked more than once: it may change."""
        ...

    def window(self, handle: Handle, home: str, after: str | None) -> Window | None:
        """Returns the user items of the agent's own history behind the item of key `after` (None: all).

        None when there is no history to be had. Starts nothing.
        """
        ...

    def history(self, handle: Handle, home: str) -> tuple[Item, ...] | None:
        """Returns all items of the agent's own history in order, to build a journal from; None when it has none."""
        ...

    def start(self, launch: Launch) -> Child:
        """Starts the agent; raises NotStarted when no process exists."""
        ...
