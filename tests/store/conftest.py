"""The stores that every law holds for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from clew.store.memory import MemoryListCache, MemoryResidue, MemoryThreads
from clew.store.memory_records import MemoryRecords
from clew.store.opening import Stores, open_stores
from clew.store.protocol import ListCache, ResidueStore, ThreadStore
from clew.store.record_protocol import RecordStore
from record_making import own_schema


@pytest.fixture
def stores(tmp_path: Path) -> Generator[Stores]:
    with open_stores(tmp_path / "data") as opened:
        yield opened


@pytest.fixture(params=["memory", "sqlite"])
def residue(request: pytest.FixtureRequest) -> ResidueStore:
    if request.param == "memory":
        return MemoryResidue()
    return request.getfixturevalue("stores").residue


HOMES = ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(params=HOMES)
def records(request: pytest.FixtureRequest) -> RecordStore:
    if request.param == "memory":
        return MemoryRecords()
    return request.getfixturevalue("stores" if request.param == "sqlite" else "server").records


@pytest.fixture(params=["threads alone", *HOMES])
def threads(request: pytest.FixtureRequest) -> ThreadStore:
    if request.param == "threads alone":
        return MemoryThreads()
    if request.param == "memory":
        return MemoryRecords()
    return request.getfixturevalue("stores" if request.param == "sqlite" else "server").records


@pytest.fixture
def server_url() -> Generator[str]:
    """A PostgreSQL schema of its own, as a URL for --store."""
    with own_schema() as url:
        yield url


@pytest.fixture
def server(tmp_path: Path, server_url: str) -> Generator[Stores]:
    with open_stores(tmp_path / "data", url=server_url) as opened:
        yield opened


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


@pytest.fixture
def run_child() -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """Runs a script in a process of its own, with the tests' modules at hand; it may die."""

    def run(script: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        env = {"PATH": os.defpath, "PYTHONPATH": str(Path(__file__).parents[1])}
        return subprocess.run(
            [sys.executable, "-c", script, *arguments], env=env, capture_output=True, timeout=60, check=False
        )

    return run
