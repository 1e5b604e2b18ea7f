"""The stores that every law holds for."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from clew.store.memory import MemoryListCache, MemoryResidue, MemoryThreads
from clew.store.opening import Stores, open_stores
from clew.store.protocol import ListCache, ResidueStore, ThreadStore


@pytest.fixture
def stores(tmp_path: Path) -> Generator[Stores]:
    with open_stores(tmp_path / "data") as opened:
        yield opened


@pytest.fixture(params=["memory", "sqlite"])
def residue(request: pytest.FixtureRequest) -> ResidueStore:
    if request.param == "memory":
        return MemoryResidue()
    return request.getfixturevalue("stores").residue


@pytest.fixture(params=["memory", "sqlite"])
def threads(request: pytest.FixtureRequest) -> ThreadStore:
    if request.param == "memory":
        return MemoryThreads()
    return request.getfixturevalue("stores").records


@pytest.fixture(params=["memory", "sqlite"])
def index(request: pytest.FixtureRequest) -> ListCache:
    if request.param == "memory":
        return MemoryListCache()
    return request.getfixturevalue("stores").index


@pytest.fixture
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes packs of 2 kB, so that a short session fills several."""
    monkeypatch.setattr("clew.store.packing.PACK_SIZE", 2048)
    monkeypatch.setattr("clew.store.eviction.PACK_SIZE", 2048)
