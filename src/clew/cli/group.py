"""Click, bent to clew's rules: verbs loaded when used, global options on either side of them, failures as statuses.

Promises that the help of `clew` loads no verb, and that whatever happens ends in one exit status of the stable
interface and, for a failure, one text on standard error. Commands are written with `command` and `verb` from here.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, NoReturn, ParamSpec, TypeVar, cast

import click

from clew.cli.ending import INTERRUPTED, ReaderGone
from clew.cli.settings import GLOBALS, GlobalOption, Settings, Surroundings, load_settings
from clew.errors import ClewError, UsageError

if TYPE_CHECKING:
    from clew.cli.failure import Failure
    from clew.cli.screen import Screen
    from clew.verbs.context import Context

HOME_VARIABLES = (
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "HERMES_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
)
"""What would lead an agent to another home than the root that was named."""

P = ParamSpec("P")
R = TypeVar("R")


class State:
    """What one invocation knows while it is parsed: its surroundings, and the global options given so far."""

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self.given: dict[str, Any] = {}
        self._settings: Settings | None = None

    def settings(self) -> Settings:
        """Returns the settings; raises UsageError when a file or a variable is wrong."""
        if self._settings is None:
            self._settings = load_settings(self.given, self.around)
        return self._settings


class Invocation:
    """What a command works with: settings, screen, surroundings, and the context for its verb."""

    def __init__(self, state: State) -> None:
        self.settings = state.settings()
        self.around = state.around
        self.screen = _open_screen(self.settings, state.around)
        for warning in self.settings.warnings:
            self.screen.warn(warning)

    def shorten(self, path: str) -> str:
        """Returns a path as people write it: with `~` for their home, where no other root was named."""
        home = str(self.around.home)
        if self.settings.root is None and (path == home or path.startswith(home + "/")):
            return "~" + path[len(home) :]
        return path

    @contextmanager
    def context(self) -> Generator[Context]:
        """Opens the verbs' context; stores that were opened are closed afterwards."""
        from clew.formats.protocol import Home
        from clew.platform.clock import SystemClock
        from clew.verbs.context import Context

        settings, around = self.settings, self.around
        home = Home(settings.root) if settings.root else Home(around.home, around.env)
        env = agent_environment(settings, around)
        with Context(
            home,
            settings.data,
            cwd=around.cwd,
            clock=SystemClock(),
            env=env,
            store_url=settings.store,
            blobs_url=settings.blobs,
            state=settings.state,
            progress=self.screen.progress,
        ) as ctx:
            yield ctx


def agent_environment(settings: Settings, around: Surroundings) -> dict[str, str]:
    """Returns the environment of an agent that clew becomes: with a root, that is its home, and nothing else counts."""
    if settings.root is None:
        return dict(around.env)
    kept = {name: value for name, value in around.env.items() if name not in HOME_VARIABLES}
    return {**kept, "HOME": str(settings.root)}


def _open_screen(settings: Settings, around: Surroundings) -> Screen:
    from clew.cli.screen import Screen

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    return Screen(sys.stdout, sys.stderr, settings, around.env)


def verb(function: Callable[Concatenate[Invocation, P], R]) -> Callable[P, R]:
    """Gives a command's function its invocation as first argument."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        state = click.get_current_context().find_object(State)
        assert state is not None, "the group makes the state before any command runs"
        return function(Invocation(state), *args, **kwargs)

    return run


class _GlobalParameter(click.Option):
    """A global option: it may stand before or after the verb, and is remembered for the whole invocation."""


def _remember(ctx: click.Context, parameter: click.Parameter, value: object) -> None:
    state = ctx.find_object(State)
    if value not in (None, False) and state is not None:
        state.given[str(parameter.name)] = value


def _make_parameter(option: GlobalOption) -> _GlobalParameter:
    kind: dict[str, Any]
    if option.choices:
        kind = {"type": click.Choice(option.choices), "metavar": option.metavar}
    elif option.metavar == "DIR":
        kind = {"type": click.Path(), "metavar": option.metavar}
    elif option.metavar:
        kind = {"type": str, "metavar": option.metavar}
    else:
        kind = {"is_flag": True}
    help_text = option.help + (f" One of {', '.join(option.choices)}." if option.choices else "")
    return _GlobalParameter(
        list(option.spellings) + ([option.name] if len(option.spellings) == 1 else []),
        help=help_text,
        expose_value=False,
        callback=_remember,
        **kind,
    )


def _own_parameters(command: click.Command) -> list[click.Parameter]:
    return [parameter for parameter in command.params if not isinstance(parameter, _GlobalParameter)]


class Command(click.Command):
    """A verb: takes the global options too; its help shows only its own and where the others stand."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_make_parameter(option) for option in GLOBALS)

    @property
    def own_params(self) -> list[click.Parameter]:
        """Returns the parameters of this verb alone."""
        return _own_parameters(self)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the verb's own options, then one line on the global ones."""
        rows = [row for p in self.own_params if (row := p.get_help_record(ctx)) is not None]
        rows.append(("-h, --help", "Show this text."))
        with formatter.section("Options"):
            formatter.write_dl(rows)
        formatter.write_paragraph()
        formatter.write_text("Global options, such as --json and --root, may stand here too: `clew --help`.")


class RestCommand(Command):
    """A verb whose words after `--` are handed on as they are; they are in `ctx.meta["clew.rest"]`."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Returns the pieces of the usage line, with the words behind `--`."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGS]"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Takes off what stands behind the first `--`."""
        if "--" in args:
            at = args.index("--")
            ctx.meta["clew.rest"] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)


class Lazy(NamedTuple):
    """A verb that is not loaded yet: where it is, its line in the help, and the heading it stands under."""

    module: str
    summary: str
    section: str
    optional: bool = False
    """Whether its module may be missing: the verb is then not offered."""

    @property
    def here(self) -> bool:
        """Tells whether the verb can be loaded; asks the disk only for optional ones."""
        if not self.optional:
            return True
        from importlib.util import find_spec

        return find_spec(self.module) is not None


class VerbGroup(click.Group):
    """A group of verbs that names a near one for a wrong word."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Returns the verb that the first word names; raises UsageError with the nearest one."""
        name = args[0]
        command = self.get_command(ctx, name)
        if command is None and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(name, self.list_commands(ctx), 1, 0.5)
            path = ctx.command_path
            hint = f"Did you mean `{path} {near[0]}`?" if near else f"`{path} --help` lists the verbs."
            raise UsageError(f"{path} has no verb {name!r}", hint=hint)
        return (name if command else None), command, args[1:]


class SubGroup(VerbGroup):
    """A verb that is itself a group (`clew store`)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("no_args_is_help", False)
        super().__init__(*args, **kwargs)
        self.params.extend(_make_parameter(option) for option in GLOBALS)

    @property
    def own_params(self) -> list[click.Parameter]:
        """Returns the parameters of this verb alone."""
        return _own_parameters(self)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the verbs below, then one line on the global options."""
        self.format_commands(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text("Global options, such as --json and --root, may stand here too: `clew --help`.")


class Root(VerbGroup):
    """`clew` itself: a table of verbs, loaded when they are named, and the border where errors become statuses."""

    def __init__(self, *args: Any, table: dict[str, Lazy], around: Callable[[], Surroundings], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = table
        self._around = around
        self.params.extend(_make_parameter(option) for option in GLOBALS)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the verbs that are here, in the order of the help."""
        return [name for name, lazy in self.table.items() if lazy.here]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Loads a verb; None when there is none of that name."""
        lazy = self.table.get(cmd_name)
        if lazy is None or not lazy.here:
            return None
        from importlib import import_module

        return cast(click.Command, import_module(lazy.module).COMMAND)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the verbs under their headings, from the table alone."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            sections.setdefault(self.table[name].section, []).append((name, self.table[name].summary))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows, col_spacing=4)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the verbs first: they are what people look for."""
        self.format_commands(ctx, formatter)
        rows = [row for p in self.get_params(ctx) if (row := p.get_help_record(ctx)) is not None]
        with formatter.section("Options, before or after the verb"):
            formatter.write_dl(rows)

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = "clew", **extra: Any) -> NoReturn:  # type: ignore[override]
        """Runs a command line and exits with its status; never returns and never shows a traceback unasked."""
        extra.pop("standalone_mode", None)
        around = extra.pop("obj", None) or self._around()
        words = list(sys.argv[1:] if args is None else args)
        state = State(around)
        self._main_shell_completion({"obj": state}, prog_name or "clew", extra.pop("complete_var", None))
        sys.exit(_guard(lambda: self._run(words, prog_name or "clew", state), words, state))

    def _run(self, words: list[str], prog_name: str, state: State) -> int:
        try:
            with self.make_context(prog_name, words, obj=state) as ctx:
                self.invoke(ctx)
                sys.stdout.flush()
        except click.exceptions.Exit as end:
            sys.stdout.flush()
            return end.exit_code
        return 0


def _guard(run: Callable[[], int], words: list[str], state: State) -> int:
    """Runs a command and turns whatever it raises into a status, told on standard error."""
    try:
        return run()
    except (ReaderGone, BrokenPipeError):
        _hush()
        return 0
    except (KeyboardInterrupt, click.Abort):
        failure, trace = _interrupted(), None
    except Exception as error:  # noqa: BLE001 - the outermost loop: whatever is left becomes a status here
        failure, trace = _failure(error, state)
    _tell(failure, trace, words, state)
    return failure.status


def _interrupted() -> Failure:
    from clew.cli.failure import Failure

    return Failure(INTERRUPTED, "interrupted", "interrupted")


def _failure(error: Exception, state: State) -> tuple[Failure, Exception | None]:
    from clew.cli.failure import Failure, failure_of, failure_of_defect, failure_of_system

    if isinstance(error, ClewError):
        return failure_of(error), None
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx is not None else "clew"
        return Failure(2, "usage", error.format_message(), f"`{path} --help` says how."), None
    if isinstance(error, click.ClickException):
        return Failure(error.exit_code, "failed", error.format_message()), None
    if isinstance(error, OSError):
        return failure_of_system(error), error
    return failure_of_defect(error, verbose=bool(state.given.get("verbose"))), error


def _tell(failure: Failure, error: Exception | None, words: list[str], state: State) -> None:
    """Writes a failure on standard error, as JSON where that was asked for, even by a line that could not be parsed."""
    from clew.cli.failure import as_json, as_lines

    try:
        settings = state.settings()
    except ClewError:
        settings = Settings(data=state.around.cwd)
    before_rest = words[: words.index("--")] if "--" in words else words
    as_object = settings.json or "--json" in before_rest
    try:
        sys.stdout.flush()
    except OSError:  # what could not be written cannot be written later either
        _hush()
    try:
        screen = _open_screen(settings, state.around)
        screen.flush()
        if as_object:
            screen.tell(as_json(failure))
            return
        for line in as_lines(failure, screen.errors):
            screen.tell(line)
        if error is not None and settings.verbose:
            import traceback

            screen.tell(screen.errors.safe("".join(traceback.format_exception(error)).rstrip()))
    except ReaderGone:
        _hush()


def _hush() -> None:
    """Points standard output nowhere, so that the interpreter's last flush into a closed pipe says nothing."""
    import os

    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass
