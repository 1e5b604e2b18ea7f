"""Who reviews and how, where it is not typed: the environment (`CLEW_REVIEW_...`), then `[review]` of `clew.toml`.

    [review]
    agent = "claude"       or provider = "openai"
    model = "..."
    endpoint, key_env      of a provider
    jobs, timeout, budget

Each value comes from the first place that has it, but for one rule: a place that names another agent or provider than
the one that is asked says nothing about its model, address and key. A wrong value is a usage error that names where.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from clew.errors import UsageError

TABLE = "review"

_TEXTS = ("agent", "provider", "model", "endpoint", "key_env")
_NUMBERS: dict[str, tuple[float, float]] = {"jobs": (1, 64), "timeout": (1, 1e7), "budget": (1, 1e15)}
"""The bounds of numbers; an endless one could not be kept in a log, and so not be resumed."""


class ReviewSettings(NamedTuple):
    """What holds for one review: who is asked (at most one of agent and provider) and how; 0 where nobody says."""

    agent: str = ""
    provider: str = ""
    model: str = ""
    endpoint: str = ""
    key_env: str = ""
    jobs: int = 0
    timeout: float = 0
    budget: int = 0
    warnings: tuple[str, ...] = ()
    """What the file says and nobody understands: told once, not fatal."""


def review_settings(words: Mapping[str, Any], env: Mapping[str, str], file: Path) -> ReviewSettings:
    """Returns what was typed, else what the environment says, else the file; raises UsageError."""
    table, warnings = _read_file(file)
    places = (_check("the command line", words), _read_environment(env), table)
    naming = [place for place in places if place.get("agent") or place.get("provider")]
    asked = {name: str(naming[0].get(name, "")) if naming else "" for name in ("agent", "provider")}
    fitting = [place for place in places if _names_no_other(place, asked)]
    texts = {name: str(_first(fitting, name, "")) for name in ("model", "endpoint", "key_env")}
    numbers = {name: _first(places, name, 0) for name in _NUMBERS}
    return ReviewSettings(**asked, **texts, **numbers, warnings=warnings)


def _names_no_other(place: Mapping[str, Any], asked: Mapping[str, str]) -> bool:
    named = {name: place[name] for name in ("agent", "provider") if place.get(name)}
    return not named or all(asked[name] == value for name, value in named.items())


def _first(places: Sequence[Mapping[str, Any]], name: str, nothing: Any) -> Any:
    return next((place[name] for place in places if place.get(name)), nothing)


def _read_environment(env: Mapping[str, str]) -> Mapping[str, Any]:
    values: dict[str, Any] = {}
    for name in (*_TEXTS, *_NUMBERS):
        variable = f"CLEW_REVIEW_{name.upper()}"
        text = env.get(variable, "")
        if text and name in _NUMBERS:
            try:
                values[name] = float(text) if name == "timeout" else int(text)
            except ValueError:
                raise UsageError(f"the variable {variable}: {name} is a number, not {text!r}") from None
        elif text:
            values[name] = text
    return _check("the environment (CLEW_REVIEW_...)", values)


def _read_file(path: Path) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    try:
        # What is wrong with the file as a whole was told when the global settings were read from it.
        table: Any = tomllib.loads(path.read_text("utf-8")).get(TABLE, {})
    except (OSError, ValueError):
        return {}, ()
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {TABLE} is a table, not {table!r}", path=str(path))
    values, place = cast("dict[str, Any]", table), f"{path}, [{TABLE}]"
    unknown = [name for name in values if name not in _TEXTS and name not in _NUMBERS]
    return _check(place, values), tuple(
        f"{place}: nothing here is called {name!r}; it is left aside" for name in unknown
    )


def _check(place: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
    known = {name: value for name, value in values.items() if name in _TEXTS or name in _NUMBERS}
    for name, value in known.items():
        if name in _TEXTS and type(value) is not str:
            raise UsageError(f"{place}: {name} is a text, not {value!r}")
        if name in _NUMBERS:
            least, most = _NUMBERS[name]
            number: Any = value
            kinds = (int, float) if name == "timeout" else (int,)
            if type(number) not in kinds or not least <= number <= most:
                raise UsageError(f"{place}: {name} is a number from {least:g} to {most:g}, not {value!r}")
    if known.get("agent") and known.get("provider"):
        raise UsageError(f"{place} names both an agent and a provider", hint="Leave one of them out.")
    return known
