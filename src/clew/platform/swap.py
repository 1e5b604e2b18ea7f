"""Renaming that looks where it goes: never over something (create), or changing places with it (exchange).

Linux has `renameat2`, macOS `renameatx_np`; both are reached without a compiled part. Where the system or the
file system has neither, `create` falls back to a hard link, which refuses an existing name as well, and
`exchange` tells that it cannot. All names are relative to the descriptor of their folder.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from functools import cache

_UNSUPPORTED = frozenset((errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP))

if sys.platform == "darwin":
    _FUNCTION, _CREATE, _EXCHANGE = "renameatx_np", 4, 2
else:
    _FUNCTION, _CREATE, _EXCHANGE = "renameat2", 1, 2


def create(folder: int, old: str, new: str) -> None:
    """Renames `old` to `new`, atomically; raises FileExistsError when `new` is there already."""
    if not _rename(folder, old, new, _CREATE):
        os.link(old, new, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        os.unlink(old, dir_fd=folder)


def exchange(folder: int, one: str, other: str) -> bool:
    """Makes two names change places, atomically; False when this system cannot (then nothing has changed)."""
    return _rename(folder, one, other, _EXCHANGE)


def _rename(folder: int, old: str, new: str, flag: int) -> bool:
    function = _load()
    if function is None:
        return False
    ctypes.set_errno(0)
    if function(folder, os.fsencode(old), folder, os.fsencode(new), flag) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), new)


@cache
def _load() -> Callable[[int, bytes, int, bytes, int], int] | None:
    try:
        function = getattr(ctypes.CDLL(None, use_errno=True), _FUNCTION)
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    function.restype = ctypes.c_int
    return function  # type: ignore[no-any-return]
