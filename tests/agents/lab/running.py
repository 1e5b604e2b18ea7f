"""A run of an agent that is started and not waited for: what a session of one-shot runs needs to be killed."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from agents.lab.process import AgentProcess
from agents.lab.seen import Seen

__all__ = ["Running"]


class Running:
    """The part of a session that starts a process and ends it where it stands."""

    _process: AgentProcess | None = None

    def begin(self, argv: Sequence[str | Path], cwd: Path, env: Mapping[str, str]) -> None:
        """Starts a run, with nothing on its input."""
        self._process = AgentProcess(argv, cwd, env)
        assert self._process.child.stdin is not None
        self._process.child.stdin.close()

    def kill(self) -> Seen:
        """Ends the run at once (SIGKILL), with the children it has."""
        assert self._process is not None
        self._process.__exit__(None, None, None)
        self._process = None
        return Seen(exit=None)
