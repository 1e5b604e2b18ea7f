"""Threads: growing them, own ids with their fork rule, and what their history answers."""

from __future__ import annotations

import msgspec
import pytest

from clew.conversation.loss import Loss
from clew.errors import LeaseError
from clew.ids import ChainKey, ThreadId
from clew.lineage.chain import Chain
from clew.lineage.edge import Edge, EdgeKind, load_edge, store_edge
from clew.lineage.handle import Handle, Namespace
from clew.lineage.history import compare_keys, find_diverged, find_present, find_start, newest_strand
from clew.lineage.link import Fence, Link, Replacement
from clew.lineage.stored import Malformed
from clew.lineage.strand import Strand, load_strand, make_strand_id, store_strand
from clew.lineage.thread import Thread, add_edge, add_strand, assemble, latest_strand, own_ids, put_strand

CLAUDE = Namespace("claude-jsonl", "claude", cursor_in_key=True)
CODEX = Namespace("codex-rollout", "codex")
T = ThreadId("t0123456789abcdef")


def link(namespace: Namespace, native_id: str, at: int = 0, cursor: str | None = None) -> Link:
    return Link(
        link_id=f"l-{native_id}-{at}",
        handle=Handle(namespace, native_id, cursor),
        origin="created",
        minted_at_fence=Fence(0),
        observed_at=at,
    )


def strand(strand_id: str, namespace: Namespace, *native_ids: str, at: int = 0) -> Strand:
    """One strand whose chain begins with the first id; each further id is forked from the one before."""
    links = [link(namespace, native_ids[0], at)]
    for number, native_id in enumerate(native_ids[1:], 1):
        links.append(
            Link(
                link_id=f"f{number}",
                handle=Handle(namespace, native_id),
                origin="forked",
                minted_at_fence=Fence(0),
                observed_at=at,
                forked_from=links[-1].handle.key,
            )
        )
    return Strand(make_strand_id(strand_id), namespace, Chain(tuple(links)))


def edge(kind: EdgeKind, source: Strand, target: Strand, at: int = 0, groups: int | None = 2) -> Edge:
    translated = kind == "translated"
    return Edge(
        kind=kind,
        from_strand=source.strand_id,
        from_key=source.chain.links[-1].handle.key,
        to_strand=target.strand_id,
        to_key=target.chain.links[-1].handle.key,
        at=at,
        groups=groups,
        formats=("claude", "codex") if translated else None,
        restored=0 if translated else None,
        rendered=4 if translated else None,
    )


HOME = strand("claude-home", CLAUDE, "A", at=10)
AWAY = strand("codex-away", CODEX, "X", at=20)
FORK = strand("claude-fork", CLAUDE, "B", at=30)
START = add_strand(Thread(T), HOME)
TRANSLATED = add_strand(START, AWAY, edge("translated", HOME, AWAY, at=20))
FORKED = add_strand(TRANSLATED, FORK, edge("forked", HOME, FORK, at=30, groups=3))


def keys(*names: str) -> tuple[ChainKey, ...]:
    return tuple(ChainKey(name) for name in names)


def test_own_ids_are_those_of_the_whole_thread_per_agent() -> None:
    assert own_ids(TRANSLATED, "claude") == {"A"}
    assert own_ids(TRANSLATED, "codex") == {"X"}
    assert own_ids(TRANSLATED, "grok") == frozenset()
    assert own_ids(Thread(T), "claude") == frozenset()


def test_own_ids_cross_a_fork_only_before_the_fork_point() -> None:
    of_fork = FORK.strand_id
    assert own_ids(FORKED, "claude", of=of_fork) == {"B"}
    assert own_ids(FORKED, "claude", 4, of=of_fork) == {"B"}
    assert own_ids(FORKED, "claude", 3, of=of_fork) == {"A", "B"}
    assert own_ids(FORKED, "codex", 3, of=of_fork) == {"X"}
    assert own_ids(FORKED, "codex", 4, of=of_fork) == frozenset()
    assert own_ids(FORKED, "claude", 4, of=HOME.strand_id) == {"A"}
    assert own_ids(FORKED, "claude", 3, of=HOME.strand_id) == {"A", "B"}
    assert own_ids(FORKED, "codex", of=HOME.strand_id) == {"X"}


def test_own_ids_ask_by_default_for_where_the_thread_is_now() -> None:
    assert latest_strand(FORKED) == FORK
    assert own_ids(FORKED, "claude") == {"B"}


def test_own_ids_do_not_cross_a_fork_whose_point_nobody_knows() -> None:
    unknown = add_strand(START, FORK, edge("forked", HOME, FORK, groups=None))
    assert own_ids(unknown, "claude", 0, of=FORK.strand_id) == {"B"}


def test_own_ids_within_a_chain_stop_at_a_fork_link() -> None:
    forked = strand("claude-both", CLAUDE, "A", "B")
    thread = add_strand(Thread(T), forked)
    assert own_ids(thread, "claude", 1) == {"B"}
    old, new = (one.handle.key for one in forked.chain.links)
    point = Edge(
        kind="forked",
        from_strand=forked.strand_id,
        from_key=old,
        to_strand=forked.strand_id,
        to_key=new,
        at=1,
        groups=5,
    )
    known = add_edge(thread, point)
    assert own_ids(known, "claude", 5) == {"A", "B"}
    assert own_ids(known, "claude", 6) == {"B"}


def test_own_ids_keep_the_ids_of_a_replaced_conversation_and_of_a_rolled_over_chain() -> None:
    following = strand("claude-next", CLAUDE, "A", at=40)
    thread = add_strand(TRANSLATED, following, edge("rolled_over", HOME, following, groups=None))
    fresh = strand("codex-fresh", CODEX, "Y", at=50)
    thread = add_strand(thread, fresh, edge("replaced", AWAY, fresh, groups=None))
    assert own_ids(thread, "codex", of=following.strand_id) == {"X", "Y"}
    lost = Replacement(AWAY.chain.links[0].handle.key, "restore-failed", 1)
    replaced = link(CODEX, "Z", 60)
    grown = Strand(
        AWAY.strand_id,
        CODEX,
        Chain((*AWAY.chain.links, Link(**{**_fields(replaced), "replaces": lost}))),
    )
    assert own_ids(put_strand(thread, grown), "codex") == {"X", "Y", "Z"}


def _fields(one: Link) -> dict[str, object]:
    return {name: getattr(one, name) for name in one.__struct_fields__}


def test_an_edge_to_an_unsaved_creation_stands_for_the_one_in_its_place() -> None:
    first = AWAY.chain.links[0]
    second = Link(**{**_fields(link(CODEX, "X2", 25)), "supersedes": first.handle.key})
    thread = put_strand(TRANSLATED, Strand(AWAY.strand_id, CODEX, Chain((second,))))
    assert own_ids(thread, "codex", of=HOME.strand_id) == {"X2"}


def test_where_it_started_and_where_it_is() -> None:
    start, now = find_start(FORKED), find_present(FORKED)
    assert start is not None
    assert now is not None
    assert (start.strand, start.link) == (HOME, HOME.chain.links[0])
    assert now.strand == FORK
    back = add_edge(FORKED, edge("translated", AWAY, HOME, at=99))
    present = find_present(back)
    assert present is not None
    assert present.strand == HOME
    start = find_start(back)
    assert start is not None
    assert start.strand == HOME
    assert find_start(Thread(T)) is None


def test_the_newest_strand_is_told_by_its_own_last_message() -> None:
    assert newest_strand(FORKED, {HOME.strand_id: 1000, AWAY.strand_id: 999, FORK.strand_id: 5}) == HOME
    assert newest_strand(FORKED, {}) == FORK


def test_divergence_is_told_by_keys() -> None:
    assert compare_keys(keys("a", "b"), keys("a", "b")).relation == "equal"
    assert compare_keys(keys("a"), keys("a", "b")).relation == "first_behind"
    assert compare_keys(keys("a", "b"), keys("a")).relation == "second_behind"
    diverged = compare_keys(keys("a", "b", "c"), keys("a", "x"))
    assert (diverged.relation, diverged.common, diverged.last_common) == ("diverged", 1, "a")
    assert compare_keys((), ()).relation == "equal"
    found = find_diverged(
        FORKED,
        {HOME.strand_id: keys("a", "b"), AWAY.strand_id: keys("a"), FORK.strand_id: keys("a", "c")},
    )
    assert [(pair.first, pair.second) for pair in found] == [(HOME.strand_id, FORK.strand_id)]


def test_an_edge_of_an_earlier_clock_is_raised() -> None:
    late = add_edge(TRANSLATED, edge("translated", AWAY, HOME, at=1))
    assert [one.at for one in late.edges] == [20, 20]


def test_edges_that_do_not_fit_are_refused() -> None:
    stranger = strand("stranger", CLAUDE, "Q")
    second_origin = add_strand(FORKED, strand("claude-more", CLAUDE, "C", at=50))
    more = second_origin.strands[-1]
    second_origin = add_edge(second_origin, edge("forked", FORK, more))
    for thread, wrong in (
        (TRANSLATED, edge("translated", stranger, HOME)),
        (TRANSLATED, edge("translated", HOME, stranger)),
        (TRANSLATED, edge("rolled_over", HOME, HOME)),
        (second_origin, edge("forked", HOME, more)),
        (second_origin, edge("replaced", more, HOME)),
    ):
        with pytest.raises(LeaseError):
            add_edge(thread, wrong)
    with pytest.raises(LeaseError):
        add_strand(TRANSLATED, HOME)
    with pytest.raises(LeaseError):
        add_strand(START, AWAY, edge("translated", HOME, HOME))
    with pytest.raises(LeaseError):
        put_strand(START, AWAY)


def test_stored_strands_and_edges_come_back_with_what_nobody_knows() -> None:
    data = store_strand(AWAY)[:-1] + b',"lease":{"fence": 3}}'
    assert store_strand(load_strand(data)) == data
    stored = store_edge(TRANSLATED.edges[0])[:-1] + b',"why":[1]}'
    assert store_edge(load_edge(stored)) == stored
    with pytest.raises(Malformed):
        load_edge(stored.replace(b'"translated"', b'"dreamt"'))


def test_an_edge_keeps_what_the_target_could_not_say() -> None:
    lost = (Loss("reasoning blocks", 3, "thinking of another model"), Loss("images", 1, kept=""))
    told = msgspec.structs.replace(TRANSLATED.edges[0], losses=lost)
    assert load_edge(store_edge(told)) == told
    # Edges of the first clew have no such member.
    first = store_edge(TRANSLATED.edges[0]).replace(b',"losses":[]', b"")
    assert b"losses" not in first
    assert load_edge(first) == TRANSLATED.edges[0]
    for fault in (Loss("", 1), Loss("images", -1)):
        with pytest.raises(Malformed):
            load_edge(store_edge(msgspec.structs.replace(told, losses=(fault,))))


def test_what_cannot_be_read_is_carried_and_the_rest_is_unaffected() -> None:
    newer = store_strand(AWAY).replace(b'"schema":1', b'"schema":2')
    odd_edge = b'{"kind":"dreamt"}'
    thread = assemble(
        T,
        [(one.strand_id, store_strand(one)) for one in (HOME, FORK)]
        + [("codex-away", newer), ("other-id", store_strand(HOME))],
        [store_edge(one) for one in FORKED.edges] + [odd_edge],
    )
    assert thread.strands == (HOME, FORK)
    assert [(lost.strand_id, lost.data) for lost in thread.unread] == [
        ("codex-away", newer),
        ("other-id", store_strand(HOME)),
    ]
    assert thread.edges == FORKED.edges
    assert thread.unread_edges == (odd_edge,)
    assert own_ids(thread, "claude", 3, of=FORK.strand_id) == {"A", "B"}
