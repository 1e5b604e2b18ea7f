"""A chain: the history of one conversation's handles in one namespace, and the rules by which it grows.

Promises: the checks of `append` run in a fixed order and the first failure decides; a retry of the same proof changes
nothing; the cap refuses and never drops a link; `append` returns a new chain and leaves the given one as it was;
`load_chain(store_chain(chain)) == chain` for every chain that appends can reach, and loading accepts no other.
A chain never crosses namespaces: the story over agents is the thread's.
"""

from __future__ import annotations

from typing import Final

import msgspec

from clew.errors import LeaseError
from clew.lineage.handle import Namespace, RootKey, root_of_key
from clew.lineage.link import Link, Replacement, link_fault, load_link, store_link
from clew.lineage.refusal import CHAIN_OVERFLOW, FORKED, PROVIDER_MISMATCH, STALE_FENCE, invalid, refuse
from clew.lineage.stored import Malformed, raw_items, refuse_doubles, write_list

LINK_LIMIT: Final = 256


class Chain(msgspec.Struct, frozen=True):
    """The links of one conversation, oldest first; the last one is the head."""

    links: tuple[Link, ...] = ()

    @property
    def head(self) -> Link | None:
        """The newest link; None for an empty chain."""
        return self.links[-1] if self.links else None

    @property
    def link_ids(self) -> frozenset[str]:
        """The ids of all links."""
        return frozenset(link.link_id for link in self.links)

    @property
    def roots(self) -> tuple[RootKey, ...]:
        """The roots of all links, each once, oldest first: by them a conversation is found."""
        return tuple(dict.fromkeys(link.handle.root for link in self.links))

    @property
    def keys(self) -> frozenset[str]:
        """The keys of all links."""
        return frozenset(link.handle.key for link in self.links)


class UnreadableChain(msgspec.Struct, frozen=True):
    """A stored chain that no appends explain: kept byte for byte, never rewritten, never granted a writer."""

    data: bytes
    fault: str


EMPTY: Final = Chain()


def append(chain: Chain, link: Link) -> Chain:
    """Returns the chain with the link added, the same chain for a retry, or raises LeaseError `handle_*`.

    Rule: docs/ownership.md, H4 to H6.
    """
    fault = link_fault(link)
    if fault:
        raise invalid(fault, link=link.link_id)
    head = chain.head
    if head is None:
        return _open(link)
    _check_head(head, link)
    if link.origin == "created" and link.supersedes is not None:
        return _supersede(chain, head, link)
    return _extend(chain, head, link)


def roll_over(chain: Chain, link: Link) -> Chain:
    """Returns the chain that follows a full one: it begins with `link`, which adopts the head's conversation.

    The caller records the old chain (an edge `rolled_over` of the thread). Raises LeaseError when the link does not
    adopt exactly the head's root at a fence that is not below the head's.
    """
    fault = link_fault(link)
    head = chain.head
    if fault or head is None or link.origin != "adopted":
        raise invalid(fault or "a chain is closed by a link that adopts its head", link=link.link_id)
    _check_head(head, link)
    if link.handle.root != head.handle.root:
        raise invalid("a chain is closed by adopting the conversation of its head", link=link.link_id)
    return _open(link)


def store_chain(chain: Chain) -> bytes:
    """Returns the stored form: the JSON list of the links."""
    return write_list(store_link(link) for link in chain.links)


def load_chain(data: bytes, namespace: Namespace) -> Chain:
    """Returns the chain of a stored form by replaying its appends; raises LeaseError `handle_invalid`.

    Each link in turn must append *and* add exactly one link; `namespace` is the record's.
    """
    chain = EMPTY
    try:
        refuse_doubles(data, "chain")
        for number, raw in enumerate(raw_items(data, "chain")):
            chain = _replay(chain, load_link(raw, namespace), number)
    except Malformed as error:
        raise invalid(f"stored chain: {error}") from error
    return chain


def read_chain(data: bytes, namespace: Namespace) -> Chain | UnreadableChain:
    """Returns the chain of a stored form, or the bytes as they are with what is wrong. Never raises."""
    try:
        return load_chain(data, namespace)
    except LeaseError as error:
        return UnreadableChain(data, error.message)


def _open(link: Link) -> Chain:
    if link.origin not in ("created", "adopted"):
        raise invalid(f"a chain does not begin with a {link.origin} link", link=link.link_id)
    if link.replaces is not None:
        raise invalid("the first link replaces nothing: no conversation is before it", link=link.link_id)
    return Chain((link,))


def _check_head(head: Link, link: Link) -> None:
    """Rules 3 and 4: the head's namespace, and no fence below the head's."""
    if link.handle.namespace != head.handle.namespace:
        raise refuse(
            PROVIDER_MISMATCH,
            f"the conversation is one of {head.handle.namespace}, the link of {link.handle.namespace}",
            link=link.link_id,
        )
    if link.minted_at_fence < head.minted_at_fence:
        raise refuse(
            STALE_FENCE,
            f"the link was made at fence {link.minted_at_fence}, the chain stands at {head.minted_at_fence}",
            link=link.link_id,
            fence=head.minted_at_fence,
        )


def _extend(chain: Chain, head: Link, link: Link) -> Chain:
    """Rules 6 to 12, for a link that takes nobody's place."""
    _check_origin(head, link)
    if link.origin == "resumed" and link.handle == head.handle and link.minted_at_fence == head.minted_at_fence:
        return chain
    if link.link_id in chain.link_ids:
        raise invalid(f"link id {link.link_id} is in the chain already", link=link.link_id)
    if len(chain.links) >= LINK_LIMIT:
        raise refuse(CHAIN_OVERFLOW, f"the chain has {LINK_LIMIT} links already", link=link.link_id)
    return Chain((*chain.links, link))


def _check_origin(head: Link, link: Link) -> None:
    same_root = link.handle.root == head.handle.root
    if link.origin == "created":
        if link.replaces is None or link.replaces.key != head.handle.key or same_root:
            raise invalid("a creation behind a conversation must say that it replaces it", link=link.link_id)
    elif link.origin == "adopted":
        raise invalid("nothing gives a chain another origin: adopting is only for its first link", link=link.link_id)
    elif link.origin == "resumed":
        if not same_root:
            raise refuse(
                FORKED,
                f"resumed {head.handle.native_id!r}, but the agent went on in {link.handle.native_id!r}",
                link=link.link_id,
            )
    elif same_root or link.forked_from != head.handle.key:
        raise invalid("a fork has a new root and names the head's key", link=link.link_id)


def _supersede(chain: Chain, head: Link, link: Link) -> Chain:
    """Section 5: the new creation takes the place of an unsaved one."""
    if head.origin != "created":
        raise invalid(f"a {head.origin} head was saved: it is not superseded", link=link.link_id)
    if link.supersedes != head.handle.key or link.handle.root == head.handle.root:
        raise invalid("a creation supersedes the head, with a new root", link=link.link_id)
    if link.replaces is not None and not _same_loss(link.replaces, head.replaces):
        raise invalid("a creation that supersedes cannot change what was replaced", link=link.link_id)
    if link.link_id in chain.link_ids:
        raise invalid(f"link id {link.link_id} is in the chain already", link=link.link_id)
    taken = msgspec.structs.replace(link, replaces=head.replaces)
    below = Chain(chain.links[:-1])
    if below.head is None:
        return Chain((taken,))
    _check_head(below.head, taken)
    return _extend(below, below.head, taken)


def _same_loss(one: Replacement, other: Replacement | None) -> bool:
    return other is not None and (one.key, one.reason, one.replaced_at) == (
        other.key,
        other.reason,
        other.replaced_at,
    )


def _replay(chain: Chain, link: Link, number: int) -> Chain:
    """Adds a stored link as the append did that once made it; `number` is for the message."""
    head = chain.head
    try:
        if head is None:
            return _open(link)
        _check_head(head, link)
        longer = _extend(chain, head, link)
    except LeaseError as error:
        raise invalid(f"stored chain: link {number}: {error.message}", link=link.link_id) from error
    if longer is chain:
        raise invalid(f"stored chain: link {number} adds nothing", link=link.link_id)
    if link.supersedes is not None and not _could_supersede(head, link):
        raise invalid(f"stored chain: link {number} supersedes what never was there", link=link.link_id)
    return longer


def _could_supersede(below: Link, link: Link) -> bool:
    """Tells whether an unsaved creation of that key can have stood between `below` and `link`.

    It replaced `below`, so its root was another one; and the link that took its place has a new root again.
    """
    root = root_of_key(link.supersedes or "", link.handle.namespace)
    return root is not None and root not in (below.handle.root, link.handle.root)
