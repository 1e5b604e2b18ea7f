"""Chains: the checks of an append in their order, supersession, replacement, the cap, and loading."""

from __future__ import annotations

import json

import msgspec
import pytest

from clew.errors import LeaseError
from clew.lineage.chain import (
    EMPTY,
    LINK_LIMIT,
    Chain,
    UnreadableChain,
    append,
    load_chain,
    read_chain,
    roll_over,
    store_chain,
)
from clew.lineage.handle import Handle, Namespace
from clew.lineage.link import Fence, Link, Origin, Replacement, make_link_id

TREE = Namespace("claude-jsonl", "claude", cursor_in_key=True)
FLAT = Namespace("codex-rollout", "codex")


def link(
    link_id: str,
    native_id: str = "S",
    cursor: str | None = None,
    *,
    origin: Origin = "resumed",
    fence: int = 1,
    namespace: Namespace = TREE,
    forked_from: str | None = None,
    supersedes: str | None = None,
    replaces: Replacement | None = None,
) -> Link:
    return Link(
        link_id=link_id,
        handle=Handle(namespace, native_id, cursor),
        origin=origin,
        minted_at_fence=Fence(fence),
        observed_at=1000,
        forked_from=forked_from,
        supersedes=supersedes,
        replaces=replaces,
    )


def chain_of(*links: Link) -> Chain:
    chain = EMPTY
    for one in links:
        chain = append(chain, one)
    return chain


def refusal(chain: Chain, new: Link) -> str:
    with pytest.raises(LeaseError) as refused:
        append(chain, new)
    assert refused.value.hint
    return refused.value.code


CREATED = link("l1", "S", "1", origin="created")


@pytest.mark.parametrize("origin", ["created", "adopted"])
def test_s37_an_empty_chain_takes_created_and_adopted(origin: Origin) -> None:
    first = link("l1", origin=origin)
    assert append(EMPTY, first).links == (first,)


def test_s37_an_empty_chain_refuses_resumed_and_forked() -> None:
    assert refusal(EMPTY, link("l1")) == "handle_invalid"
    fork = link("l1", "S2", origin="forked", forked_from=Handle(TREE, "S").key)
    assert refusal(EMPTY, fork) == "handle_invalid"


def test_s38_resuming_another_conversation_is_a_fork() -> None:
    assert refusal(chain_of(CREATED), link("l2", "S2")) == "handle_forked"


def test_s39_a_fork_names_the_heads_key_and_has_a_new_root() -> None:
    chain = chain_of(CREATED)
    good = link("l2", "S2", origin="forked", forked_from=CREATED.handle.key)
    assert append(chain, good).links == (CREATED, good)
    other_key = link("l2", "S2", origin="forked", forked_from=Handle(TREE, "S", "2").key)
    assert refusal(chain, other_key) == "handle_invalid"
    same_root = link("l2", "S", "9", origin="forked", forked_from=CREATED.handle.key)
    assert refusal(chain, same_root) == "handle_invalid"


def test_s40_an_older_fence_is_stale() -> None:
    chain = chain_of(link("l1", origin="created", fence=5))
    assert refusal(chain, link("l2", fence=4)) == "handle_stale_fence"


def test_s41_a_chain_never_crosses_namespaces() -> None:
    assert refusal(chain_of(CREATED), link("l2", namespace=FLAT)) == "handle_provider_mismatch"


def test_s42_a_retry_is_elided_and_a_later_fence_is_not() -> None:
    chain = chain_of(CREATED)
    assert append(chain, link("other", "S", "1")) is chain
    again = link("other", "S", "1", fence=2)
    assert append(chain, again).links == (CREATED, again)


def test_s43_a_reused_link_id_is_refused() -> None:
    assert refusal(chain_of(CREATED), link("l1", "S", "2")) == "handle_invalid"


def test_s44_a_full_chain_refuses_and_stays_valid_but_takes_a_retry() -> None:
    chain = chain_of(CREATED, *(link(f"r{n}", "S", str(n)) for n in range(2, LINK_LIMIT + 1)))
    assert len(chain.links) == LINK_LIMIT
    assert refusal(chain, link("more", "S", "more")) == "handle_chain_overflow"
    assert load_chain(store_chain(chain), TREE) == chain
    assert append(chain, link("l1", "S", str(LINK_LIMIT))) is chain


def test_a_full_chain_rolls_over_into_one_that_adopts_its_head() -> None:
    chain = chain_of(CREATED, link("l2", "S", "2"))
    following = roll_over(chain, link("l3", "S", "2", origin="adopted"))
    assert [one.link_id for one in following.links] == ["l3"]
    for wrong in (
        link("l3", "S2", origin="adopted"),
        link("l3", "S", "2", origin="created"),
        link("l3", "S", "2", origin="adopted", fence=0),
    ):
        with pytest.raises(LeaseError):
            roll_over(chain, wrong)


def test_s45_appending_leaves_the_given_chain_alone() -> None:
    chain = chain_of(CREATED)
    before = store_chain(chain)
    append(chain, link("l2", "S", "2"))
    assert store_chain(chain) == before


def test_s46_a_resume_with_a_cursor_follows_an_adopted_head_without() -> None:
    adopted, resumed = link("l1", origin="adopted"), link("l2", "S", "9")
    assert chain_of(adopted, resumed).links == (adopted, resumed)


@pytest.mark.parametrize("origin", ["created", "adopted"])
def test_s47_nothing_gives_a_chain_another_origin(origin: Origin) -> None:
    chain = chain_of(link("l1", origin="adopted"))
    assert refusal(chain, link("l2", "S2", origin=origin)) == "handle_invalid"


def test_s48_an_unsaved_creation_is_superseded_in_place_again_and_again() -> None:
    chain = chain_of(CREATED)
    for number in range(2, 50):
        head = chain.links[-1]
        new = link(f"l{number}", f"S{number}", origin="created", fence=number, supersedes=head.handle.key)
        chain = append(chain, new)
        assert chain.links == (new,)
    assert load_chain(store_chain(chain), TREE) == chain


def test_s49_a_saved_head_is_not_superseded() -> None:
    resumed = chain_of(CREATED, link("l2", "S", "2"))
    adopted = chain_of(link("l1", "S", "2", origin="adopted"))
    for chain in (resumed, adopted):
        key = chain.links[-1].handle.key
        assert refusal(chain, link("l9", "S9", origin="created", supersedes=key)) == "handle_invalid"


def test_superseding_needs_the_heads_key_a_new_root_and_a_new_link_id() -> None:
    chain, key = chain_of(CREATED), CREATED.handle.key
    lost = Replacement(Handle(TREE, "X").key, "restore-failed", 5)
    other = Handle(TREE, "S", "2").key
    for wrong in (
        link("l2", "S2", origin="created", supersedes=other),
        link("l2", "S", "2", origin="created", supersedes=key),
        link("l1", "S2", origin="created", supersedes=key),
        link("l2", "S2", origin="created", supersedes=key, replaces=lost),
        link("l2", "S2", origin="created", supersedes=key, fence=0),
    ):
        assert refusal(chain, wrong) == "handle_invalid" or wrong.minted_at_fence == 0


def test_superseding_behind_a_loss_carries_the_loss_over() -> None:
    lost = Replacement(CREATED.handle.key, "restore-failed", 5)
    first = link("l2", "S2", origin="created", fence=2, replaces=lost)
    chain = chain_of(CREATED, first)
    second = link("l3", "S3", origin="created", fence=3, supersedes=first.handle.key)
    chain = append(chain, second)
    assert [one.link_id for one in chain.links] == ["l1", "l3"]
    assert chain.links[1].replaces == lost
    assert load_chain(store_chain(chain), TREE) == chain
    onto_the_lost = link("l4", "S", "7", origin="created", fence=3, supersedes=second.handle.key)
    assert refusal(chain, onto_the_lost) == "handle_invalid"


def test_s50_a_lost_conversation_is_replaced_and_stays_below() -> None:
    lost = Replacement(CREATED.handle.key, "restore-failed", 5)
    new = link("l2", "S2", origin="created", fence=2, replaces=lost)
    resumed = link("l3", "S2", "1", fence=2)
    assert chain_of(CREATED, new, resumed).links == (CREATED, new, resumed)
    for wrong in (
        link("l2", "S2", origin="created", fence=2),
        link("l2", "S", "2", origin="created", fence=2, replaces=lost),
        link("l2", "S2", origin="created", replaces=Replacement(Handle(TREE, "Z").key, "restore-failed", 5)),
    ):
        assert refusal(chain_of(CREATED), wrong) == "handle_invalid"


def test_s51_only_a_later_creation_replaces() -> None:
    lost = Replacement(CREATED.handle.key, "restore-failed", 5)
    chain = chain_of(CREATED)
    assert refusal(EMPTY, link("l2", "S2", origin="created", replaces=lost)) == "handle_invalid"
    assert refusal(chain, link("l2", "S", "2", replaces=lost)) == "handle_invalid"
    assert refusal(chain, link("l2", "S2", origin="adopted", replaces=lost)) == "handle_invalid"
    fork = link("l2", "S2", origin="forked", forked_from=CREATED.handle.key, replaces=lost)
    assert refusal(chain, fork) == "handle_invalid"


@pytest.mark.parametrize(("reason", "good"), [("moon-phase", True), ("x" * 64, True), ("", False), ("x" * 65, False)])
def test_s52_a_reason_is_an_open_word(reason: str, good: bool) -> None:
    new = link("l2", "S2", origin="created", replaces=Replacement(CREATED.handle.key, reason, 0))
    if good:
        chain = chain_of(CREATED, new)
        assert load_chain(store_chain(chain), TREE) == chain
    else:
        assert refusal(chain_of(CREATED), new) == "handle_invalid"


@pytest.mark.parametrize(
    "links",
    [
        (CREATED, link("l2", "S2", origin="created")),
        (CREATED, link("l1", "S", "2")),
        (CREATED, link("l2", "S2")),
        (CREATED, link("l2", "S", "1")),
        (link("l1", "S", "1", origin="created", fence=2), link("l2", "S", "2", fence=1)),
        (CREATED, link("l2", "S2", origin="created", supersedes=CREATED.handle.key)),
        (
            CREATED,
            link(
                "l2",
                "S2",
                origin="created",
                supersedes=CREATED.handle.key,
                replaces=Replacement(CREATED.handle.key, "restore-failed", 0),
            ),
        ),
        (link("l1"),),
    ],
)
def test_s53_a_stored_chain_that_no_appends_explain_is_invalid(links: tuple[Link, ...]) -> None:
    data = store_chain(Chain(links))
    read = read_chain(data, TREE)
    assert isinstance(read, UnreadableChain)
    assert read.data == data
    with pytest.raises(LeaseError) as refused:
        load_chain(data, TREE)
    assert refused.value.code == "handle_invalid"


def test_s54_an_unknown_field_of_a_link_survives_and_one_of_a_handle_does_not() -> None:
    stored = json.loads(store_chain(chain_of(CREATED)))
    stored[0]["mood"] = {"a": [1.50, None]}
    stored[0]["handle"]["mood"] = "x"
    again = json.loads(store_chain(load_chain(json.dumps(stored).encode(), TREE)))
    assert again[0]["mood"] == {"a": [1.5, None]}
    assert "mood" not in again[0]["handle"]


def test_unknown_fields_keep_their_text() -> None:
    data = store_chain(chain_of(CREATED))
    wide = data[:-2] + b',"n":1e400,"big":12345678901234567890123}]'
    assert store_chain(load_chain(wide, TREE)) == wide


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"nul", b"\xff", b"[" * 100000])
def test_bytes_that_are_no_chain(data: bytes) -> None:
    assert isinstance(read_chain(data, TREE), UnreadableChain)


def test_a_member_named_twice_names_two_identities() -> None:
    data = store_chain(chain_of(CREATED)).replace(b'"native_id":"S"', b'"native_id":"S","native_id":"T"')
    assert isinstance(read_chain(data, TREE), UnreadableChain)


def test_a_chain_of_another_namespace_is_not_the_records() -> None:
    assert isinstance(read_chain(store_chain(chain_of(CREATED)), FLAT), UnreadableChain)


@pytest.mark.parametrize(
    "wrong",
    [
        {"link_id": ""},
        {"link_id": "a b"},
        {"link_id": "a" * 129},
        {"minted_at_fence": -1},
        {"minted_at_fence": 2**53 + 1},
        {"minted_at_fence": True},
        {"observed_at": 2**53 + 1},
        {"origin": "cloned"},
        {"forked_from": Handle(TREE, "X").key},
        {"supersedes": Handle(TREE, "X").key},
        {"replaces": Replacement(Handle(TREE, "X").key, "restore-failed", 0)},
    ],
)
def test_a_malformed_link_is_refused_before_anything_else(wrong: dict[str, object]) -> None:
    bad = msgspec.structs.replace(link("l2", "other", namespace=FLAT), **wrong)
    assert refusal(chain_of(CREATED), bad) == "handle_invalid"


def test_a_key_of_another_namespace_is_malformed() -> None:
    bad = link("l2", "S2", origin="forked", forked_from=Handle(FLAT, "S").key)
    assert refusal(chain_of(CREATED), bad) == "handle_invalid"


def test_link_ids_tell_handles_apart() -> None:
    plain = make_link_id(Handle(TREE, "abc", "def"), Fence(3))
    assert plain == "claude-3-abc-def"
    assert make_link_id(Handle(TREE, "abc"), Fence(3)) == "claude-3-abc-empty"
    handles = [Handle(TREE, "abc", "empty"), Handle(TREE, "a/b"), Handle(TREE, "a:b"), Handle(TREE, "x" * 512)]
    handles += [Handle(TREE, "x" * 512, "1"), Handle(TREE, "abc"), Handle(TREE, "\u00e9")]
    made = [make_link_id(handle, Fence(2**53)) for handle in handles]
    assert len(set(made)) == len(made)
    assert all(len(one) <= 128 for one in made)
    assert make_link_id(handles[0], Fence(3), {make_link_id(handles[0], Fence(3))}).endswith("-2")
