"""OpenAI-compatible and Anthropic endpoints, asked over plain HTTP with the standard library.

The key comes from the environment that is handed in, goes into one header, and is stored nowhere. Redirects are not
followed, since they would carry the key elsewhere; a key never goes over plain HTTP to another machine. The network
alone is `Unreached` and may be tried again; an answer that is no answer fails its item at once.
"""

from __future__ import annotations

import http.client
import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import Struct

from clew.errors import UsageError
from clew.runs.lineage import Target
from clew.runs.operation import ItemContext, ItemFailed, Usage
from clew.runs.reason import sanitise
from clew.runs.review.asking import MAX_ANSWER_BYTES, Answer, Unreached

Speech = Literal["openai", "anthropic"]

ANSWER_TOKENS = 8192
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SOCKET_S = 600.0
_POLL_S = 0.1


class Provider(Struct, frozen=True):
    """What is known about a provider by its name."""

    speech: Speech
    url: str
    key_name: str
    url_name: str


PROVIDERS: dict[str, Provider] = {
    "openai": Provider("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "anthropic": Provider("anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    "openrouter": Provider("openai", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", ""),
    "ollama": Provider("openai", "http://127.0.0.1:11434/v1", "OLLAMA_API_KEY", ""),
}
"""Providers that need no --endpoint. Any other one speaks like OpenAI at the address that is given."""


class Endpoint(Struct, frozen=True):
    """Where and how a provider is asked. The key is a secret: this value is never written."""

    provider: str
    model: str
    speech: Speech
    url: str
    key: str

    @property
    def host(self) -> str:
        """The host and port, without credentials."""
        return urllib.parse.urlsplit(self.url).netloc.rpartition("@")[2]


def resolve_endpoint(provider: str, model: str, *, url: str, key_name: str, environment: Mapping[str, str]) -> Endpoint:
    """Returns the endpoint of a provider's name; raises UsageError for a missing model, address or key.

    `url` and `key_name` (the name of an environment variable) go before what is known of the provider.
    """
    if not model:
        raise UsageError(f"no model is named for {provider}", hint="Pass --model NAME.")
    known = PROVIDERS.get(provider, Provider("openai", "", f"{provider.upper().replace('-', '_')}_API_KEY", ""))
    address = url or (environment.get(known.url_name, "") if known.url_name else "") or known.url
    if not address:
        raise UsageError(f"the provider {provider!r} is not known", hint="Pass its address: --endpoint URL.")
    parts = _check_address(address)
    wanted = key_name or known.key_name
    key = environment.get(wanted, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise UsageError(f"the variable {wanted} holds characters that no key has", hint="Copy the key anew.")
    local = parts.hostname in _LOOPBACK
    if not key and not local:
        raise UsageError(
            f"no key for {provider}: the environment has no {wanted}",
            hint=f"Set {wanted}, or name another: --key-env NAME.",
        )
    if key and parts.scheme == "http" and not local:
        raise UsageError(
            f"the key for {provider} would go over plain HTTP to {parts.hostname}", hint="Give an https address."
        )
    return Endpoint(provider, model, known.speech, address.rstrip("/"), key)


def _check_address(address: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(address)
        _ = parts.port
    except ValueError as error:
        raise UsageError(f"the endpoint is no address: {error}", hint="Write https://host/v1.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError("the endpoint is no http or https address", hint="Write https://host/v1.")
    # The address is kept in the run's log, so that a resume finds it; nothing secret may stand in it.
    if "@" in parts.netloc or parts.fragment or sanitise(address) != address:
        raise UsageError(
            f"the endpoint at {parts.hostname} carries credentials",
            hint="Put the key into the environment: --key-env NAME.",
        )
    return parts


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class EndpointAsker:
    """Asks one endpoint, each question in a request of its own.

    `environment` gives the proxies (`https_proxy`, `no_proxy`); nothing else of it is used here.
    """

    def __init__(self, endpoint: Endpoint, environment: Mapping[str, str]) -> None:
        self._endpoint = endpoint
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler(_proxies(endpoint, environment)), _NoRedirect()
        )
        self.target = Target(endpoint.provider, endpoint.model)
        self.protocol: str = endpoint.speech
        self.host = endpoint.host
        self.works_in_folder = False
        self.left_out: tuple[str, ...] = ()

    def ask(self, question: str, folder: Path | None, context: ItemContext) -> Answer:
        """Returns the completion; raises ItemFailed, or Unreached for the network."""
        request = _make_request(self._endpoint, question)
        status, body = _within(context, lambda: self._exchange(request, context))
        if status != 200:
            raise _refused(status, body, self.host)
        return _read_answer(self._endpoint.speech, body, self.host)

    def _exchange(self, request: urllib.request.Request, context: ItemContext) -> tuple[int, bytes]:
        limit = max(0.1, min(context.remaining_s(), _SOCKET_S))
        try:
            with self._opener.open(request, timeout=limit) as response:
                body, whole = response.read(MAX_ANSWER_BYTES + 1), response.getheader("Content-Length") or ""
                if response.length and len(body) <= MAX_ANSWER_BYTES:
                    reason = f"{self.host} broke off its answer after {len(body)} bytes of {whole}"
                    raise ItemFailed("provider", reason)
                return response.status, body
        except urllib.error.HTTPError as error:
            with error:
                body = error.read(65_536)
                pause = _pause(error.headers.get("Retry-After"))
            if error.code in (408, 409, 425, 429) or error.code >= 500:
                raise Unreached(_said(error.code, body, self.host), pause_s=pause) from None
            return error.code, body
        except TimeoutError:
            raise Unreached(f"{self.host} did not answer in time", classification="timeout") from None
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            why = getattr(error, "reason", None) or error
            raise Unreached(f"{self.host} cannot be reached: {type(error).__name__}: {why}") from None


def _proxies(endpoint: Endpoint, environment: Mapping[str, str]) -> dict[str, str]:
    found = {
        name.lower().removesuffix("_proxy"): value
        for name, value in sorted(environment.items())
        if name.lower().endswith("_proxy") and value
    }
    host = urllib.parse.urlsplit(endpoint.url).netloc
    if endpoint.host.partition(":")[0] in _LOOPBACK or urllib.request.proxy_bypass_environment(host, found):  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        return {}
    return {scheme: address for scheme, address in found.items() if scheme in ("http", "https")}


def _make_request(endpoint: Endpoint, question: str) -> urllib.request.Request:
    messages = [{"role": "user", "content": question}]
    body: dict[str, object] = {"model": endpoint.model, "messages": messages}
    headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "clew"}
    if endpoint.speech == "anthropic":
        base = endpoint.url.removesuffix("/v1")
        address, body["max_tokens"] = f"{base}/v1/messages", ANSWER_TOKENS
        headers |= {"anthropic-version": "2023-06-01", "x-api-key": endpoint.key}
    else:
        parts = urllib.parse.urlsplit(endpoint.url)
        address = parts._replace(path=parts.path.rstrip("/") + "/chat/completions").geturl()
        if endpoint.key:
            headers["Authorization"] = f"Bearer {endpoint.key}"
    data = json.dumps(body).encode()
    return urllib.request.Request(address, data, headers, method="POST")  # noqa: S310 - http and https only, checked


def _within(context: ItemContext, exchange: Callable[[], tuple[int, bytes]]) -> tuple[int, bytes]:
    """Runs an exchange in a thread: neither a dripping server nor a slow name lookup may outlive the item's time."""
    done: list[tuple[int, bytes] | BaseException] = []

    def run() -> None:
        try:
            done.append(exchange())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            done.append(error)

    thread = threading.Thread(target=run, name="clew-endpoint", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_POLL_S)
        if thread.is_alive():
            context.check()
    outcome = done[0]
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _pause(value: str | None) -> float:
    return float(value) if value is not None and value.isdecimal() else 0.0


def _said(status: int, body: bytes, host: str) -> str:
    text = body.decode("utf-8", "replace")
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = None
    if isinstance(told, dict):
        error = cast("dict[str, Any]", told).get("error")
        text = (
            str(cast("dict[str, Any]", error).get("message", error)) if isinstance(error, dict) else str(error or text)
        )
    return f"{host} answered {status}: {' '.join(text.split())[:200]}"


def _refused(status: int, body: bytes, host: str) -> ItemFailed:
    reason = _said(status, body, host)
    if 300 <= status < 400:
        return ItemFailed("configuration", f"{host} redirects elsewhere, and is not followed", ends_run=True)
    # A wrong key, model or address is wrong for every item; a request that is too large for this one alone.
    everywhere = status in (401, 402, 403, 404)
    return ItemFailed("configuration" if everywhere else "provider", reason, ends_run=everywhere)


def _read_answer(speech: Speech, body: bytes, host: str) -> Answer:
    if len(body) > MAX_ANSWER_BYTES:
        raise ItemFailed("provider", f"{host} answered with more than {MAX_ANSWER_BYTES} bytes")
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        shown = body[:80].decode("utf-8", "replace")
        raise ItemFailed("provider", f"{host} answered with what is no completion: {shown!r}")
    members = cast("dict[str, Any]", told)
    text = _anthropic_text(members) if speech == "anthropic" else _openai_text(members)
    usage = _usage(members.get("usage"))
    if not text:
        raise ItemFailed("provider", f"{host} answered without a text", usage=usage)
    model = members.get("model")
    return Answer(text, usage, model if isinstance(model, str) else "")


def _openai_text(told: dict[str, Any]) -> str:
    choices = told.get("choices")
    try:
        content = cast("Any", choices)[0]["message"]["content"]
    except (TypeError, KeyError, IndexError):
        return ""
    return content if isinstance(content, str) else _text_parts(content)


def _anthropic_text(told: dict[str, Any]) -> str:
    return _text_parts(told.get("content"))


def _text_parts(parts: object) -> str:
    if not isinstance(parts, list):
        return ""
    blocks = [cast("dict[str, Any]", part) for part in cast("list[object]", parts) if isinstance(part, dict)]
    return "".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text")


def _usage(value: object) -> Usage:
    told = cast("dict[str, Any]", value) if isinstance(value, dict) else {}

    def count(*names: str) -> int:
        found = [told.get(name) for name in names]
        return sum(n for n in found if isinstance(n, int) and n > 0)

    if "prompt_tokens" in told:
        return Usage(count("prompt_tokens"), count("completion_tokens"))
    read = count("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return Usage(read, count("output_tokens"))
