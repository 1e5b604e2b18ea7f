"""Laws of the journal (attach spec, section 16): whatever stops when, a message reaches the agent at most once."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from clew.journal.crash import settle_crash
from clew.journal.opening import Corrupt, New, Readable, classify, plan_new, plan_repair
from clew.journal.reconcile import HistoryItem, Window, reconcile
from clew.journal.rows import Body, Dispatch, Item, Row, next_rows, store_row, text_fingerprint
from clew.journal.submissions import Standing, fold, known_items, timeline, unconfirmed
from journal_cases import NOW, said

STOPS = ("before", "row", "delivered", "never")
texts = st.sampled_from(["yes", "yes", "go on", "stop"])
pick = st.integers(0, 9)


class JournalMachine(RuleBasedStateMachine):
    """One session: a user, a process that is stopped at any point, an agent with its own history, a disk."""

    def __init__(self) -> None:
        super().__init__()
        self.disk: list[bytes] = []
        self.history: list[HistoryItem] = []
        self.deliveries: dict[str, int] = {}
        self.settled: dict[str, str] = {}
        self.torn = 0
        self.running = False
        self.open(consistent=True, visible=True, busy=False)

    # --- what a process does ---

    def rows(self) -> tuple[Row, ...]:
        opening = classify(self.disk)
        assert isinstance(opening, Readable), opening
        return opening.rows

    def write(self, *bodies: Body) -> None:
        self.disk += [store_row(row) for row in next_rows(self.rows()[-1].cursor, bodies, NOW, 1)]

    def of_state(self, *states: str) -> list[Standing]:
        return [s for s in fold(self.rows()) if s.state in states]

    @rule(text=texts, stop=st.booleans())
    def submit(self, text: str, stop: bool) -> None:
        if self.running:
            self.write(said(f"c{len(fold(self.rows()))}-{self.torn}", text))
            self.running = not stop

    @rule(n=pick, stop=st.sampled_from(STOPS), echo=st.booleans(), answered=st.booleans())
    def hand_over(self, n: int, stop: str, echo: bool, answered: bool) -> None:
        """Only what is queued is ever handed over: the row first, then the agent."""
        queued = self.of_state("queued") if self.running else []
        if not queued or stop == "before":
            self.running = self.running and stop != "before"
            return
        standing = queued[n % len(queued)]
        self.write(Dispatch(standing.client_id, "pending"))
        if stop == "row":
            self.running = False
            return
        self.deliver(standing, echo=echo)
        if stop == "delivered":
            self.running = False
        elif answered:
            self.write(Dispatch(standing.client_id, "accepted", item_key=self.history[-1].own_id))

    def deliver(self, standing: Standing, *, echo: bool) -> None:
        self.deliveries[standing.client_id] = self.deliveries.get(standing.client_id, 0) + 1
        number = len(self.history)
        client_id = standing.client_id if echo else None
        self.history.append(HistoryItem(f"i{number}", client_id, standing.submission.fingerprint))

    @rule(n=pick)
    def agent_refuses(self, n: int) -> None:
        queued = self.of_state("queued") if self.running else []
        if queued:
            client_id = queued[n % len(queued)].client_id
            self.write(Dispatch(client_id, "pending"), Dispatch(client_id, "rejected", "agent said no"))

    @rule(n=pick)
    def the_agent_is_asked_elsewhere(self, n: int) -> None:
        self.history.append(HistoryItem(f"i{len(self.history)}", None, text_fingerprint(f"elsewhere {n}")))

    @rule()
    def stop(self) -> None:
        self.running = False

    @rule(consistent=st.booleans(), visible=st.booleans(), busy=st.booleans(), twice=st.booleans())
    def open_again(self, consistent: bool, visible: bool, busy: bool, twice: bool) -> None:
        if not self.running:
            self.open(consistent, visible, busy)
        if twice and self.running:
            before = list(self.disk)
            self.open(consistent, visible, busy)
            again = list(self.disk)
            self.open(consistent, visible, busy)
            assert self.disk == again
            assert again[: len(before)] == before

    def open(self, consistent: bool, visible: bool, busy: bool) -> None:
        opening = classify(self.disk)
        if isinstance(opening, New):
            self.disk = [store_row(row) for row in plan_new(NOW, 1).rows]
        known = None
        if isinstance(opening, Corrupt):
            items = [Item(i.own_id, b"", i.client_id, i.fingerprint) for i in self.history if visible]
            repair = plan_repair(opening, items, NOW, 1)
            kept = [row for row in opening.rows if repair.keep is not None and row.cursor <= repair.keep]
            self.disk = [store_row(row) for row in (*kept, *repair.append)]
            known = repair.known
            if not isinstance(classify(self.disk), Readable):
                # The prefix stays live behind its marker; the next row makes the journal usable again.
                self.disk += [store_row(row) for row in next_rows(repair.rows[-1].cursor, [Item("x", b"")], NOW, 1)]
        self.write(*settle_crash(fold(self.rows())))
        assert settle_crash(fold(self.rows())) == ()
        rows = self.rows()
        window = Window(tuple(self.history), consistent, busy) if visible else None
        told = reconcile(fold(rows), known_items(rows) if known is None else known, window)
        assert all(one.state in ("accepted", "unknown") for one in told)
        self.write(*told)
        rows = self.rows()
        assert reconcile(fold(rows), known_items(rows) if known is None else known, window) == ()
        self.running = True

    @rule(n=st.integers(1, 40))
    def the_last_row_is_torn(self, n: int) -> None:
        """Worse than a stop: the disk loses the end of a row that was written."""
        if not self.running and isinstance(classify(self.disk), Readable) and len(self.disk) > 1:
            self.disk[-1] = self.disk[-1][:-n]
            self.torn += 1

    # --- what holds ---

    @invariant()
    def nothing_is_delivered_twice(self) -> None:
        assert all(count == 1 for count in self.deliveries.values())

    @invariant()
    def what_is_settled_stays_and_is_true(self) -> None:
        opening = classify(self.disk)
        if not isinstance(opening, Readable):
            return
        standings = fold(opening.rows)
        for standing in standings:
            if standing.is_settled:
                assert self.settled.setdefault(standing.client_id, standing.state) == standing.state
            if standing.state == "accepted":
                assert self.deliveries.get(standing.client_id) == 1
            if standing.state == "rejected":
                assert standing.client_id not in self.deliveries
        assert set(unconfirmed(standings)) == {s.client_id for s in standings if s.state in ("pending", "unknown")}
        shown = [b.standing.client_id for b in timeline(opening.rows) if b.standing is not None]
        assert sorted(shown) == sorted(s.client_id for s in standings)


TestJournal = JournalMachine.TestCase
