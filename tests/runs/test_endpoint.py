"""Endpoints over real HTTP on loopback: what is sent, what comes back, and everything that is no answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from clew.errors import UsageError
from clew.runs.operation import ItemContext, ItemFailed, Usage
from clew.runs.review.asking import Unreached
from clew.runs.review.endpoint import EndpointAsker, resolve_endpoint

KEY = "sk-Hidden-0099"


class Model(ThreadingHTTPServer):
    """Answers what it is told to, and keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.body: bytes = b"{}"
        self.headers: dict[str, str] = {}
        self.drip = False
        self.breaks_off = False
        self.closing = threading.Event()
        self.seen: list[tuple[str, dict[str, str], Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up leaves a broken line, and that is expected."""


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        model = self.server
        assert isinstance(model, Model)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(model.status)
        for name, value in model.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(model.body) + (1000 if model.drip else 0)))
        self.end_headers()
        self.wfile.write(model.body)
        if model.breaks_off:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        elif model.drip:
            self.wfile.flush()
            model.closing.wait(20)

    def log_message(self, *arguments: object) -> None:
        """Says nothing."""


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.closing.set()
        server.shutdown()
        thread.join()


def context(seconds: float = 20) -> ItemContext:
    left = iter([seconds] * 2 + [-1.0] * 1000) if seconds < 1 else None
    return ItemContext(
        "run",
        remaining_s=(lambda: next(left)) if left is not None else (lambda: seconds),
        cancelled=threading.Event(),
        record=lambda kind, fields: None,
    )


def asker(model: Model, provider: str = "openai", **environment: str) -> EndpointAsker:
    env = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY} | environment
    url = model.url + ("/v1" if provider == "openai" else "")
    return EndpointAsker(resolve_endpoint(provider, "m-1", url=url, key_name="", environment=env), env)


OPENAI = {
    "model": "m-1-2026",
    "choices": [{"message": {"role": "assistant", "content": "hello"}}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3},
}
ANTHROPIC = {
    "model": "m-1-2026",
    "content": [{"type": "thinking", "thinking": "x"}, {"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}],
    "usage": {"input_tokens": 4, "cache_read_input_tokens": 3, "output_tokens": 3},
}


def test_an_openai_compatible_endpoint(model: Model) -> None:
    model.body = json.dumps(OPENAI).encode()
    told = asker(model).ask("why?", None, context())
    assert (told.text, told.usage, told.model, told.session) == ("hello", Usage(7, 3), "m-1-2026", None)
    [(path, headers, body)] = model.seen
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert body == {"model": "m-1", "messages": [{"role": "user", "content": "why?"}]}


def test_an_anthropic_endpoint(model: Model) -> None:
    model.body = json.dumps(ANTHROPIC).encode()
    told = asker(model, "anthropic").ask("why?", None, context())
    assert (told.text, told.usage) == ("hello", Usage(7, 3))
    [(path, headers, body)] = model.seen
    assert path == "/v1/messages"
    assert headers["x-api-key"] == KEY
    assert "authorization" not in headers
    assert body["max_tokens"] > 0


GARBAGE = [
    b"",
    b"<html>busy</html>",
    b"[]",
    b"null",
    b'{"choices": []}',
    b'{"choices": [{"message": {"content": ""}}]}',
    b'{"choices": "x"}',
    b'{"content": "x"}',
    b"\xff\xfe\x00",
    b"[" * 50_000,
]


@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_an_endpoint_that_answers_with_garbage(model: Model, body: bytes, provider: str) -> None:
    model.body = body
    with pytest.raises(ItemFailed, match=r"127\.0\.0\.1") as caught:
        asker(model, provider).ask("why?", None, context())
    assert caught.value.classification == "provider"
    assert not isinstance(caught.value, Unreached), "garbage is paid for, and is not asked for again"


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
def test_a_busy_server_is_tried_again(model: Model, status: int) -> None:
    model.status, model.headers = status, {"Retry-After": "7"}
    model.body = json.dumps({"error": {"message": "slow down"}}).encode()
    with pytest.raises(Unreached, match=f"answered {status}: slow down") as caught:
        asker(model).ask("why?", None, context())
    assert caught.value.pause_s == 7


@pytest.mark.parametrize(("status", "ends_run"), [(400, False), (401, True), (403, True), (404, True), (413, False)])
def test_a_refusal_is_final(model: Model, status: int, ends_run: bool) -> None:
    model.status, model.body = status, b'{"error": "nope"}'
    with pytest.raises(ItemFailed, match=f"answered {status}: nope") as caught:
        asker(model).ask("why?", None, context())
    assert not isinstance(caught.value, Unreached)
    assert caught.value.ends_run is ends_run


def test_a_redirect_is_not_followed_with_the_key(model: Model) -> None:
    model.status, model.headers = 307, {"Location": f"{model.url}/elsewhere"}
    with pytest.raises(ItemFailed, match="redirects elsewhere"):
        asker(model).ask("why?", None, context())
    assert len(model.seen) == 1


def test_a_server_that_drips_is_left_when_the_time_is_over(model: Model) -> None:
    model.drip = True
    with pytest.raises(ItemFailed) as caught:
        asker(model).ask("why?", None, context(0.5))
    assert caught.value.classification == "timeout"


def test_an_answer_that_breaks_off_is_told_as_that_and_not_asked_for_again(model: Model) -> None:
    model.body, model.drip, model.breaks_off = b'{"choices": [', True, True
    with pytest.raises(ItemFailed, match="broke off its answer after 13 bytes of 1013") as caught:
        asker(model).ask("why?", None, context())
    assert not isinstance(caught.value, Unreached), "what was begun may have been paid for"


def test_an_interrupted_run_does_not_wait_for_an_answer(model: Model) -> None:
    model.drip = True
    told = context()
    told.cancelled.set()
    with pytest.raises(ItemFailed) as caught:
        asker(model).ask("why?", None, told)
    assert caught.value.classification == "cancelled"


def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    quiet = EndpointAsker(resolve_endpoint("openai", "m", url=url, key_name="", environment={}), {})
    with pytest.raises(Unreached, match="cannot be reached"):
        quiet.ask("why?", None, context())


def test_a_proxy_is_used_but_never_for_this_machine(model: Model) -> None:
    model.body = json.dumps(OPENAI).encode()
    asker(model, http_proxy="http://127.0.0.1:9").ask("why?", None, context())
    assert len(model.seen) == 1


@pytest.mark.parametrize(
    ("provider", "model_name", "url", "environment", "message"),
    [
        ("openai", "", "", {"OPENAI_API_KEY": KEY}, "no model is named"),
        ("openai", "m", "", {}, "the environment has no OPENAI_API_KEY"),
        ("mine", "m", "", {"MINE_API_KEY": KEY}, "provider 'mine' is not known"),
        ("mine", "m", "ftp://h/v1", {"MINE_API_KEY": KEY}, "no http or https address"),
        ("mine", "m", f"https://u:{KEY}@h/v1", {"MINE_API_KEY": KEY}, "carries credentials"),
        ("mine", "m", f"https://h/v1?api_key={KEY}", {"MINE_API_KEY": KEY}, "carries credentials"),
        ("mine", "m", "http://far.example/v1", {"MINE_API_KEY": KEY}, "over plain HTTP"),
        ("mine", "m", "https://h:port/v1", {"MINE_API_KEY": KEY}, "is no address"),
    ],
)
def test_an_endpoint_that_cannot_be_asked_is_refused_before_anything(
    provider: str, model_name: str, url: str, environment: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        resolve_endpoint(provider, model_name, url=url, key_name="", environment=environment)
    assert KEY not in caught.value.message + caught.value.hint


def test_addresses_and_keys_come_from_the_environment() -> None:
    env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "https://gate.example/v1/", "OTHER": "other"}
    found = resolve_endpoint("openai", "m", url="", key_name="", environment=env)
    assert (found.url, found.key, found.host) == ("https://gate.example/v1", KEY, "gate.example")
    assert resolve_endpoint("openai", "m", url="", key_name="OTHER", environment=env).key == "other"
    assert resolve_endpoint("ollama", "m", url="", key_name="", environment={}).key == ""


@pytest.mark.parametrize("key", ["two\nlines", "schl\u00fcssel", "a\x07b", "\u20ac"])
def test_a_key_that_no_header_can_hold_is_refused_before_anything_and_not_shown(key: str) -> None:
    with pytest.raises(UsageError, match="HOUSE_API_KEY holds characters that no key has") as caught:
        resolve_endpoint("house", "m", url="https://h/v1", key_name="", environment={"HOUSE_API_KEY": key})
    assert key not in f"{caught.value.message}{caught.value.hint}"
