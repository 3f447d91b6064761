"""Arguments that several commands share."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from veilrec.errors import BadInput

__all__ = [
    "Borders",
    "ByPosition",
    "Columns",
    "Controls",
    "Data",
    "DataDir",
    "Device",
    "Encoding",
    "Escape",
    "Header",
    "Id",
    "Ids",
    "Json",
    "Plugins",
    "Quiet",
    "RecipePath",
    "Run",
    "Runs",
    "Seed",
    "Separator",
    "Sets",
    "Tensor",
    "Users",
    "VectorsId",
    "borders_of",
    "follows",
    "launched",
    "load_plugins",
    "print_json",
]


def launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether ``torchrun`` started this process beside others.

    Raises:
        BadInput: Where variables that it sets are not as it sets them.
    """
    if "TORCHELASTIC_RUN_ID" not in environment or environment.get("WORLD_SIZE", "1") == "1":
        return False
    for name in ("WORLD_SIZE", "RANK", "MASTER_PORT"):
        if not re.fullmatch(r"\d{1,9}", environment.get(name, ""), re.ASCII):
            what = f'"{environment[name]}" is no number' if name in environment else "is not set"
            raise BadInput(name, what, "start with torchrun, or unset TORCHELASTIC_RUN_ID")
    return True


def follows(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether ``torchrun`` started this process to help another one, which reads and writes."""
    return launched(environment) and environment["RANK"] != "0"


def load_plugins(paths: list[Path] | None) -> list[Path]:
    """Run the plugin files of this command, and forget those of an earlier one in the same process."""
    from veilrec.recipe import catalogue, plugins

    plugins.forget()
    for path in paths or ():
        catalogue.load_plugin(path)
    return paths or []


RecipePath = Annotated[Path, typer.Argument(metavar="RECIPE", help="A TOML file.", show_default=False)]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.", show_default=False)]
Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN…", help="Run directories, folders of several, or saved audits.", show_default=False
    ),
]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="PATH", help="The dataset of a run that was written without it."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one value, as in plan.rounds=50; repeatable."),
]
Seed = Annotated[int | None, typer.Option("--seed", help="One seed instead of the recipe's.")]
Controls = Annotated[
    bool,
    typer.Option(
        "--controls", help="Also attack made-up tables whose answers are known, and kept uploads by number."
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Where datasets are looked for first."),
]
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE",
        help="A Python file that adds entries to the catalogue; repeatable.",
        callback=load_plugins,
    ),
]
Borders = Annotated[
    list[str] | None, typer.Option(metavar="NAME=A,B", help="Cut numbers into groups: age=35,45; repeatable.")
]
Separator = Annotated[str | None, typer.Option("--sep", help="Separator of columns: tab, ',', '::' …")]
Header = Annotated[bool | None, typer.Option(help="Whether the first line has the names.")]
Columns = Annotated[
    str | None,
    typer.Option("--columns", metavar="NAME,…", help="Names of the columns of a file without a header."),
]
Encoding = Annotated[str | None, typer.Option(help="By default UTF-8.")]
Escape = Annotated[
    str | None, typer.Option(metavar="LETTER", help=r"What makes a quote none, as \ in MySQL's dumps.")
]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, or one of several as in cuda:1.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Users = Annotated[
    Path,
    typer.Option("--attributes", metavar="USERS", help="CSV or Parquet: a row a user.", show_default=False),
]
Id = Annotated[
    str | None,
    typer.Option("--id", metavar="NAME", help="The column of ids; by default its name, or the first."),
]
VectorsId = Annotated[str | None, typer.Option("--vectors-id", metavar="NAME", help="The same in VECTORS.")]
Ids = Annotated[
    Path | None, typer.Option("--ids", metavar="FILE", help="The ids of VECTORS, one a line or as npy.")
]
ByPosition = Annotated[bool, typer.Option("--by-position", help="Row n is the same user in both files.")]
Tensor = Annotated[
    str | None, typer.Option("--tensor", metavar="NAME", help="Which array of a safetensors or npz file.")
]


def borders_of(given: Sequence[str] | None) -> dict[str, tuple[float, ...]]:
    """Where to cut the numbers of which column, as somebody typed it.

    >>> borders_of(["age=35,45"])
    {'age': (35.0, 45.0)}
    """
    found = {}
    for entry in given or ():
        name, _, cuts = entry.partition("=")
        try:
            found[name.strip()] = tuple(float(cut) for cut in cuts.split(","))
        except ValueError as error:
            raise BadInput("--borders", f'"{entry}" is not NAME=NUMBERS', "as in age=35,45") from error
    return found


def print_json(value: Any) -> None:
    """Print for machines; letters that the output does not have become JSON's escapes."""
    every = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    print(json.dumps(value, indent=2, ensure_ascii=not every))
