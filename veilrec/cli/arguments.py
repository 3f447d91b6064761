"""Arguments that several commands share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from veilrec.errors import BadInput

__all__ = [
    "Data",
    "DataDir",
    "Device",
    "Json",
    "Plugins",
    "Quiet",
    "RecipePath",
    "Run",
    "Runs",
    "Seed",
    "Sets",
    "check_device",
    "load_plugins",
    "print_json",
]

RecipePath = Annotated[Path, typer.Argument(metavar="RECIPE", help="A TOML file.", show_default=False)]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.", show_default=False)]
Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUN…", help="Run directories, or folders of several.", show_default=False),
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
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="Where datasets are looked for first."),
]
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin", metavar="FILE", help="A Python file that adds entries to the catalogue; repeatable."
    ),
]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, or one of several as in cuda:1.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


def load_plugins(paths: list[Path] | None) -> None:
    """Run the plugin files of this command, and forget those of an earlier one in the same process."""
    from veilrec.recipe import catalogue, plugins

    plugins.forget()
    for path in paths or ():
        catalogue.load_plugin(path)


def print_json(value: Any) -> None:
    """Print for machines."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def check_device(device: str) -> None:
    """Refuse a device that is not there."""
    import torch

    try:
        kind = torch.device(device)
    except RuntimeError as error:
        raise BadInput("--device", f'"{device}" is no device', "use cpu or cuda") from error
    if kind.type not in ("cpu", "cuda"):
        raise BadInput("--device", f'"{device}" is not supported', "use cpu or cuda")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind.type == "cuda" and (kind.index or 0) >= count:
        here = f"this machine has {count} CUDA devices" if count else "torch finds no CUDA device here"
        raise BadInput("--device", here, "use --device cpu")
