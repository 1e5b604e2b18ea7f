"""Sessions carried between formats without a disk: captured into a store in memory, and brought home from it.

The same parts as in `verbs/convert.py`, in the same order, so that laws about thousands of sessions stay quick.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from hypothesis import HealthCheck, settings

from clew.conversation.canonical import first_key, keys_of
from clew.conversation.model import Message
from clew.conversation.source import Session, SideFile, Stream
from clew.formats.protocol import Format, Home
from clew.ids import CaptureId
from clew.laws.stored import Stored, store_conversation, store_streams, write_options
from clew.platform.clock import FixedClock
from clew.residue.choose import Choice, NoChoice, choose_source
from clew.residue.restore import Restored, RestoreReport, restore_conversation
from clew.store.memory import MemoryResidue
from clew.verbs.capture import candidates_for, capture_session
from clew.verbs.reading import Opened
from clew.verbs.workshop import Workshop

LONG = bool(os.environ.get("CLEW_LAW"))
"""Whether the long form of the property tests was asked for."""

PATIENT = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
"""Complaints about slow drawing that say nothing about a format."""

_LIST = re.compile(rb'("(?:messages|steps)":\s*\[)')
NOWHERE = Path("/nowhere/that/exists")


def examples(count: int) -> settings:
    """Returns settings for a test that runs `count` examples a day, and 40 times as many in the long form."""
    return settings(
        max_examples=count * 40 if LONG else count,
        deadline=None,
        derandomize=not LONG,
        print_blob=LONG,
        suppress_health_check=PATIENT,
    )


class Desk:
    """A store in memory and what is done at it."""

    def __init__(self) -> None:
        self.store = MemoryResidue()
        self.clock = FixedClock()
        stores = SimpleNamespace(residue=self.store, has_residue=True)
        self.context = cast(Any, SimpleNamespace(stores=stores, clock=self.clock, home=Home(NOWHERE), data=NOWHERE))

    def capture(self, stored: Stored) -> CaptureId:
        """Captures a session."""
        session = stored.read()
        self.clock.advance(1)
        opened = Opened(stored.form, None, stored.source, session, tuple(keys_of(session.messages)))
        return capture_session(self.context, opened)

    def choose(self, form: Format, messages: Sequence[Message], own: Sequence[str] = ()) -> Choice | NoChoice:
        """Chooses whose bytes the conversation gets."""
        keys = tuple(keys_of(messages)) or (first_key(),)
        candidates = candidates_for(self.context, form.name, keys[0])
        return choose_source(keys, candidates, own_ids=frozenset(own), carries_id=form.traits.carries_id)

    def restore(self, form: Format, messages: Sequence[Message], choice: Choice) -> Restored | RestoreReport:
        """Restores from what was chosen."""
        capture = self.store.capture(CaptureId(choice.candidate.capture))
        options = write_options(capture.session_id or "", path=capture.streams[-1].path)
        workshop = Workshop(form, options, NOWHERE, side=self.side(capture.id))
        return restore_conversation(messages, tuple(keys_of(messages)), choice, capture.streams, workshop)

    def bring_home(
        self, form: Format, messages: Sequence[Message], own: Sequence[str] = ()
    ) -> Restored | RestoreReport | NoChoice:
        """Chooses and restores."""
        choice = self.choose(form, messages, own)
        return choice if isinstance(choice, NoChoice) else self.restore(form, messages, choice)

    def side(self, capture: CaptureId) -> tuple[SideFile, ...]:
        """Returns the side files of a capture."""
        return tuple(
            SideFile(e.path, e.mode, e.size, lambda d=e.digest: self.store.side_data(d) or b"")
            for e in self.store.side_files(capture)
        )

    def carry(self, form: Format, messages: Sequence[Message], session_id: str, own: Sequence[str] = ()) -> Stored:
        """Writes the conversation in a format, as a continuation of what was captured or plainly, and captures that."""
        home = self.bring_home(form, messages, own)
        if isinstance(home, Restored):
            stored = store_streams(form, home.streams, home.session.side)
        else:
            stored = store_conversation(form, messages, session_id)
        self.capture(stored)
        return stored

    def segments(self, capture: CaptureId) -> list[bytes]:
        """Returns the bytes of a capture's segments."""
        return [segment.data or b"" for segment in self.store.segments(capture)]

    def damage(self, capture: CaptureId, number: int, data: bytes | None) -> int:
        """Puts other bytes in place of a segment's; returns the first segment that has them."""
        digests = self.store.digests(capture)
        lengths, _ = self.store.segment_data[digests[number]]
        self.store.segment_data[digests[number]] = (lengths, data)
        return digests.index(digests[number])


def text_of(home: Restored) -> bytes:
    """Returns the restored bytes of a session."""
    return b"".join(bytes(stream.data) for stream in home.streams)


def complete(session: Session) -> bool:
    """Tells whether every message has its record."""
    return all(record is not None for record in session.created_by)


def end_of_body(stored: Stored) -> int:
    """Returns where new records go: the end, or in a document the place before its tail."""
    if stored.form.traits.record_kind != "range":
        return len(stored.data)
    session = stored.read()
    last = len(session.records) - 1
    return len(stored.data) if last in session.created_by else session.records.place(last)[1]


def with_junk(stored: Stored) -> Stored:
    """Returns the session with a record more that says nothing."""
    if stored.form.traits.record_kind == "file":
        streams = stored.source.streams
        junk = Stream(streams[0].path.replace("event-00000-", "event-00000-f"), b'{"kind":"FromTheFuture"}')
        return store_streams(stored.form, (streams[0], junk, *streams[1:]), stored.side)
    if stored.form.traits.record_kind == "range":
        data = _LIST.sub(rb"\g<1>5,", stored.data, count=1).replace(b"[5,]", b"[5]")
    else:
        first, newline, rest = stored.data.partition(b"\n")
        data = first + newline + b'{"type":"from-the-future"}\n' + rest
    return msgspec.structs.replace(stored, data=data)
