"""Named fault points: places in the code where a test may fail, kill the process or step in.

A module declares its points when it is imported (`SWAP = declare("place.before-swap")`) and passes them
(`fault(SWAP)`); `points()` lists them all, so that a test can kill at every one. In production nothing is
installed and a pass costs one comparison. Nothing here reads the environment: the command line hands a spec
in.

A spec is a comma-separated list of `name=action` or `name@N=action`: act at the N-th pass only (default: the
first). Actions: `raise` (InjectedFault), `raise:ENOSPC` (an OSError of that sort), `kill` (SIGKILL to this
process), `exit` (leave at once with status 86, no clean-up).
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager

from clew.errors import UsageError

EXIT_STATUS = 86

_declared: set[str] = set()
_traps: dict[str, _Trap] | None = None


class InjectedFault(Exception):
    """Raised at a fault point on a test's behalf. It is no ClewError: nothing may answer it as if it were
    one."""


class _Trap:
    """One armed point: counts the passes and acts at the wanted one, a hook at every one."""

    def __init__(self, action: Callable[[], None], at_pass: int | None) -> None:
        self.action = action
        self.at_pass = at_pass
        self.passes = 0

    def spring(self) -> None:
        self.passes += 1
        if self.at_pass is None or self.passes == self.at_pass:
            self.action()


def declare(name: str) -> str:
    """Makes a point known under a unique name (`room.before-something`) and returns the name."""
    assert name not in _declared, f"two fault points are called {name}"
    _declared.add(name)
    return name


def points() -> tuple[str, ...]:
    """Returns the names declared by all modules imported so far, sorted."""
    return tuple(sorted(_declared))


def fault(name: str) -> None:
    """Passes a point: does nothing, unless something is installed there."""
    if _traps is not None:
        assert name in _declared, f"no fault point is called {name}"
        trap = _traps.get(name)
        if trap is not None:
            trap.spring()


def install(spec: str) -> None:
    """Arms the points that `spec` names, in addition to those armed; raises UsageError when it is malformed.

    A name that no module has declared yet is accepted: its module may be imported later.
    """
    for item in filter(None, (part.strip() for part in spec.split(","))):
        name, equals, action = item.partition("=")
        name, _, count = name.partition("@")
        if not equals or not name or (count and not count.isdecimal()):
            raise UsageError(f"{item!r} is no fault", hint="Write name=action or name@N=action.")
        _arm(name, _Trap(_make_action(name, action), int(count or 1)))


def install_hook(name: str, hook: Callable[[], None]) -> None:
    """Calls `hook` at every pass of the point."""
    _arm(name, _Trap(hook, None))


def clear() -> None:
    """Disarms everything."""
    global _traps
    _traps = None


@contextmanager
def installed(spec: str = "", **hooks: Callable[[], None]) -> Generator[None]:
    """Arms `spec` and the hooks for the block, then disarms everything.

    A hook's keyword is the point's name with `.` as `__` and `-` as `_`.
    """
    try:
        install(spec)
        for keyword, hook in hooks.items():
            install_hook(keyword.replace("__", ".").replace("_", "-"), hook)
        yield
    finally:
        clear()


def _arm(name: str, trap: _Trap) -> None:
    global _traps
    if _traps is None:
        _traps = {}
    _traps[name] = trap


def _make_action(name: str, action: str) -> Callable[[], None]:
    verb, _, detail = action.partition(":")
    if verb == "raise" and not detail:
        return lambda: _raise(InjectedFault(name))
    if verb == "raise" and isinstance(getattr(errno, detail, None), int):
        number: int = getattr(errno, detail)
        return lambda: _raise(OSError(number, f"{os.strerror(number)} (injected at {name})"))
    if action == "kill":
        return lambda: os.kill(os.getpid(), signal.SIGKILL)
    if action == "exit":
        return lambda: os._exit(EXIT_STATUS)
    raise UsageError(f"{action!r} is no fault action", hint="Take raise, raise:ENOSPC, kill or exit.")


def _raise(error: BaseException) -> None:
    raise error
