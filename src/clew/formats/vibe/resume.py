"""The command lines that resume and fork a session, and Vibe's own sign of who holds one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from clew.formats import raws
from clew.formats.folders import small_file
from clew.formats.protocol import Found, Home, Owner
from clew.formats.vibe.folder import CURRENT, UNIFIED
from clew.formats.vibe.locate import VibeLocate
from clew.platform.process import identify


class Lease(msgspec.Struct):
    """Who opened a session: `unified/active/<id>.lock.json`, removed when it is closed."""

    session_id: Any = None
    process_id: Any = None


class VibeResume:
    """How Mistral Vibe is told to go on with a session."""

    program = "vibe"

    def argv(self, session_id: str, *, model: str = "", extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Returns the command line that resumes a session; its model is that of the configuration."""
        return (self.program, "--resume", session_id, *extra)

    def fork_argv(self, session_id: str) -> tuple[str, ...]:
        """Returns nothing: Vibe forks inside its own screen only."""
        return ()

    def owner(self, found: Found, home: Home) -> Owner | None:
        """Returns the live process that holds the session by Vibe's lease, or None."""
        name = found.path.parent.name if found.path.name == CURRENT else found.id
        return self.owners(home).get(name)

    def owners(self, home: Home) -> Mapping[str, Owner]:
        """Returns all live owners by session id, in one look; a lease whose process is gone does not count."""
        found: dict[str, Owner] = {}
        for path in sorted((VibeLocate().base(home) / UNIFIED / "active").glob("*.lock.json")):
            lease = _read(path)
            if lease is None or type(lease.session_id) is not str or type(lease.process_id) is not int:
                continue
            identity = identify(lease.process_id)
            if identity is not None:
                detail = f"vibe, process {lease.process_id}"
                found[lease.session_id] = Owner(lease.process_id, detail, identity.start_ticks)
        return found


_DECODE = msgspec.json.Decoder(Lease).decode


def _read(path: Path) -> Lease | None:
    try:
        if path.is_symlink() or path.stat().st_size > 1 << 16:
            return None
        return _DECODE(small_file(path))
    except (OSError, *raws.DECODE_ERRORS):
        return None
