"""The command line: ``veilrec``. Heavy imports wait inside the commands, so that help answers at once."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from veilrec import __version__
from veilrec.base import process
from veilrec.cli import attack, audit, compare, data, demo, lists, report, reproduce, runs, unlearn, verify
from veilrec.cli.arguments import launched
from veilrec.errors import BadInput, Interrupted

__all__ = ["app", "main"]

TWICE = re.compile(r"( Did you mean [^?]+\?)\1+")  # both parsers below each other have the same idea
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
app.command("unlearn")(unlearn.unlearn)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("verify")(verify.verify)
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
    code = process.run(lambda: _invoke(arguments))
    if (links := sys.modules.get("veilrec.engine.ranks.links")) is not None:
        links.leave(code)
    return code


def _invoke(arguments: Sequence[str] | None) -> int:
    process.check_text(sys.argv[1:] if arguments is None else arguments)
    command: Any = typer.main.get_command(app)
    try:
        code = command.main(args=arguments, prog_name="veilrec", standalone_mode=False)
    except USAGE as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "veilrec"
        said = TWICE.sub(r"\1", error.format_message()).rstrip(".")
        return process.say(f"{said}; see `{path} --help`", BadInput.code)
    except SystemExit:  # how the parser leaves when nobody reads the output any more
        return process.PIPE_CLOSED
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    if code == Interrupted.code:  # what the parser makes of a KeyboardInterrupt
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0
