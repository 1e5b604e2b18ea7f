"""A small world for the laws of the lease: hosts, processes, agents, clocks, and one store with one session.

Everything that can go wrong goes wrong here: processes and agents die at any point, pids are used again, clocks jump,
probes see only half or are old when they are used, and a backup comes back. Each method is one step of one process:
it either commits one transaction or changes nothing in the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from clew.errors import LeaseError
from clew.lease.declare import declare_gone
from clew.lease.lease import Holder, OwnerProcess
from clew.lease.ledger import Admit, Row, fail, load_row, make_operation_id, store_row, succeed
from clew.lease.mutation import Mutation, State, admit_mutation
from clew.lease.probe import (
    Probe,
    Seen,
    SeenReservation,
    classify_holder,
    classify_owner,
    classify_reservation,
    evidence_of,
    may_be_stopped,
)
from clew.lease.record import AccountHome, Location, Record, read_record, record_fault, store_record
from clew.lease.refusal import Refusal, known_refusal
from clew.lease.reserve import Replayed, Request, Reserved, Snapshot, decide_reservation, reservation_fingerprint
from clew.lease.restart import Judgements, Probed, adjudicate
from clew.lease.transitions import (
    ChildSeen,
    Reservation,
    Standing,
    after_restore,
    append_free,
    clear_processless,
    commit_process,
    evict,
    finish_settlement,
    prove_owner,
    renew,
    settle_failed,
)
from clew.lineage.chain import append
from clew.lineage.edge import StrandId
from clew.lineage.handle import Handle, Namespace
from clew.lineage.link import Fence, Link, make_link_id

CLAUDE = Namespace("claude-jsonl", "claude", cursor_in_key=True)
SESSION = StrandId("session-0001")
ACCOUNT = AccountHome("CLAUDE_CONFIG_DIR", "/home/u/.claude")
START = 1_700_000_000_000


@dataclass
class Agent:
    """A child process. `committed`: it was once recorded as the owner; `exempt`: a person or a backup overruled."""

    process: OwnerProcess
    alive: bool = True
    committed: bool = False
    exempt: bool = False


@dataclass
class Attempt:
    """What a process is in the middle of."""

    request: Request
    token: str
    fence: Fence
    independent: bool
    child: Agent | None = None
    phase: str = "reserved"


@dataclass
class Clew:
    """One clew process with its own memory: what it judged, probed and holds."""

    me: Holder
    clock: int = START
    alive: bool = True
    judged: Judgements = field(default_factory=Judgements)
    seen_fence: Fence | None = None
    probed: Probed | None = None
    attempt: Attempt | None = None
    asked: list[Request] = field(default_factory=list)


class World:
    """The whole of it."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.revision = 0
        self.rows: dict[str, bytes] = {}
        self.clews: list[Clew] = []
        self.agents: list[Agent] = []
        self.granted: list[int] = []
        self.answers: dict[str, Row] = {}
        self.backup: bytes | None = None
        self.restores = 0
        self.ticks = 1000
        self.operations = 0

    # --- the store ---

    def record(self) -> Record | None:
        if self.data is None:
            return None
        read = read_record(self.data)
        assert isinstance(read, Record), read
        return read

    def _write(self, clew: Clew | None, record: Record, row: Row | None = None) -> None:
        """One transaction. A process that had judged the row has judged what it wrote itself."""
        before = self.record()
        assert not record_fault(record)
        assert before is None or record.lease.fence >= before.lease.fence, "fences never fall"
        knew = clew is not None and (before is None or clew.judged.holds(SESSION, self.revision))
        data = store_record(record)
        if row is not None:
            self.rows[row.key] = store_row(row)
        if data == self.data:
            return
        self.data, self.revision = data, self.revision + 1
        if clew is not None and knew:
            clew.judged = clew.judged.judged(SESSION, self.revision)

    def _row(self, request: Request) -> Row | None:
        data = self.rows.get(f"{request.caller}\0{request.operation_id}")
        return None if data is None else load_row(data)

    def knows(self, clew: Clew) -> bool:
        """Whether a process has judged the row as it is."""
        return clew.judged.holds(SESSION, self.revision)

    # --- processes ---

    def _free_pid(self, host: str) -> int:
        used = {c.me.pid for c in self.clews if c.alive and c.me.host == host}
        used |= {a.process.pid for a in self.agents if a.alive and a.process.host == host}
        return next(pid for pid in range(1, 100) if pid not in used)

    def start(self, host: str) -> Clew:
        self.ticks += 1000
        clew = Clew(Holder(host, self._free_pid(host), f"boot-{host}", self.ticks))
        self.clews.append(clew)
        return clew

    def spawn(self, clew: Clew, token: str) -> Agent:
        self.ticks += 1000
        host = clew.me.host
        agent = Agent(OwnerProcess(host, self._free_pid(host), token, f"boot-{host}", self.ticks))
        self.agents.append(agent)
        return agent

    def look(self, host: str, pid: int, here: str, *, blind: bool) -> Seen:
        """What a host sees of a pid now; `blind` hides all but the pid."""
        if host != here:
            return Seen(here, signal="absent")
        for clew in self.clews:
            if clew.alive and (clew.me.host, clew.me.pid) == (host, pid):
                return Seen(here, signal="present") if blind else _seen(clew.me, None)
        for agent in self.agents:
            if agent.alive and (agent.process.host, agent.process.pid) == (host, pid):
                return Seen(here, signal="present") if blind else _seen(agent.process, agent.process.spawn_token)
        return Seen(here, signal="failed" if blind else "absent")

    # --- steps of one process ---

    def probe(self, clew: Clew, *, blind: bool = False, blind_holder: bool = False) -> Probed | None:
        """Looks at the owner, or the reservation, and its holder; remembers what was seen, and at which fence."""
        record = self.record()
        if record is None:
            return None
        lease, here = record.lease, clew.me.host
        subject = Probe("indeterminate")
        if lease.owner is not None:
            subject = classify_owner(lease.owner, self.look(lease.owner.host, lease.owner.pid, here, blind=blind))
        elif lease.reserved_token is not None:
            carriers = tuple(
                a.process.pid for a in self.agents if a.alive and a.process.spawn_token == lease.reserved_token
            )
            seen = SeenReservation(here, None if blind else carriers, agent_active=None if blind else bool(carriers))
            subject = classify_reservation(record.location.host, seen)
        holder = Probe("indeterminate")
        if lease.holder is not None:
            holder = classify_holder(
                lease.holder, self.look(lease.holder.host, lease.holder.pid, here, blind=blind_holder)
            )
        attempt = clew.attempt
        holds = attempt is not None and attempt.fence == lease.fence and lease.holder == clew.me
        clew.probed = Probed(lease.fence, subject, holder, holds)
        return clew.probed

    def judge(self, clew: Clew) -> None:
        """Adjudicates with what was probed, unless the row is judged already."""
        record = self.record()
        if record is None or clew.probed is None or self.knows(clew):
            return
        judgement = adjudicate(record, clew.me, clew.probed, clew.clock)
        if judgement.record is not record:
            self._write(clew, judgement.record)
        if judgement.reconciled:
            clew.judged = clew.judged.judged(SESSION, self.revision)

    def observe(self, clew: Clew) -> None:
        record = self.record()
        clew.seen_fence = None if record is None else record.lease.fence

    def attach(self, clew: Clew, *, independent: bool, retry: Request | None = None) -> Refusal | None:
        """Reserves; a retry repeats an earlier request. Remembers what it won."""
        record = self.record()
        request = retry or self._request(clew, record, independent=independent)
        clew.asked.append(request)
        row = self._row(request)
        probed = clew.probed
        seen = Snapshot(
            record=record,
            row=row,
            here=clew.me,
            now=clew.clock,
            reconciled=record is None or self.knows(clew),
            probe=Probe("indeterminate") if probed is None else probed.subject,
            probed_fence=None if probed is None else probed.fence,
        )
        self.operations += 1
        answer = decide_reservation(request, seen, f"token-{self.operations}")
        if isinstance(answer, Refusal):
            return answer
        if isinstance(answer, Replayed):
            self._check_answer(answer.row)
            return None
        self._grant(clew, record, answer, request)
        return None

    def _request(self, clew: Clew, record: Record | None, *, independent: bool) -> Request:
        self.operations += 1
        host = clew.me.host if record is None else record.location.host
        base = Request(
            caller=f"caller-{clew.me.host}-{clew.me.pid}-{clew.me.start_ticks}",
            operation_id=make_operation_id(clew.clock, self.operations.to_bytes(16, "big")),
            fingerprint="",
            session_id=SESSION,
            expected_fence=None if record is None else clew.seen_fence,
            location=Location(host, "/work/place", "folder"),
            namespace=CLAUDE,
            account_home=ACCOUNT,
            independent=independent,
        )
        return msgspec.structs.replace(base, fingerprint=reservation_fingerprint(base))

    def _grant(self, clew: Clew, before: Record | None, answer: Reserved, request: Request) -> None:
        fence = answer.record.lease.fence
        if answer.disposition != "retry_reservation":
            assert not [a for a in self.agents if a.alive and a.committed and not a.exempt], (
                "a session is granted while an agent that owned it lives"
            )
            assert all(fence > old for old in self.granted), "a fence is granted twice"
            self.granted.append(fence)
            assert before is None or fence > before.lease.fence
        self._write(clew, answer.record, answer.row)
        if clew.attempt is None or clew.attempt.fence != fence:
            clew.attempt = Attempt(request, answer.token, fence, answer.record.lease.independent)
        clew.seen_fence = fence

    def _standing(self, clew: Clew, fence: Fence | None = None) -> Standing:
        assert clew.attempt is not None
        return Standing(clew.attempt.fence if fence is None else fence, self.knows(clew), clew.clock)

    def spawn_child(self, clew: Clew) -> None:
        record, attempt = self.record(), clew.attempt
        if record is None or attempt is None or attempt.phase != "reserved":
            return
        self._write(clew, clear_processless(record, self._standing(clew)))
        attempt.child = self.spawn(clew, attempt.token)
        attempt.phase = "spawned"

    def commit(self, clew: Clew) -> None:
        record, attempt = self.record(), clew.attempt
        if record is None or attempt is None or attempt.phase != "spawned" or attempt.child is None:
            return
        self._write(clew, commit_process(record, self._standing(clew), attempt.child.process))
        attempt.child.committed, attempt.phase = True, "committed"

    def prove(self, clew: Clew, cursor: str) -> None:
        record, attempt = self.record(), clew.attempt
        if record is None or attempt is None or attempt.phase != "committed":
            return
        head = record.chain.head
        handle = Handle(CLAUDE, "S" if head is None else head.handle.native_id, cursor)
        link = Link(
            link_id=make_link_id(handle, attempt.fence, record.chain.link_ids),
            handle=handle,
            origin="created" if head is None else "resumed",
            minted_at_fence=attempt.fence,
            observed_at=clew.clock,
        )
        proven = prove_owner(record, self._standing(clew), link, StrandId(f"archive-{attempt.fence:08d}"))
        row = self._row(attempt.request)
        self._write(clew, proven.record, None if row is None else succeed(row, SESSION))
        attempt.phase = "live"

    def give_up(self, clew: Clew) -> None:
        """Settles a failed acquisition by what was seen of the child: truly, or not at all."""
        record, attempt = self.record(), clew.attempt
        if record is None or attempt is None or attempt.phase in ("live", "settled"):
            return
        child: ChildSeen = "processless"
        if attempt.child is not None:
            child = "unproven" if attempt.child.alive else "exit_proven"
        made = Reservation(attempt.token, attempt.request.operation_id, clew.me, attempt.independent)
        settled = settle_failed(record, self._standing(clew), made, child)
        row = self._row(attempt.request)
        self._write(clew, settled, None if row is None else fail(row, "host_failed", "no"))
        assert settled.lease.stage != "new_owner_proving"
        clew.attempt = None

    def renew(self, clew: Clew, *, blind: bool) -> None:
        record = self.record()
        if record is None or clew.attempt is None or record.lease.owner is None:
            return
        owner = record.lease.owner
        probe = classify_owner(owner, self.look(owner.host, owner.pid, clew.me.host, blind=blind))
        self._write(clew, renew(record, self._standing(clew), probe))

    def release(self, clew: Clew) -> None:
        """Stops its own agent, sees it exit, and lets the session go."""
        record, attempt = self.record(), clew.attempt
        if record is None or attempt is None or attempt.child is None or attempt.phase != "live":
            return
        standing = self._standing(clew)
        if standing.fence != record.lease.fence or record.lease.settlement_retry is not None:
            return
        attempt.child.alive = False
        evidence = evidence_of(Probe("exit_observed"), clew.clock, record.lease.fence, None)
        self._write(clew, evict(record, standing, evidence))
        clew.attempt = None

    def settle(self, clew: Clew) -> None:
        record = self.record()
        if record is None or record.lease.settlement_retry is None:
            return
        standing = Standing(record.lease.fence, self.knows(clew), clew.clock)
        self._write(clew, finish_settlement(record, standing, record.lease.settlement_retry))

    def recover(self, clew: Clew) -> None:
        """Stops an agent that outlived its transport, but only on a full match."""
        record = self.record()
        if record is None or record.lease.stage != "recovering" or record.lease.owner is None:
            return
        owner = record.lease.owner
        if may_be_stopped(classify_owner(owner, self.look(owner.host, owner.pid, clew.me.host, blind=False))):
            self._agent(owner).alive = False

    def _agent(self, owner: OwnerProcess) -> Agent:
        return next(a for a in self.agents if a.process == owner)

    def send(self, clew: Clew) -> bool:
        """Writes to the agent; tells whether it was admitted."""
        record = self.record()
        if record is None or clew.seen_fence is None:
            return False
        self.operations += 1
        operation = make_operation_id(clew.clock, self.operations.to_bytes(16, "big"))
        asked = Mutation(caller="", operation_id=operation, declared="p", computed="p", expected_fence=clew.seen_fence)
        state = State(row=None, lease=record.lease, reconciled=self.knows(clew), here=clew.me, now=clew.clock)
        if not isinstance(admit_mutation(asked, state), Admit):
            return False
        owner = record.lease.owner
        assert owner is not None
        assert record.lease.holder == clew.me
        assert clew.attempt is not None
        assert clew.attempt.fence == record.lease.fence
        assert clew.attempt.child is self._agent(owner), "a write reached an agent that is not the owner"
        return True

    def convert(self, clew: Clew, cursor: str) -> None:
        """A conversion appends its link while nobody holds the session."""
        record = self.record()
        if record is None:
            return
        head = record.chain.head
        handle = Handle(CLAUDE, "S" if head is None else head.handle.native_id, cursor)
        link = Link(
            link_id=make_link_id(handle, record.lease.fence, record.chain.link_ids),
            handle=handle,
            origin="created" if head is None else "resumed",
            minted_at_fence=record.lease.fence,
            observed_at=clew.clock,
        )
        standing = Standing(record.lease.fence, self.knows(clew), clew.clock)
        changed = append_free(record, standing, link)
        assert record.lease.is_free
        assert changed.chain == append(record.chain, link)
        self._write(clew, changed)

    def declare(self, clew: Clew) -> None:
        """A person on another host declares the session's host gone; its agents are overruled."""
        record = self.record()
        if record is None:
            return
        standing = Standing(record.lease.fence, self.knows(clew), clew.clock)
        gone = record.location.host
        changed = declare_gone(record, standing, gone=gone, here=clew.me.host, by="ann")
        for agent in self.agents:
            agent.exempt = agent.exempt or agent.process.host == gone
        self._write(None, changed)

    def restore(self) -> None:
        """The store comes back from a backup; agents that only the lost part knew of are overruled."""
        if self.backup is None:
            return
        read = read_record(self.backup)
        assert isinstance(read, Record)
        self.restores += 1
        for agent in self.agents:
            agent.exempt = agent.exempt or agent.process != read.lease.owner
        self.data = store_record(after_restore(read, 10_000 * self.restores, START))
        self.revision += 1

    # --- what is checked ---

    def _check_answer(self, row: Row) -> None:
        """A settled outcome is answered the same way for ever."""
        if not row.is_settled:
            return
        known = self.answers.setdefault(row.key, row)
        assert (known.state, known.session_id, known.code) == (row.state, row.session_id, row.code)

    def check(self) -> None:
        record = self.record()
        assert sum(self.send(clew) for clew in self.clews if clew.alive) <= 1
        if record is not None and record.lease.claim == "live":
            head = record.chain.head
            assert head is not None
            assert head.minted_at_fence == record.lease.fence

    def finish(self) -> None:
        """Everything stops. Then the session can be had again, by proof alone, whatever happened before."""
        record = self.record()
        if record is None:
            return
        for clew in self.clews:
            clew.alive = False
        for agent in self.agents:
            agent.alive = False
        last = self.start(record.location.host)
        last.clock = START
        for _ in range(3):
            self.probe(last)
            self.judge(last)
        self.settle(last)
        self.observe(last)
        refused = self.attach(last, independent=False)
        assert refused is None, refused
        self.spawn_child(last)
        self.commit(last)
        self.prove(last, "end")
        assert self.send(last)


def _seen(process: Holder | OwnerProcess, token: str | None) -> Seen:
    return Seen(process.host, signal="present", token=token, boot=process.boot, start_ticks=process.start_ticks)


def attempted(act: object) -> Refusal | None:
    """Runs a step; a refusal by the table is an answer, anything else rises."""
    assert callable(act)
    try:
        act()
    except LeaseError as error:
        return known_refusal(error)
    return None
