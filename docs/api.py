"""The page of Python names: what is imported from the top, the contracts, and what each takes, by docstrings.

Nothing is imported: names are read from the sources, and mkdocstrings reads the docstrings there as well.
mkdocs calls `on_files` (see mkdocs.yml); ``python docs/api.py`` prints the page.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1] / "veilrec"
CONTRACTS = {  # what a method of one's own derives from, and what it is handed
    "Your own model": ["model.Recommender"],
    "Your own defence": ["defence.Defence"],
    "Your own protocol": ["protocol.Protocol"],
    "Your own attack": ["attack.Attack"],
    "Your own eraser": ["eraser.Eraser"],
    "What a run leaves": ["result.Result", "result.Utility", "rounds.Federation"],
    "The report": ["report.render", "report.table", "report.to_csv"],
    "Errors": ["errors.BadInput", "errors.Corrupted", "errors.Interrupted", "errors.ClientFailed"],
}


def page() -> str:
    """The whole page; mkdocstrings puts signatures and docstrings where a name stands after three colons."""
    told = [name for names in CONTRACTS.values() for name in names]
    first = [place for place in homes() if place not in told]
    parts = [
        "# Python",
        "`from veilrec import Experiment` and the like: what is in the top namespace comes first, then the "
        "contracts that a method of your own keeps to. Every entry of the catalogues is a class with keyword "
        "arguments; [the catalogue](catalogue.md) lists them.",
        "## From the top",
        *map(block, first),
    ]
    for title, names in CONTRACTS.items():
        parts += [f"## {title}", *map(block, names)]
    return "\n\n".join(parts) + "\n"


def homes() -> Iterator[str]:
    """The public names with the modules that they live in, as ``veilrec/__init__.py`` has them."""
    for node in ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name("HOMES")], value=ast.Dict() as value):
                yield from (f"{home}.{name}" for name, home in ast.literal_eval(value).items())


def block(place: str) -> str:
    """The words that mkdocstrings replaces by one name's documentation."""
    return f"::: veilrec.{place}"


def on_files(files: Any, config: Any) -> Any:
    """Add the page to the documentation: the hook that mkdocs calls."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "api.md", content=page()))
    return files


if __name__ == "__main__":
    print(page())
