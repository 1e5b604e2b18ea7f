"""Zstandard, from the standard library where it has it, else from its backport."""

from typing import Any

zstd: Any
try:
    from compression import zstd  # type: ignore[no-redef,import-not-found,unused-ignore]
except ImportError:
    from backports import zstd  # type: ignore[no-redef,unused-ignore]

__all__ = ["compress", "decompress"]


def compress(data: bytes) -> bytes:
    """Packs bytes into one frame."""
    return bytes(zstd.compress(data))


def decompress(data: bytes) -> bytes:
    """Unpacks bytes."""
    return bytes(zstd.decompress(data))
