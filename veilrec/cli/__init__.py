"""The command line: ``veilrec``. Heavy imports wait inside the commands, so that help answers at once."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from veilrec import __version__
from veilrec.cli import attack, audit, compare, data, demo, lists, report, reproduce, runs
from veilrec.cli.arguments import launched
from veilrec.errors import BadInput, ClientFailed, Elsewhere, NoMemory, VeilrecError, code_of, no_memory

__all__ = ["app", "main"]

FAILED, BAD_INPUT, INTERRUPTED, PIPE_CLOSED = 1, 2, 130, 141
USAGE: Any = typer.BadParameter.__mro__[2]  # the base of all that the parser of arguments complains about

app = typer.Typer(
    name="veilrec",
    help="Train recommenders on data that stays on people's devices, see what leaks, and make it forget.",
    epilog="Start with `veilrec demo`: it needs no data and no network.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("run")(runs.run)
app.command("attack")(attack.attack)
app.command("evaluate")(runs.evaluate)
app.command("recommend")(runs.recommend)
app.command("audit")(audit.audit)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)
app.command("list")(lists.list_entries)
app.add_typer(data.app, name="data")
app.add_typer(lists.config, name="config")


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Say the version, or help where no command is named."""
    if version:
        print(f"veilrec {__version__}")
        raise typer.Exit
    if launched() and context.invoked_subcommand != "run":
        what = f"`veilrec {context.invoked_subcommand}` does its work in one process"
        raise BadInput("torchrun", what, "start it without torchrun; `veilrec run` is what several can share")
    if context.invoked_subcommand is None:
        print(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; whatever happens becomes an exit code and, where something is wrong, one line."""
    code = _main(arguments)
    if (links := sys.modules.get("veilrec.engine.ranks.links")) is not None:
        links.leave(code)
    return code


def _main(arguments: Sequence[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a title may have letters that the terminal lacks
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
        return code
    except VeilrecError as error:
        return _told(error)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at exit
        return PIPE_CLOSED
    except Exception as error:
        if no_memory(error):
            return _say(str(NoMemory()), NoMemory.code)
        if isinstance(error, OSError) and error.filename is not None:
            fix = "check the path, its permissions and the space left"
            return _say(f"{error.filename}: {error.strerror}; {fix}", BAD_INPUT)
        traceback.print_exc()
        return _say("this is a bug of veilrec; please report it with the lines above", FAILED)


def _invoke(arguments: Sequence[str] | None) -> int:
    command: Any = typer.main.get_command(app)
    try:
        code = command.main(args=arguments, prog_name="veilrec", standalone_mode=False)
    except USAGE as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "veilrec"
        return _say(f"{error.format_message().rstrip('.')}; see `{path} --help`", BAD_INPUT)
    except SystemExit:  # how the parser leaves when nobody reads the output any more
        return PIPE_CLOSED
    return code if isinstance(code, int) else 0


def _told(error: VeilrecError) -> int:
    """One line for an error that veilrec knows; a device that failed for a reason unknown shows where."""
    if isinstance(error, Elsewhere) and error.quiet:
        return error.code  # another process says it
    cause = error.__cause__
    if isinstance(error, ClientFailed) and cause is not None and code_of(cause) == FAILED:
        traceback.print_exception(cause)
    return _say(str(error), error.code)


def _say(message: str, code: int) -> int:
    sys.stderr.write(f"veilrec: error: {' '.join(message.split())}\n")
    return code
