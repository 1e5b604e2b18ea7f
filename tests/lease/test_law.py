"""Laws of the lease (attach spec, section 16) in every interleaving that Hypothesis thinks of."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from clew.lease.acquire import Acquisition, Grant, Retry, decide_acquisition
from clew.lease.probe import Probe
from clew.lease.record import Record, UnreadableRecord, read_record, store_record
from clew.lease.refusal import Refusal
from clew.lease.restart import Probed, adjudicate
from lease_cases import (
    ABROAD,
    ALIVE,
    DEAD,
    HERE,
    NOTHING,
    NOW,
    OPERATION,
    OTHER,
    OTHER_OPERATION,
    UNUSED,
    blank,
    committed,
    live,
    reservation,
    reserved,
    with_lease,
)
from lease_world import World, attempted

pick = st.integers(0, 9)
hosts = st.sampled_from(["h1", "h1", "h1", "h2"])


class LeaseMachine(RuleBasedStateMachine):
    """Steps of several processes in any order; `World` checks what must hold at each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    def clew(self, number: int) -> Any:
        alive = [clew for clew in self.world.clews if clew.alive]
        return alive[number % len(alive)] if alive else self.world.start("h1")

    @initialize()
    def begin(self) -> None:
        first = self.world.start("h1")
        self.world.attach(first, independent=False)

    @rule(host=hosts)
    def start(self, host: str) -> None:
        if sum(clew.alive for clew in self.world.clews) < 4:
            self.world.start(host)

    @rule(n=pick)
    def kill(self, n: int) -> None:
        self.clew(n).alive = False

    @rule(n=pick)
    def agent_dies(self, n: int) -> None:
        alive = [agent for agent in self.world.agents if agent.alive]
        if alive:
            alive[n % len(alive)].alive = False

    @rule(n=pick, jump=st.sampled_from([-(10**9), -60_000, 1, 40_000, 10**9]))
    def clock_jumps(self, n: int, jump: int) -> None:
        clew = self.clew(n)
        clew.clock = max(0, clew.clock + jump)

    @rule(n=pick, blind=st.booleans(), blind_holder=st.booleans())
    def probe(self, n: int, blind: bool, blind_holder: bool) -> None:
        self.world.probe(self.clew(n), blind=blind, blind_holder=blind_holder)

    @rule(n=pick, blind=st.booleans(), blind_holder=st.booleans())
    def look_badly_and_judge(self, n: int, blind: bool, blind_holder: bool) -> None:
        clew = self.clew(n)
        self.world.probe(clew, blind=blind, blind_holder=blind_holder)
        self.world.judge(clew)
        self.world.observe(clew)

    @rule(n=pick)
    def judge(self, n: int) -> None:
        self.world.judge(self.clew(n))

    @rule(n=pick, blind=st.booleans(), blind_holder=st.booleans(), steps=st.integers(0, 3))
    def acquire(self, n: int, blind: bool, blind_holder: bool, steps: int) -> None:
        self.look_badly_and_judge(n, blind, blind_holder)
        self.attach(n, independent=n == 9, again=False)
        if steps:
            self.go_on(n, steps, "1")

    @rule()
    def holder_dies(self) -> None:
        record = self.world.record()
        for clew in self.world.clews:
            if record is not None and clew.me == record.lease.holder:
                clew.alive = False

    @rule()
    def owner_dies(self) -> None:
        record = self.world.record()
        for agent in self.world.agents:
            if record is not None and agent.process == record.lease.owner:
                agent.alive = False

    @rule(n=pick)
    def look_and_judge(self, n: int) -> None:
        clew = self.clew(n)
        self.world.probe(clew)
        self.world.judge(clew)
        self.world.observe(clew)

    @rule(n=pick, independent=st.booleans(), again=st.booleans())
    def attach(self, n: int, independent: bool, again: bool) -> None:
        clew = self.clew(n)
        old = clew.asked[-1] if again and clew.asked else None
        self.world.attach(clew, independent=independent, retry=old)

    @rule(n=pick, other=pick)
    def retry_of_another_process(self, n: int, other: int) -> None:
        clew, asked = self.clew(n), self.world.clews[other % len(self.world.clews)].asked
        if asked:
            self.world.attach(clew, independent=False, retry=asked[-1])

    @rule(n=pick, steps=st.integers(1, 3), cursor=st.sampled_from(["1", "2"]))
    def go_on(self, n: int, steps: int, cursor: str) -> None:
        clew = self.clew(n)
        acts = (self.world.spawn_child, self.world.commit, lambda one: self.world.prove(one, cursor))
        for act in acts[:steps]:
            attempted(lambda act=act: act(clew))

    @rule(n=pick)
    def give_up(self, n: int) -> None:
        attempted(lambda: self.world.give_up(self.clew(n)))

    @rule(n=pick, blind=st.booleans())
    def renew(self, n: int, blind: bool) -> None:
        attempted(lambda: self.world.renew(self.clew(n), blind=blind))

    @rule(n=pick)
    def release(self, n: int) -> None:
        attempted(lambda: self.world.release(self.clew(n)))

    @rule(n=pick)
    def settle(self, n: int) -> None:
        attempted(lambda: self.world.settle(self.clew(n)))

    @rule(n=pick)
    def recover(self, n: int) -> None:
        self.world.recover(self.clew(n))

    @rule(n=pick, cursor=st.sampled_from(["1", "2"]))
    def convert(self, n: int, cursor: str) -> None:
        attempted(lambda: self.world.convert(self.clew(n), cursor))

    @rule(n=pick)
    def declare(self, n: int) -> None:
        if n != 0:
            return
        attempted(lambda: self.world.declare(self.clew(n)))

    @rule()
    def back_up(self) -> None:
        self.world.backup = self.world.data

    @rule(n=pick)
    def restore(self, n: int) -> None:
        if n < 3:
            self.world.restore()

    @invariant()
    def holds(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.finish()


TestLease = LeaseMachine.TestCase

# --- time and bytes ----------------------------------------------------------------------------------------------

records = st.sampled_from(
    [
        blank(),
        reserved(),
        reserved(made=reservation(independent=True)),
        committed(),
        live(),
        with_lease(live(), stage="recovering"),
        with_lease(reserved(), operation_id=None, stage=None),
        with_lease(live(), settlement_retry="settle-session-0001-1"),
    ]
)
probes = st.sampled_from([DEAD, ALIVE, NOTHING, UNUSED, Probe("exit_observed"), Probe("identity_matched")])
people = st.sampled_from([HERE, OTHER, ABROAD])
times = st.none() | st.integers(0, 2**53)


def at(record: Record, deadline: int | None, renewed: int | None) -> Record:
    return with_lease(record, deadline=deadline, renewed_at=renewed)


@given(records, probes, people, st.booleans(), st.sampled_from([OPERATION, OTHER_OPERATION]), times, times)
def test_law_time_decides_no_acquisition(
    record: Record, probe: Probe, here: Any, reconciled: bool, operation: str, deadline: int, renewed: int
) -> None:
    def decide(one: Record) -> Grant | Retry | Refusal:
        return decide_acquisition(
            Acquisition(
                lease=one.lease,
                reconciled=reconciled,
                expected_fence=one.lease.fence,
                operation_id=operation,
                probe=probe,
                record_host="h1",
                here=here,
            )
        )

    assert decide(at(record, deadline, renewed)) == decide(record)


@given(records, probes, probes, people, st.booleans(), times, times, st.integers(0, 2**53))
def test_law_time_decides_no_adjudication(
    record: Record, subject: Probe, holder: Probe, here: Any, holds: bool, deadline: int, renewed: int, now: int
) -> None:
    probed = Probed(record.lease.fence, subject, holder, holds)
    one = adjudicate(record, here, probed, NOW)
    other = adjudicate(at(record, deadline, renewed), here, probed, now)
    assert one.kind == other.kind
    left, right = one.record.lease, other.record.lease
    same = ("fence", "claim", "stage", "owner", "holder", "reserved_token", "operation_id", "settlement_retry")
    assert all(getattr(left, name) == getattr(right, name) for name in same)
    assert (left.evidence is None) == (right.evidence is None)
    if subject.proves not in ("death", "nothing_started") and left.evidence != record.lease.evidence:
        assert left.evidence is None or left.evidence.kind == "never_spawned"


@given(records, probes, probes, people, st.booleans())
def test_law_judging_again_changes_nothing_more(
    record: Record, subject: Probe, holder: Probe, here: Any, holds: bool
) -> None:
    probed = Probed(record.lease.fence, subject, holder, holds)
    once = adjudicate(record, here, probed, NOW).record
    again = msgspec.structs.replace(probed, fence=once.lease.fence)
    assert adjudicate(once, here, again, NOW).record == once


@given(st.binary(max_size=200) | st.sampled_from([store_record(live()), store_record(blank())]), st.data())
def test_law_whatever_is_stored_comes_back_byte_for_byte_or_equal(data: bytes, draws: st.DataObject) -> None:
    if data:
        place = draws.draw(st.integers(0, len(data) - 1))
        data = data[:place] + bytes([draws.draw(st.integers(0, 255))]) + data[place + 1 :]
    read = read_record(data)
    if isinstance(read, UnreadableRecord):
        assert store_record(read) == data
    else:
        assert read_record(store_record(read)) == read
