"""A folder in which sessions of the scripted agent are attached by real processes, for tests of live sessions."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from clew.errors import LeaseError
from clew.host.fake import FAKE, FakeAdapter, Script
from clew.ids import ThreadId
from clew.journal.rows import Item
from clew.lease.lease import Holder
from clew.lease.record import AccountHome, Location
from clew.lease.reserve import Request, reservation_fingerprint
from clew.lineage.edge import StrandId
from clew.lineage.handle import Handle
from clew.lineage.link import Fence
from clew.platform.clock import Clock, SystemClock
from clew.store.opening import open_stores
from clew.verbs.attach import Adoption, Attached, Attachment, attach
from clew.verbs.leases import Leases
from clew.verbs.probing import Observer, make_holder
from clew.verbs.seat import Seat

SESSION = StrandId("session-live-0001")
THREAD = ThreadId("t0123456789abcdef")
CONVERSATION = "conversation-1"
HOST = "h0000000000000001"


class World:
    """One process' view of a folder: stores, leases, an adapter. Another World on it is another process' view."""

    def __init__(
        self,
        folder: Path,
        script: Script | None = None,
        *,
        host: str = HOST,
        holder: Holder | None = None,
        clock: Clock | None = None,
        url: str | None = None,
    ) -> None:
        self.folder = folder
        self.home = folder / "agent"
        self.stores = open_stores(folder / "data", url=url)
        observer = Observer(holder or make_holder(host), lambda record: False)
        self.leases = Leases(self.stores.records, observer, clock or SystemClock())
        self.adapter = FakeAdapter(script)
        self.seats: list[Seat] = []

    @property
    def lease(self):
        return self.leases.view(SESSION).lease

    def make_thread(self) -> None:
        if self.leases.store.thread(THREAD) is None:
            self.leases.store.put_thread(THREAD, b"{}", expected=None, now=self.leases.clock.now())

    def request(self, **fields: Any) -> Request:
        """A call to create the session where there is none, to open it at the fence seen where there is one."""
        record = self.leases.view(SESSION).record
        base = Request(
            caller="test",
            operation_id=self.leases.new_operation(),
            fingerprint="",
            session_id=SESSION,
            expected_fence=None if record is None else self.leases.judge(SESSION).lease.fence,
            location=Location(self.leases.here.host, str(self.folder), "folder"),
            namespace=FAKE,
            account_home=AccountHome("base", str(self.home)),
            launch_environment=(("PATH", os.environ.get("PATH", "")),),
        )
        asked = msgspec.structs.replace(base, **fields)
        if "fingerprint" in fields:
            return asked
        return msgspec.structs.replace(asked, fingerprint=reservation_fingerprint(asked))

    def attach(
        self,
        asked: Request | None = None,
        *,
        transcript: Callable[[], Adoption] | None = None,
        publish: Callable[[Seat], None] | None = None,
    ) -> Attached:
        self.make_thread()
        wanted = Attachment(
            asked=asked or self.request(),
            adapter=self.adapter,
            thread=THREAD,
            read_transcript=transcript,
            publish=publish,
        )
        done = attach(self.leases, wanted)
        if done.seat is not None:
            self.seats.append(done.seat)
        return done

    def seat(self) -> Seat:
        seat = self.attach().seat
        assert seat is not None
        return seat

    def adopting(self, native_id: str = CONVERSATION) -> Request:
        return self.request(adopt=Handle(FAKE, native_id))

    def close(self) -> None:
        for seat in self.seats:
            seat.child.release()
        self.stores.close()


def ready(*texts: str) -> Adoption:
    """A transcript that was decoded."""
    return Adoption("ready", tuple(Item(f"fake:{CONVERSATION}:{n}", text.encode()) for n, text in enumerate(texts)))


def at_fence(number: int) -> Fence:
    return Fence(number)


def other_process(world, pid=None):
    """A holder that is no living process of this host."""
    here = world.leases.here
    return msgspec.structs.replace(here, pid=pid or 2**22 + 1, start_ticks=1)


class refused:  # noqa: N801 - it reads like pytest.raises
    """Expects a refusal of this code and reason, with a message and an act that helps."""

    def __init__(self, code, reason):
        self.code, self.reason = code, reason

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        assert isinstance(error, LeaseError), error
        assert (error.code, error.concerns.get("reason", "")) == (self.code, self.reason), error.message
        assert error.message
        assert error.hint
        return True


def change_record(world, change):
    """Writes the session's record as an older or a broken clew may have left it."""
    view = world.leases.view(SESSION)
    with world.leases.transaction():
        world.leases.put(view, change(view.record))


def with_lease(record, **fields):
    return msgspec.structs.replace(record, lease=msgspec.structs.replace(record.lease, **fields))


def fill(world, *texts):
    seat = world.seat()
    ids = [seat.send(text).client_id for text in texts]
    seat.release()
    return ids


def rewrite(world, rows):
    head = world.leases.store.journal(SESSION)
    rows = [msgspec.structs.replace(row, fence=world.lease.fence) for row in rows]
    with world.leases.transaction():
        world.leases.store.rewrite_journal(SESSION, rows, strand=SESSION, fence=world.lease.fence, expected=head.place)
