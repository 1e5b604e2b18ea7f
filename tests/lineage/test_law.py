"""Laws of chains (handles spec, section 11), over random appends; the long form is the profile `law`."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import LeaseError
from clew.lineage.chain import EMPTY, LINK_LIMIT, Chain, UnreadableChain, append, load_chain, read_chain, store_chain
from clew.lineage.handle import Handle, Namespace, parse_key, root_of_key
from clew.lineage.link import ORIGINS, Fence, Link, Replacement
from clew.lineage.refusal import HANDLE_CODES

NAMESPACES = (
    Namespace("claude-jsonl", "claude", cursor_in_key=True),
    Namespace("codex-rollout", "codex"),
)
native_ids = st.sampled_from(["A", "B", 'C"', "D,é"])
cursors = st.none() | st.sampled_from(["1", "2", 'c"]'])


@st.composite
def next_links(draw: st.DrawFn, chain: Chain) -> Link:
    """A link that often fits behind `chain`: it names the head's key, keeps the fence near, reuses an id at times."""
    head = chain.head
    namespace = head.handle.namespace if head else draw(st.sampled_from(NAMESPACES))
    if draw(st.integers(0, 19)) == 0:
        namespace = draw(st.sampled_from(NAMESPACES))
    near = head.handle.key if head and draw(st.booleans()) else None
    handle = Handle(namespace, draw(native_ids), draw(cursors))
    if head and draw(st.booleans()):
        handle = msgspec.structs.replace(head.handle, cursor=draw(cursors))
    origin = draw(st.sampled_from(ORIGINS))
    any_key = near or Handle(namespace, draw(native_ids), draw(cursors)).key
    return Link(
        link_id=f"l{draw(st.integers(0, 30))}",
        handle=handle,
        origin=origin,
        minted_at_fence=Fence(max(0, (head.minted_at_fence if head else 0) + draw(st.integers(-1, 2)))),
        observed_at=draw(st.integers(0, 99)),
        forked_from=any_key if origin == "forked" else None,
        supersedes=any_key if origin == "created" and draw(st.booleans()) else None,
        replaces=Replacement(any_key, "restore-failed", 1) if origin == "created" and draw(st.booleans()) else None,
        extra=draw(st.sampled_from([(), (("mood", '"calm"'),)])),
    )


@st.composite
def chains(draw: st.DrawFn, most: int = 16) -> Chain:
    """A chain that appends reached."""
    chain = EMPTY
    for _ in range(draw(st.integers(0, most))):
        try:
            chain = append(chain, draw(next_links(chain)))
        except LeaseError:
            continue
    return chain


def explain(chain: Chain) -> Chain | None:
    """Replays a chain by public appends alone, inventing the unsaved creations that were superseded; None: cannot."""
    built = EMPTY
    for number, link in enumerate(chain.links):
        try:
            if link.supersedes is not None and number > 0:
                gone = parse_key(link.supersedes, link.handle.namespace)
                assert gone is not None
                unsaved = msgspec.structs.replace(
                    link, link_id=f"unsaved-{number}", handle=gone, supersedes=None, extra=()
                )
                built = append(built, unsaved)
            built = append(built, link)
        except LeaseError:
            return None
        if len(built.links) != number + 1:
            return None
    return built


def check_sound(chain: Chain) -> None:
    links = chain.links
    assert len(links) <= LINK_LIMIT
    assert len({link.link_id for link in links}) == len(links)
    assert len({link.handle.namespace for link in links}) <= 1
    for before, after in pairwise(links):
        assert before.minted_at_fence <= after.minted_at_fence
        if before.handle.root != after.handle.root:
            told = after.forked_from or (after.replaces and after.replaces.key)
            assert told == before.handle.key
            assert root_of_key(str(told), after.handle.namespace) == before.handle.root
        else:
            assert after.origin == "resumed"
    if links:
        assert links[0].origin in ("created", "adopted")


def attempt(chain: Chain, new: Link) -> tuple[Chain, str]:
    try:
        return append(chain, new), ""
    except LeaseError as refused:
        return chain, refused.code


def check_appends(chain: Chain, new: Link) -> None:
    before = store_chain(chain)
    longer, code = attempt(chain, new)
    assert code == "" or code in HANDLE_CODES
    assert store_chain(chain) == before
    check_sound(longer)
    head = longer.head
    if head is not None:
        assert load_chain(store_chain(longer), head.handle.namespace) == longer
    if head is not None and head.origin == "resumed":
        retry = msgspec.structs.replace(head, link_id="retry", observed_at=7)
        assert append(append(longer, retry), retry) is longer


def mutate(stored: list[dict[str, Any]], data: st.DataObject) -> None:
    """Changes one field of one stored link."""
    link = data.draw(st.sampled_from(stored))
    field = data.draw(st.sampled_from([name for name in link if name != "mood"]))
    others = [other[field] for other in stored if field in other]
    if field == "handle":
        part = data.draw(st.sampled_from(["native_id", "cursor", "agent", "transport"]))
        link["handle"][part] = data.draw(st.sampled_from(["A", "B", "1", "claude", "codex", "", None, 3]))
        return
    if field == "replaces":
        part = data.draw(st.sampled_from(["key", "reason", "replaced_at"]))
        link["replaces"][part] = data.draw(st.sampled_from(["x", "", -1, 5, stored[0].get("supersedes")]))
        return
    link[field] = data.draw(st.sampled_from([*others, None, -1, 0, 1, 2**60, "l1", "", *ORIGINS]))


def check_mutation(chain: Chain, data: st.DataObject) -> None:
    stored = json.loads(store_chain(chain))
    mutate(stored, data)
    namespace = chain.links[0].handle.namespace
    read = read_chain(json.dumps(stored).encode(), namespace)
    if isinstance(read, UnreadableChain):
        return
    assert explain(read) == read
    assert load_chain(store_chain(read), namespace) == read


@given(st.data())
def test_law_appends_keep_a_chain_sound(data: st.DataObject) -> None:
    chain = data.draw(chains())
    check_appends(chain, data.draw(next_links(chain)))


@given(chains().filter(lambda chain: bool(chain.links)), st.data())
def test_law_loading_accepts_nothing_unreachable(chain: Chain, data: st.DataObject) -> None:
    assert explain(chain) == chain
    check_mutation(chain, data)


@given(chains())
def test_law_superseding_keeps_length_and_loss(chain: Chain) -> None:
    head = chain.head
    if head is None or head.origin != "created":
        return
    for number in range(5):
        assert chain.head is not None
        new = msgspec.structs.replace(
            chain.head,
            link_id=f"s{number}",
            handle=Handle(head.handle.namespace, f"N{number}"),
            supersedes=chain.head.handle.key,
            replaces=None,
        )
        longer = append(chain, new)
        assert len(longer.links) == len(chain.links)
        assert longer.links[-1].replaces == head.replaces
        chain = longer
