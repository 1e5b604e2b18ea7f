"""Closing: closed, or kept for another try."""

from __future__ import annotations

import pytest

from clew.journal.closing import CloseRegistry


class Stub:
    """A journal whose first closes fail."""

    def __init__(self, directory: str, failures: int = 0) -> None:
        self.directory = directory
        self.failures = failures
        self.tries = 0

    def close(self) -> None:
        self.tries += 1
        if self.failures:
            self.failures -= 1
            raise OSError("busy")


def unwind(registry: CloseRegistry, journal: Stub) -> None:
    """Fails, and closes what it had opened on the way out."""
    try:
        raise ValueError("first")
    finally:
        told = registry.close_or_retain(journal)
        assert not told.closed
        assert isinstance(told.error, OSError)


def test_a_journal_that_closes_is_not_kept() -> None:
    registry = CloseRegistry()
    assert registry.close_or_retain(Stub("/a")).closed
    assert registry.held_directories() == ()


def test_s91_the_first_error_is_what_the_caller_gets() -> None:
    registry, journal = CloseRegistry(), Stub("/a", failures=2)
    with pytest.raises(ValueError, match="first"):
        unwind(registry, journal)
    assert registry.held_directories() == ("/a",)
    (still,) = registry.retry_all()
    assert not still.closed
    assert registry.held_directories() == ("/a",)
    assert registry.retry_all() == ()
    assert registry.held_directories() == ()
    assert journal.tries == 3


def test_a_journal_is_kept_once_by_identity() -> None:
    registry, journal, twin = CloseRegistry(), Stub("/a", failures=3), Stub("/a", failures=9)
    registry.close_or_retain(journal)
    registry.close_or_retain(journal)
    registry.close_or_retain(twin)
    assert registry.held_directories() == ("/a", "/a")
    assert len(registry.retry_all()) == 2
    assert len(registry.retry_all()) == 1
    assert registry.held_directories() == ("/a",)


def test_an_interrupt_is_not_swallowed() -> None:
    class Stopped(Stub):
        def close(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CloseRegistry().close_or_retain(Stopped("/a"))
