"""The fake model: one HTTP server on 127.0.0.1 that speaks the Messages, Responses, Chat Completions and Gemini APIs.

It listens on an ephemeral port and answers from a script (`agents.lab.script`); when the script has run out,
the answer is the short text `DEFAULT_REPLY`. It records every request with its body. It is a thread of this
process and a context manager: leaving it ends every open line. It checks no keys and reaches nothing.
"""

import gzip
import json
import re
import threading
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from agents.lab import chat_api, gemini_api, messages_api, responses_api
from agents.lab.packed import decompress
from agents.lab.script import Script, Step, Text

__all__ = ["DEFAULT_REPLY", "FakeModel", "Request"]

DEFAULT_REPLY = "Understood."

TURNS = ("/v1/messages", "/responses", "/chat/completions", gemini_api.STREAM, gemini_api.WHOLE)
"""How the paths end at which the model is asked to speak."""

MAX_REQUESTS = 400
"""After so many requests every answer is an error: an agent that runs in circles ends."""


@dataclass(frozen=True)
class Request:
    """One request as it came: `served` is the number of the script's step that answered it, None for the
    default.
    """

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    served: int | None = None
    step: Step = field(default_factory=Step, repr=False)

    @property
    def is_turn(self) -> bool:
        """Whether the model was asked to speak."""
        path = self.path.split("?")[0]
        return self.method == "POST" and path.endswith(TURNS)


@dataclass
class _Entry:
    step: Any
    used: bool = False


class FakeModel:
    """The server. `url` is its base (without `/v1`); `requests` is everything it was asked, in order."""

    def __init__(self, script: Script = ()) -> None:
        self.requests: list[Request] = []
        self.hanging = threading.Event()
        self.closing = threading.Event()
        self._entries = [_Entry(step) for step in script]
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.model = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The base address, without a path."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def turns(self) -> list[Request]:
        """The requests in which the model was asked to speak."""
        return [request for request in list(self.requests) if request.is_turn]

    @property
    def unused(self) -> list[int]:
        """The numbers of the script's steps that nobody asked for; those that may be asked again do not count."""
        entries = enumerate(self._entries)
        return [number for number, entry in entries if not (entry.used or getattr(entry.step, "repeat", False))]

    def extend(self, script: Script) -> None:
        """Adds steps to the end of the script."""
        with self._lock:
            self._entries.extend(_Entry(step) for step in script)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)

    def record(self, request: Request) -> tuple[Request, Step]:
        """Notes a request and chooses the step that answers it."""
        with self._lock:
            served, step = self._choose(request) if request.is_turn else (None, Step())
            noted = Request(
                len(self.requests), request.method, request.path, request.headers, request.body, served, step
            )
            self.requests.append(noted)
        return noted, step

    def _choose(self, request: Request) -> tuple[int | None, Step]:
        path = request.path.split("?")[0]
        speak: Any = messages_api if path.endswith("/v1/messages") else responses_api
        speak = chat_api if path.endswith("/chat/completions") else speak
        speak = gemini_api if path.endswith((gemini_api.STREAM, gemini_api.WHOLE)) else speak
        latest = speak.latest_text(request.body)
        for number, entry in enumerate(self._entries):
            when = getattr(entry.step, "when", None)
            if when and not entry.used and re.search(when, latest, re.DOTALL):
                entry.used = not entry.step.repeat
                return number, entry.step
        if speak.is_main(request.body):
            for number, entry in enumerate(self._entries):
                if not entry.used and not getattr(entry.step, "when", None):
                    entry.used = True
                    step = entry.step
                    return number, step if isinstance(step, Step) else step(request.body)
        return None, Step([Text(DEFAULT_REPLY)])


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    model: FakeModel

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: an agent that was killed leaves broken lines, and that is expected."""


class _LineEnded(Exception):
    """The step said to stop here."""


@dataclass
class _Pace:
    """Counts deltas and breaks off where the step says so."""

    step: Step
    model: FakeModel
    count: int = field(default=0)

    def after(self, handler: "_Handler") -> None:
        self.count += 1
        if self.step.cut_after is not None and self.count >= self.step.cut_after:
            raise _LineEnded
        if self.step.hang_after is not None and self.count >= self.step.hang_after:
            self.model.hanging.set()
            while not self.model.closing.wait(0.5):
                handler.wfile.write(b": waiting\n\n")
                handler.wfile.flush()
            raise _LineEnded


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Keeps the test run's output clean."""

    def do_HEAD(self) -> None:
        self._answer(200, {})

    def do_GET(self) -> None:
        self._note(None)
        if "/models" in self.path:
            self._answer(200, {"object": "list", "data": [], "models": [], "has_more": False})
        else:
            self._answer(404, {"error": {"type": "not_found_error", "message": "nothing here"}})

    def do_POST(self) -> None:
        raw = self._read_body()
        try:
            body = json.loads(raw.decode("utf-8", "surrogatepass")) if raw else None
        except ValueError:
            body = {"unparsed": raw[:2000].decode("utf-8", "replace")}
        path = self.path.split("?")[0]
        noted, step = self._note(body)
        if path.endswith(":countTokens"):
            self._answer(200, {"totalTokens": max(1, len(raw) // 4)})
        elif path.endswith("/count_tokens"):
            self._answer(200, {"input_tokens": max(1, len(raw) // 4)})
        elif not noted.is_turn:
            self._answer(404 if "/v1/" in path else 200, {"error": {"message": "nothing here"}})
        elif noted.number > MAX_REQUESTS:
            self._answer(400, {"error": {"type": "invalid_request_error", "message": "too many requests here"}})
        elif step.status is not None:
            self._answer(step.status, {"type": "error", "error": {"type": "api_error", "message": "scripted"}})
        elif path.endswith("/v1/messages"):
            self._speak(messages_api.reply(body, step, len(raw)), messages_api.whole(body, step, len(raw)), body, step)
        elif path.endswith(gemini_api.STREAM):
            self._speak(gemini_api.reply(body, step, len(raw)), {}, {"stream": True}, step)
        elif path.endswith(gemini_api.WHOLE):
            self._answer(200, gemini_api.whole(body, step, len(raw)))
        elif path.endswith("/chat/completions"):
            self._speak(chat_api.reply(body, step, len(raw)), chat_api.whole(body, step, len(raw)), body, step)
        else:
            self._speak(responses_api.reply(body, step, len(raw)), {}, {"stream": True}, step)

    def _note(self, body: Any) -> tuple[Request, Step]:
        headers = {
            name.lower(): value
            for name, value in self.headers.items()
            if name.lower() not in ("authorization", "x-api-key")
        }
        return self.server.model.record(Request(0, self.command, self.path, headers, body))

    def _speak(self, events: Iterator[dict[str, Any]], whole: dict[str, Any], body: Any, step: Step) -> None:
        if not body.get("stream"):
            self._answer(200, whole)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("cache-control", "no-cache")
        self.send_header("request-id", f"req_lab{len(self.server.model.requests):04d}")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        pace = _Pace(step, self.server.model)
        event: dict[str, Any] = {"type": ""}
        try:
            for event in events:
                # All non-ASCII as escapes: so even a lone surrogate can be said.
                kind = str(event.get("type", "chunk"))
                named = f"event: {kind}\n" if "type" in event else ""
                self.wfile.write(f"{named}data: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()
                if kind.endswith("delta") or (kind == "chunk" and (event.get("choices") or event.get("candidates"))):
                    pace.after(self)
            if "type" not in event and "candidates" not in event:
                self.wfile.write(b"data: [DONE]\n\n")
        except (_LineEnded, BrokenPipeError, ConnectionResetError):
            pass

    def _answer(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _read_body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            raw = b"".join(self._chunks())
        else:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        return _unpack(raw, self.headers.get("content-encoding", ""))

    def _chunks(self) -> Iterator[bytes]:
        while True:
            size = int(self.rfile.readline().split(b";")[0], 16)
            data = self.rfile.read(size)
            self.rfile.readline()
            if not size:
                return
            yield data


def _unpack(raw: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.decompress(raw)
    if encoding == "deflate":
        return zlib.decompress(raw)
    if encoding == "zstd":
        return decompress(raw)
    return raw
