"""Speaks the Agent Client Protocol with an agent: JSON-RPC lines, the answers of the user's side included."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agents.lab.process import SECONDS, AgentProcess

__all__ = ["AcpClient", "Refused"]


class Refused(Exception):
    """The agent answered with an error; the message is its own."""


class AcpClient:
    """One agent process in ACP mode. Every permission that it asks for is given."""

    def __init__(self, argv: Sequence[str | Path], cwd: Path, env: Mapping[str, str]) -> None:
        self.process = AgentProcess(argv, cwd, env)
        self.cwd = cwd
        self._number = 0

    def start(self, method: str, params: Any) -> int:
        """Sends one request and does not wait; returns its number."""
        self._number += 1
        self.process.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        return self._number

    def tell(self, method: str, params: Any) -> None:
        """Sends one notification."""
        self.process.send({"jsonrpc": "2.0", "method": method, "params": params})

    def wait(self, number: int, what: str, seconds: float = SECONDS) -> Any:
        """Returns the result of a request, answering what the agent asks on the way. Raises Refused."""

        def is_ours(line: Any) -> bool:
            if line.get("method") == "session/request_permission" and "id" in line:
                self._permit(line)
            return line.get("id") == number and "method" not in line

        answer = self.process.receive(is_ours, f"the answer to {what}", seconds)
        if answer is None:
            raise Refused(f"the agent ended: {self.process.errors[-400:]}")
        if "error" in answer:
            raise Refused(str(answer["error"]))
        return answer["result"]

    def _permit(self, line: Any) -> None:
        options = line["params"]["options"]
        chosen = next((one for one in options if one.get("kind") == "allow_once"), options[0])
        outcome = {"outcome": {"outcome": "selected", "optionId": chosen["optionId"]}}
        self.process.send({"jsonrpc": "2.0", "id": line["id"], "result": outcome})

    def call(self, method: str, params: Any, seconds: float = SECONDS) -> Any:
        """Returns the result of one request. Raises Refused."""
        return self.wait(self.start(method, params), method, seconds)

    def __enter__(self) -> Self:
        self.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.__exit__(kind, error, trace)
