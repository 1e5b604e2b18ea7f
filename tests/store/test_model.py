"""Any sequence of acts on the residue store on disk gives what the plain store in memory gives."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from clew.ids import CaptureId
from clew.store import eviction, lists, packing
from clew.store.memory import MemoryResidue
from clew.store.opening import open_stores
from clew.store.protocol import Limits, ResidueStore
from store_making import CLAUDE, CODEX, make_key, make_new, make_segments, make_side

SESSIONS = ("a", "b", None)
groups = st.lists(st.binary(min_size=1, max_size=90), min_size=1, max_size=3)
sizes = st.one_of(st.none(), st.integers(0, 3000))


class Residue(RuleBasedStateMachine):
    """Two stores side by side: one on disk with tiny packs and short lists, one in memory."""

    @initialize()
    def begin(self) -> None:
        self.kept = (packing.PACK_SIZE, eviction.PACK_SIZE, lists.MAX_DEPTH, packing._PLACES_AT_ONCE)
        packing.PACK_SIZE = eviction.PACK_SIZE = 300
        lists.MAX_DEPTH, packing._PLACES_AT_ONCE = 3, 4
        self.folder = tempfile.TemporaryDirectory()
        self.stores = open_stores(Path(self.folder.name))
        self.memory = MemoryResidue()
        self.sessions: dict[str | None, list[list[bytes]]] = {}

    def teardown(self) -> None:
        if hasattr(self, "stores"):
            self.stores.close()
            self.folder.cleanup()
            packing.PACK_SIZE, eviction.PACK_SIZE, lists.MAX_DEPTH, packing._PLACES_AT_ONCE = self.kept

    @property
    def both(self) -> tuple[ResidueStore, ResidueStore]:
        return self.stores.residue, self.memory

    def _put(self, session: str | None, with_base: bool, side: bytes | None, refer: bool, codex: bool) -> None:
        whole = self.sessions[session]
        agent = CODEX if codex else CLAUDE
        rows = self.memory.captures()
        refers = [rows[0].id] if refer and rows else []
        new = make_new(whole, agent=agent, session=session, refers=refers)
        base, shared = None, 0
        if with_base and rows:
            base = rows[-1].id
            keys = self.memory.keys(base)
            segments = make_segments(whole)
            ends = [one.end_of_source for one in self.memory.segments(base)]
            while (
                shared < min(len(keys), len(segments))
                and keys[shared] == segments[shared].key
                and self.memory.digests(base)[shared] == segments[shared].digest
                and ends[shared] == segments[shared].end_of_source
            ):
                shared += 1
        files = make_side(**({"f": side} if side is not None else {}))
        ids = [
            store.put_capture(new, iter(make_segments(whole, start=shared)), files, base=base, shared=shared)
            for store in self.both
        ]
        assert ids[0] == ids[1]

    @rule(
        session=st.sampled_from(SESSIONS),
        added=st.lists(groups, max_size=4),
        keep=st.integers(0, 8),
        with_base=st.booleans(),
        side=st.one_of(st.none(), st.binary(max_size=400)),
        refer=st.booleans(),
        codex=st.booleans(),
    )
    def grow(
        self,
        session: str | None,
        added: list[list[bytes]],
        keep: int,
        with_base: bool,
        side: bytes | None,
        refer: bool,
        codex: bool,
    ) -> None:
        """The session goes back to its first `keep` groups, goes on, and is captured."""
        self.sessions[session] = [*self.sessions.get(session, [])[:keep], *added]
        self._put(session, with_base, side, refer, codex)

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), with_base=st.booleans())
    def fork(self, data: st.DataObject, with_base: bool) -> None:
        """One session takes over what another one said."""
        source = data.draw(st.sampled_from(sorted(self.sessions, key=str)))
        target = data.draw(st.sampled_from(SESSIONS))
        self.sessions[target] = list(self.sessions[source])
        self._put(target, with_base, None, False, False)

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        ids = data.draw(
            st.lists(st.integers(1, max([row.id for row in self.memory.captures()], default=1)), max_size=3)
        )
        freed = [store.forget(map(CaptureId, ids)) for store in self.both]
        assert freed[0] == freed[1]

    @rule(per_session=sizes, total=sizes)
    def evict(self, per_session: int | None, total: int | None) -> None:
        freed = [store.evict(Limits(per_session, total)) for store in self.both]
        assert freed[0] == freed[1]

    @rule()
    def collect(self) -> None:
        freed = [store.gc() for store in self.both]
        assert freed[0] == freed[1]

    @rule()
    def reopen(self) -> None:
        self.stores.close()

    @invariant()
    def both_tell_the_same(self) -> None:
        if not hasattr(self, "stores"):
            return
        disk, memory = self.both
        rows = memory.captures()
        assert disk.captures() == rows
        assert disk.newest() == memory.newest()
        for row in rows:
            assert disk.keys(row.id) == memory.keys(row.id)
            assert disk.side_files(row.id) == memory.side_files(row.id)
            assert list(disk.segments(row.id)) == list(memory.segments(row.id))
            for entry in memory.side_files(row.id):
                assert disk.side_data(entry.digest) == memory.side_data(entry.digest)
        for whole in self.sessions.values():
            for count in range(1, len(whole) + 1):
                key = make_key(*whole[:count])
                assert disk.lookup(CLAUDE, key) == memory.lookup(CLAUDE, key)
                assert disk.heads(CLAUDE, key) == memory.heads(CLAUDE, key)
        assert list(disk.fsck()) == list(memory.fsck())
        plain = {"stored_size": 0, "file_size": 0}
        assert msgspec.structs.replace(disk.stats(), **plain) == msgspec.structs.replace(memory.stats(), **plain)


TestResidue = Residue.TestCase
TestResidue.settings = settings(
    max_examples=25, stateful_step_count=14, deadline=None, suppress_health_check=list(HealthCheck)
)
