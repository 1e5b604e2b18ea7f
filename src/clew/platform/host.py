"""The id of this host: made once per machine and PID namespace, kept in a file there, never in a shared
store.

The file holds one line per host that has used it (a home folder may be shared between machines): the id, a
blank, and a fingerprint of the machine, both in hex. A container that starts anew is another host, for its
pids mean something else; so is a copy of the file on another machine.
"""

from __future__ import annotations

import os
import platform
import secrets
import sys
from pathlib import Path

from blake3 import blake3

from clew.platform.fs import ensure_folder
from clew.platform.lock import locked
from clew.platform.process import boot_id

_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""Linux gives the namespace of the machine itself this fixed number; every other one is a container's."""

_MACHINE_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")


def host_id(path: Path) -> str:
    """Returns this host's id (`h` and 16 hex digits), making and keeping it in the file at `path` at
    first."""
    fingerprint = machine_fingerprint()
    found = _find(path, fingerprint)
    if found is None:
        ensure_folder(path.parent)
        with locked(path.with_name(path.name + ".lock")):
            found = _find(path, fingerprint)
            if found is None:
                found = "h" + secrets.token_hex(8)
                _append(path, f"{found} {fingerprint}\n")
    return found


def machine_fingerprint() -> str:
    """Returns 32 hex digits that differ between machines, and between PID namespaces of one machine."""
    parts = [_machine(), platform.system()]
    if sys.platform.startswith("linux"):
        try:
            namespace = str(Path("/proc/self/ns/pid").readlink())
        except OSError:
            namespace = "unknown"
        if namespace != _FIRST_PID_NAMESPACE:
            # Numbers of namespaces start over with each boot.
            parts += [namespace, boot_id()]
    return blake3("\0".join(parts).encode()).hexdigest()[:32]


def _machine() -> str:
    for name in _MACHINE_FILES:
        try:
            text = Path(name).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        if text:
            return text
    return platform.node()


def _find(path: Path, fingerprint: str) -> str | None:
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return None
    for line in lines:
        name, _, machine = line.partition(" ")
        if machine == fingerprint and len(name) == 17 and name.startswith("h"):
            return name
    return None


def _append(path: Path, line: str) -> None:
    """Adds a line durably. A torn line of a killed process is ended first, and names no host."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(fd).st_size
        torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        os.write(fd, (("\n" if torn else "") + line).encode("ascii"))
        os.fsync(fd)
    finally:
        os.close(fd)
