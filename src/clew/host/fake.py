"""The adapter of the scripted agent: a real child process, so that every law and every crash is tried on processes.

It passes the same law suite as the adapters of real agents. Its agent keeps, per conversation, the file
`<id>.jsonl` of its items and `<id>.deliveries` of everything that ever reached it.
"""

from __future__ import annotations

import json
import queue
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from clew.errors import InDoubt
from clew.host.child import JsonChild
from clew.host.protocol import (
    TOKEN_VARIABLE,
    Accepted,
    Child,
    Event,
    Exited,
    HandshakeFailed,
    ItemSeen,
    Launch,
    Payload,
    Proof,
    Rejected,
    Seen,
    TurnEnded,
    Unsupported,
)
from clew.journal.reconcile import HistoryItem, Window
from clew.journal.rows import Item, text_fingerprint
from clew.lineage.handle import Handle, Namespace
from clew.platform.process import ProcessIdentity

FAKE = Namespace("fake-lines", "fake")
_HANDSHAKE_S = 20.0
_PROGRAM = Path(__file__).with_name("fake_agent.py")


class Script(msgspec.Struct, frozen=True):
    """How the agent behaves. `die` names a point: before-handshake, after-handshake, on-receive, before-record,
    recorded, answered. `token` is echoed instead of the one it was started with; `wait_s` is how long an answer to a
    message is waited for."""

    echo: bool = True
    die: str = ""
    silent: bool = False
    stubborn: bool = False
    outlives: bool = False
    token: str | None = None
    wait_s: float = 10.0
    missing: bool = False


class FakeAdapter:
    """Drives the scripted agent."""

    namespace = FAKE

    def __init__(self, script: Script | None = None, new_id: str = "conversation-1") -> None:
        self.script, self.new_id = script or Script(), new_id
        self.refusal: Unsupported | None = None
        self.started = 0

    def unsupported(self) -> Unsupported | None:
        """Returns what a test set."""
        return self.refusal

    def window(self, handle: Handle, home: str, after: str | None) -> Window | None:
        """Returns the user items of the agent's file behind the item of key `after`."""
        kept = _read(Path(home), handle.native_id)
        if kept is None:
            return None
        keys = [_key(handle.native_id, entry) for entry in kept]
        consistent = after is None or after in keys
        start = keys.index(after) + 1 if after is not None and consistent else 0
        items = tuple(
            HistoryItem(entry["own_id"], entry["client_id"], text_fingerprint(entry["text"]), key)
            for entry, key in zip(kept[start:], keys[start:], strict=True)
            if entry["role"] == "user"
        )
        return Window(items, consistent)

    def history(self, handle: Handle, home: str) -> tuple[Item, ...] | None:
        """Returns all items of the agent's file."""
        kept = _read(Path(home), handle.native_id)
        if kept is None:
            return None
        return tuple(_item(handle.native_id, entry) for entry in kept)

    def start(self, launch: Launch) -> Child:
        """Starts the agent."""
        self.started += 1
        return FakeChild(launch, self.script, self.new_id)


class FakeChild:
    """One running scripted agent."""

    def __init__(self, launch: Launch, script: Script, new_id: str) -> None:
        self.token = launch.token
        self._script = script
        self._id = new_id if launch.handle is None else launch.handle.native_id
        self._resume = launch.handle is not None
        base = Path(launch.home)
        base.mkdir(parents=True, exist_ok=True)
        told = json.dumps({k: v for k, v in msgspec.structs.asdict(script).items() if v is not None})
        program = "/nonexistent/agent" if script.missing else sys.executable
        argv = (
            program,
            "-I",
            "-S",
            str(_PROGRAM),
            str(base / f"{self._id}.jsonl"),
            str(base / f"{self._id}.deliveries"),
            told,
        )
        env = {**launch.environment, TOKEN_VARIABLE: launch.token}
        self._child = JsonChild(argv, env=env, cwd=launch.cwd, kind_s=0.3 if script.stubborn else 2.0)
        self._events: list[Event] = []
        self._ended = False

    @property
    def process(self) -> ProcessIdentity:
        """The process that was started."""
        return self._child.process

    def prove(self) -> Proof:
        """Opens the conversation and returns the answer."""
        try:
            self._child.write({"type": "open", "session": self._id, "resume": self._resume})
            told = self._wait_for(_HANDSHAKE_S, "opened")
        except InDoubt as error:
            raise HandshakeFailed("the agent ended before it answered", hint="Start it by hand to see why.") from error
        return Proof(Handle(FAKE, str(told["session"])), told["origin"], told.get("token"))

    def send(self, payload: Payload) -> Accepted | Rejected:
        """Hands one message over and waits for the agent's word."""
        text = payload.text if payload.text is not None else payload.body.decode("utf-8", "replace")
        self._child.write({"type": "send", "client_id": payload.client_id, "text": text})
        told = self._wait_for(self._script.wait_s, "accepted", "rejected")
        if told["type"] == "rejected":
            return Rejected(str(told["reason"]))
        return Accepted(f"fake:{self._id}:{told['own_id']}", str(told["own_id"]))

    def interrupt(self) -> None:
        """Asks the agent to stop its turn."""
        try:
            self._child.write({"type": "interrupt"})
        except InDoubt:
            pass

    def receive(self, timeout_s: float) -> Event | None:
        """Returns the next event."""
        if self._events:
            return self._events.pop(0)
        if self._ended:
            return None
        try:
            line = self._child.lines.get(timeout=max(timeout_s, 0.001))
        except queue.Empty:
            return None
        return self._event(line)

    def has_exited(self) -> bool:
        """Tells whether its exit was collected."""
        return self._child.has_exited()

    def release(self) -> Seen:
        """Ends the agent."""
        return self._child.release()

    def _wait_for(self, timeout_s: float, *types: str) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._child.lines.get(timeout=max(deadline - time.monotonic(), 0.001))
            except queue.Empty:
                raise InDoubt("the agent does not answer", hint="See what the session holds.") from None
            if line is None:
                self._ended = True
                self._events.append(Exited("its output has ended"))
                raise InDoubt("the agent ended before it answered", hint="Reopen the session.")
            if line["type"] in types:
                return line
            event = self._event(line)
            if event is not None:
                self._events.append(event)

    def _event(self, line: dict[str, Any] | None) -> Event | None:
        if line is None:
            self._ended = True
            return Exited("its output has ended")
        if line["type"] == "item":
            return ItemSeen(_item(self._id, line))
        return TurnEnded() if line["type"] == "turn_ended" else None


def deliveries(home: Path, native_id: str) -> list[str]:
    """Returns the client ids of every message that ever reached the agent, in order."""
    try:
        text = (home / f"{native_id}.deliveries").read_text("utf-8")
    except FileNotFoundError:
        return []
    return [json.loads(line)["client_id"] for line in text.splitlines()]


def _read(home: Path, native_id: str) -> list[dict[str, Any]] | None:
    try:
        text = (home / f"{native_id}.jsonl").read_text("utf-8")
    except FileNotFoundError:
        return None
    return [entry for line in text.splitlines() if (entry := json.loads(line))["role"] != "session"]


def _key(native_id: str, entry: dict[str, Any]) -> str:
    return f"fake:{native_id}:{entry['own_id']}"


def _item(native_id: str, entry: dict[str, Any]) -> Item:
    text = str(entry["text"])
    return Item(_key(native_id, entry), text.encode(), entry["client_id"], text_fingerprint(text))
