"""Reconciliation: the scenarios, and its laws over random histories."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clew.journal.crash import settle_crash
from clew.journal.reconcile import HistoryItem, Window, reconcile
from clew.journal.rows import Body, Dispatch, Row, Submission, text_fingerprint
from clew.journal.submissions import fold, timeline, unconfirmed
from journal_cases import folded, item, journal, more, said, sent, states


def after_crash(*bodies: Body) -> tuple[Row, ...]:
    rows = journal(*bodies)
    return more(rows, *settle_crash(fold(rows)))


def settled(rows: tuple[Row, ...], window: Window | None) -> tuple[Row, ...]:
    standings, known = folded(rows)
    return more(rows, *reconcile(standings, known, window))


def found(own_id: str, text: str = "hello", client_id: str | None = None, key: str | None = None) -> HistoryItem:
    return HistoryItem(own_id, client_id, text_fingerprint(text), key)


def test_s81_the_echoed_client_id_settles_it_and_it_is_one_bubble() -> None:
    rows = after_crash(said("a"), sent("a"))
    assert states(rows) == {"a": ("unknown", "host_restarted")}
    rows = settled(rows, Window((found("i1", client_id="a", key="k1"),)))
    assert states(rows) == {"a": ("accepted", None)}
    rows = more(rows, item("k1"))
    assert len(timeline(rows)) == 1
    assert unconfirmed(fold(rows)) == ()


def test_s83_two_identical_texts_with_client_ids_get_their_own() -> None:
    rows = after_crash(said("a"), sent("a"), said("b"), sent("b"))
    rows = settled(rows, Window((found("i2", client_id="b", key="kb"), found("i1", client_id="a", key="ka"))))
    assert {s.client_id: s.item_key for s in fold(rows)} == {"a": "ka", "b": "kb"}


def test_s84_without_ids_identical_texts_are_ambiguous() -> None:
    rows = after_crash(said("a"), sent("a"), said("b"), sent("b"))
    for items in ((found("i1"), found("i2")), (found("i1"),)):
        assert states(settled(rows, Window(items))) == {
            "a": ("unknown", "ambiguous_match"),
            "b": ("unknown", "ambiguous_match"),
        }


def test_s85_one_and_one_by_fingerprint() -> None:
    rows = settled(after_crash(said("a"), sent("a")), Window((found("i1", key="k1"), found("i2", "other"))))
    assert states(rows) == {"a": ("accepted", None)}


def test_s86_absence_is_unmatched_and_nothing_is_dispatched() -> None:
    rows = after_crash(said("a"), sent("a"))
    after = settled(rows, Window(()))
    assert states(after) == {"a": ("unknown", "unmatched")}
    assert unconfirmed(fold(after)) == ("a",)
    assert settled(after, Window(())) == after


def test_s87_a_turn_in_flight_or_no_window_leaves_it_unconfirmed() -> None:
    rows = after_crash(said("a"), sent("a"))
    assert states(settled(rows, Window((), turn_in_flight=True))) == {"a": ("unknown", "turn_in_flight")}
    assert settled(rows, None) == rows


def test_a_boundary_that_is_not_trusted_only_lets_echoes_through() -> None:
    rows = after_crash(said("a"), sent("a"), said("b", "other"), sent("b"))
    window = Window((found("i1"), found("i2", "other", client_id="b")), boundary_consistent=False)
    assert states(settled(rows, window)) == {
        "a": ("unknown", "history_boundary_inconsistent"),
        "b": ("accepted", None),
    }


def test_an_older_identical_message_is_not_taken_for_the_new_one() -> None:
    rows = after_crash(
        item("k0"),
        said("old"),
        Dispatch("old", "accepted", item_key="k1"),
        said("a"),
        sent("a"),
    )
    window = Window((found("i0", key="k0"), found("i1", key="k1")))
    assert states(settled(rows, window))["a"] == ("unknown", "unmatched")


def test_an_item_without_a_key_is_not_given_away_twice() -> None:
    window = Window((found("i1"),))
    rows = settled(after_crash(said("a"), sent("a")), window)
    assert states(rows)["a"] == ("accepted", None)
    rows = more(rows, said("b"), sent("b"))
    rows = more(rows, *settle_crash(fold(rows)))
    assert states(settled(rows, window))["b"] == ("unknown", "unmatched")


def test_an_item_key_that_was_adopted_comes_first() -> None:
    rows = after_crash(said("a"), sent("a"), Dispatch("a", "unknown", "lost", item_key="k1"), item("k1"))
    rows = settled(rows, Window((found("i1", "rewritten", key="k1"), found("i2"))))
    assert states(rows) == {"a": ("accepted", None)}


def test_an_item_that_echoes_somebody_else_is_not_ours() -> None:
    rows = settled(after_crash(said("a"), sent("a")), Window((found("i1", client_id="z"),)))
    assert states(rows) == {"a": ("unknown", "unmatched")}


def test_only_plain_text_is_compared() -> None:
    image = Submission("a", text_fingerprint("hello"), b"..", plain_text=False)
    rows = after_crash(image, sent("a"))
    assert settled(rows, Window((found("i1"), found("i2", client_id="a")))) == rows


def test_what_is_queued_or_settled_is_left_alone() -> None:
    rows = after_crash(said("q"), said("no"), Dispatch("no", "rejected", "x"))
    assert settled(rows, Window((found("i1"),))) == rows


def test_a_pending_message_of_a_living_owner_keeps_its_item() -> None:
    rows = journal(said("a"), sent("a"), Dispatch("a", "unknown", "x"), said("b"), sent("b"))
    window = Window((found("i1", client_id="b"),), turn_in_flight=True)
    assert states(settled(rows, window)) == {"a": ("unknown", "turn_in_flight"), "b": ("pending", None)}


# --- laws --------------------------------------------------------------------------------------------------------

texts = st.sampled_from(["one", "two", "three"])


@st.composite
def histories(draw: st.DrawFn) -> tuple[HistoryItem, ...]:
    """Items of an agent's history; an identity key names one item."""
    keys = draw(st.permutations(["k0", "k1", "k2", "k3", None, None]))
    names = st.none() | st.sampled_from(["c0", "c1", "c2", "z"])
    number = draw(st.integers(0, 6))
    return tuple(found(f"i{n}", draw(texts), draw(names), keys[n]) for n in range(number))


@st.composite
def doubts(draw: st.DrawFn) -> tuple[Row, ...]:
    bodies: list[Body] = []
    for number in range(draw(st.integers(1, 3))):
        bodies += [said(f"c{number}", draw(texts)), sent(f"c{number}")]
        if draw(st.integers(0, 3)) == 0:
            bodies.append(Dispatch(f"c{number}", "unknown", "lost", item_key=f"k{number}"))
    if draw(st.booleans()):
        bodies.append(item("k3"))
    return after_crash(*bodies)


@given(doubts(), histories(), st.booleans(), st.booleans(), st.randoms())
def test_law_order_changes_nothing_and_only_unknown_is_narrowed(
    rows: tuple[Row, ...], items: tuple[HistoryItem, ...], consistent: bool, in_flight: bool, random: object
) -> None:
    standings, known = folded(rows)
    told = reconcile(standings, known, Window(items, consistent, in_flight))
    mixed, turned = list(items), list(standings)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    random.shuffle(turned)  # type: ignore[attr-defined]
    assert reconcile(turned, known, Window(tuple(mixed), consistent, in_flight)) == told
    assert {one.state for one in told} <= {"accepted", "unknown"}
    before = {s.client_id: s.state for s in standings}
    assert all(before[one.client_id] == "unknown" for one in told)
    keys = [one.receipt for one in told if one.state == "accepted"]
    assert len(keys) == len(set(keys))
    after = settled(rows, Window(items, consistent, in_flight))
    assert settled(after, Window(items, consistent, in_flight)) == after


@given(doubts(), histories(), st.lists(st.integers(0, 9), max_size=4))
def test_law_unrelated_items_never_turn_a_match_into_another(
    rows: tuple[Row, ...], items: tuple[HistoryItem, ...], numbers: list[int]
) -> None:
    standings, known = folded(rows)
    plain = {one.client_id: one for one in reconcile(standings, known, Window(items))}
    unrelated = tuple(found(f"u{n}-{at}", f"unrelated {n}", None, f"ku{n}") for at, n in enumerate(numbers))
    wider = {one.client_id: one for one in reconcile(standings, known, Window((*unrelated, *items)))}
    assert wider == plain


@given(doubts(), histories(), texts)
def test_law_one_more_item_of_the_same_text_never_moves_a_match(
    rows: tuple[Row, ...], items: tuple[HistoryItem, ...], text: str
) -> None:
    standings, known = folded(rows)
    before = {one.client_id: one for one in reconcile(standings, known, Window(items))}
    after = {one.client_id: one for one in reconcile(standings, known, Window((*items, found("zz", text))))}
    for client_id, one in after.items():
        old = before.get(client_id)
        if one.state == "accepted" and old is not None and old.state == "accepted":
            assert one.receipt == old.receipt
