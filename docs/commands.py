"""The page of commands, written from the program itself: every command with its arguments and its options.

mkdocs calls `on_files` (see mkdocs.yml); ``python -m docs.commands`` prints the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from veilrec import errors
from veilrec.cli import app

PROGRAM = "veilrec"
NOT_TOLD = {"help", "install_completion", "show_completion"}  # what every command has, and shells' own


def page() -> str:
    """The whole page."""
    parts = [
        "# Commands",
        f"Everything that `{PROGRAM}` does from a shell, as `{PROGRAM} COMMAND --help` tells it. "
        "Errors are one line: where, what, and what to do.",
        "| Command | What it does |\n| --- | --- |",
    ]
    told = list(commands(typer.main.get_command(app), PROGRAM))
    parts[-1] += "".join(f"\n| [`{name}`](#{anchor(name)}) | {first(one)} |" for name, one in told)
    parts += [section(name, one) for name, one in told]
    parts += [
        "## How a command ends",
        "0 is done. Any other code comes with one line that says what is wrong:",
        "\n".join(
            ["| Code | What it was |", "| --- | --- |", *(f"| {code} | {what} |" for code, what in codes())]
        ),
    ]
    return "\n\n".join(parts) + "\n"


def codes() -> list[tuple[int, str]]:
    """Exit codes with what raises them, by the docstrings of the errors."""
    listed = (getattr(errors, name) for name in errors.__all__)
    kinds = [one for one in listed if isinstance(one, type) and isinstance(vars(one).get("code"), int)]
    told = sorted((kind.code, text(kind.__doc__)) for kind in kinds if kind is not errors.VeilrecError)
    return [*told, (errors.VeilrecError.code, "Anything that nobody foresaw; please report it.")]


def commands(one: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its whole name; those of a group after each other."""
    inner = getattr(one, "commands", None)
    if inner is None:
        yield name, one
        return
    for word, below in inner.items():
        yield from commands(below, f"{name} {word}")


def section(name: str, one: Any) -> str:
    """One command: its purpose, how it is called, and a table of what it takes."""
    given = [param for param in one.params if param.name not in NOT_TOLD and not param.hidden]
    told = [param for param in given if param.param_type_name == "argument"]
    words = " ".join([name, *(place(param) for param in told), *(["[OPTIONS]"] if given != told else [])])
    lines = [f"## {name}", text(one.help), f"```text\n{words}\n```"]
    if given:
        rows = [f"| {spelled(param)} | {text(param.help)}{default(param)} |" for param in given]
        lines.append("\n".join(["| Takes | Meaning |", "| --- | --- |", *rows]))
    return "\n\n".join(lines)


def first(one: Any) -> str:
    """The first sentence of a command's help."""
    return re.split(r"(?<=[.;:]) ", text(one.help))[0].rstrip(";:")


def place(param: Any) -> str:
    """An argument as help writes it."""
    name = (param.metavar or param.name.upper()).rstrip("….") + ("…" if param.nargs == -1 else "")
    return name if param.required else f"[{name}]"


def spelled(param: Any) -> str:
    """An argument or an option as it is typed, inside a table."""
    if param.param_type_name == "argument":
        return f"`{place(param)}`"
    value = "" if param.is_flag else f" {param.metavar or param.type.name.upper()}"
    return "<br>".join(f"`{flag}{value}`" for flag in (*param.opts, *param.secondary_opts))


def default(param: Any) -> str:
    """What an option is without it, where that is worth a word."""
    value = param.default
    if param.required or callable(value) or value in (None, False, True, "", (), []):
        return ""
    return f" Default: `{value}`."


def text(said: str | None) -> str:
    """Help as one paragraph of Markdown."""
    return " ".join((said or "").replace("\b", "").split()).replace("|", "\\|").replace("<", "&lt;")


def anchor(name: str) -> str:
    """The address of a heading on its page."""
    return name.replace(" ", "-")


def on_files(files: Any, config: Any) -> Any:
    """Add the page to the documentation: the hook that mkdocs calls."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "commands.md", content=page()))
    return files


if __name__ == "__main__":
    print(page())
