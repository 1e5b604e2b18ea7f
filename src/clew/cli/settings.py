"""The global options, and where their values come from: the command line, then the environment, then `clew.toml`.

`Surroundings` is everything that clew takes from outside; only `main.py` looks there, and tests pass their own.
`Settings` is what one command works with. A wrong value in a file or a variable is a usage error that names the
place. Opens no store and reads no session. The values are named tuples: `clew --help` need not wait for msgspec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from clew.errors import UsageError

COLORS: Final = ("auto", "always", "never")
FILE_NAME: Final = "clew.toml"
TABLES: Final = ("review",)
"""Tables of the file that a verb reads itself, see run_settings.py."""


class GlobalOption(NamedTuple):
    """One option that every verb takes: its name, spellings, metavar (none for a flag), and help."""

    name: str
    spellings: tuple[str, ...]
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()


GLOBALS: Final = (
    GlobalOption(
        "root",
        ("--root",),
        "Folder that stands for your home: agents' homes are looked for and written there, and their own variables "
        "(such as CODEX_HOME) do not count.",
        "DIR",
    ),
    GlobalOption("data", ("--data",), "Folder of clew's own data.", "DIR"),
    GlobalOption("store", ("--store",), "Database for clew's records instead of the one in the data folder.", "URL"),
    GlobalOption("blobs", ("--blobs",), "Object store for what sessions hold; not in this version.", "URL"),
    GlobalOption("json", ("--json",), "JSON on standard output; a failure is one JSON object on standard error."),
    GlobalOption("color", ("--color",), "When to use colour.", "WHEN", COLORS),
    GlobalOption(
        "plain", ("--plain",), "As if the output were no terminal: no headings, colour or pager, nothing cut."
    ),
    GlobalOption("quiet", ("-q", "--quiet"), "No notes and no progress; failures are still told."),
    GlobalOption("verbose", ("-v", "--verbose"), "Say more, and show where an unexpected failure happened."),
)


class Surroundings(NamedTuple):
    """What clew finds around it: environment, folder, home, and the user's folders for settings, data and state."""

    env: Mapping[str, str]
    cwd: Path
    home: Path
    config_folder: Callable[[], Path]
    data_folder: Callable[[], Path]
    state_folder: Callable[[], Path] | None = None


class Settings(NamedTuple):
    """The values of the global options for one command. `root` is None when the user's own home counts."""

    data: Path
    root: Path | None = None
    store: str | None = None
    blobs: str | None = None
    json: bool = False
    color: str = "auto"
    plain: bool = False
    quiet: bool = False
    verbose: bool = False
    warnings: tuple[str, ...] = ()
    """What the settings file says and nobody understands: told once, not fatal."""
    state: Path | None = None
    """The user's folder for what is remembered beside the data, and does not go back to a backup with it."""


def load_settings(given: Mapping[str, Any], around: Surroundings) -> Settings:
    """Returns the settings from options, environment and file, in that order; raises UsageError."""
    for name in ("root", "data"):
        if given.get(name) == "":
            raise UsageError(
                f"--{name} names no folder", hint="An empty name would mean your own home; leave it out if you do."
            )
    root_text = given.get("root") or around.env.get("CLEW_ROOT")
    root = _folder(root_text, around) if root_text else None
    file = (root / ".config" / "clew" if root else around.config_folder()) / FILE_NAME
    values, warnings = _read_file(file)
    values |= _read_environment(around.env) | {name: value for name, value in given.items() if value is not None}
    if root is None and values.get("root"):
        root = _folder(values["root"], around)
    data = values.get("data")
    if data:
        data_folder = _folder(data, around)
    else:
        data_folder = root / ".local" / "share" / "clew" if root else around.data_folder()
    return Settings(
        data_folder,
        root,
        values.get("store") or None,
        values.get("blobs") or None,
        values.get("json", False),
        values.get("color", "auto"),
        values.get("plain", False),
        values.get("quiet", False),
        values.get("verbose", False),
        warnings,
        root / ".local" / "state" / "clew" if root else around.state_folder() if around.state_folder else None,
    )


def _folder(text: str, around: Surroundings) -> Path:
    if text == "~" or text.startswith("~/"):
        text = str(around.home) + text[1:]
    return around.cwd / text


def _read_environment(env: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for option in GLOBALS:
        name = f"CLEW_{option.name.upper()}"
        text = env.get(name, "")
        if not text:
            continue
        if option.metavar:
            values[option.name] = _checked(option, text, f"the variable {name}")
        else:
            values[option.name] = text.lower() not in ("0", "no", "false", "off")
    return values


def _read_file(path: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}, ()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="Mend or remove the file.", path=str(path)) from error
    import tomllib

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}", hint="Mend or remove the file.", path=str(path)) from error
    known = {option.name: option for option in GLOBALS}
    unknown = [name for name in table if name not in known and name not in TABLES]
    warnings = tuple(f"{path}: nothing here is called {name!r}; it is left aside" for name in unknown)
    values = {name: _checked(known[name], value, str(path)) for name, value in table.items() if name in known}
    return values, warnings


def _checked(option: GlobalOption, value: Any, place: str) -> Any:
    """Returns a value of the right kind, or raises UsageError with the place it came from."""
    if option.choices and value not in option.choices:
        raise UsageError(f"{place}: {option.name} is one of {', '.join(option.choices)}, not {value!r}")
    wanted, word = (str, "a text") if option.metavar else (bool, "true or false")
    if type(value) is not wanted:
        raise UsageError(f"{place}: {option.name} is {word}, not {value!r}")
    return value
