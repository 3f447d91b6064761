"""A paper: ``paper.toml`` and ``reported.csv``, read and checked so that every name means something."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from veilrec.base import toml
from veilrec.errors import BadInput, nearest
from veilrec.recipe.settings import fit, options_of
from veilrec.reproduction.contents import Claim, Contents, Table
from veilrec.reproduction.facts import FACTS
from veilrec.reproduction.words import COMPONENTS, METRICS, SCORES

__all__ = ["FLOOR", "POPULARITY", "Paper", "papers"]

PAPER, REPORTED = "paper.toml", "reported.csv"
FLOOR, POPULARITY = "floor", "popularity"  # what a claim may name instead of a method
ALL, DEFAULT = "all", "default"


@dataclass(frozen=True)
class Paper(Contents):
    """A paper that was checked: every name in it means something.

    Attributes:
        folder: Where its files lie.
        figures: The rows of ``reported.csv``.
    """

    folder: Path = Path()
    figures: Sequence[Mapping[str, str]] = ()

    @classmethod
    def load(cls, name: str) -> Paper:
        """A paper by its name, or by the path of its folder.

        Raises:
            BadInput: With file, line and key, for whatever will not do.
        """
        folder = _folder(name)
        document = toml.read(folder / PAPER)
        try:
            values = fit("", document.values, options_of(Contents), "a paper")
            paper = cls(**values, folder=folder, figures=_figures(folder / REPORTED))
            for where, what, fix in _wrong(paper):
                raise BadInput(where, what, fix)
        except BadInput as error:
            raise _placed(document, error) from error
        return paper

    @property
    def name(self) -> str:
        """The name of its folder, which is what the command calls it."""
        return self.folder.resolve().name

    def chosen(self, names: Sequence[str]) -> dict[str, Table]:
        """Tables by name, each once, in the order of the paper; ``all`` for all of them.

        Raises:
            BadInput: With the nearest name, where there is none of a name.
        """
        for name in names:
            if name not in self.tables and name != ALL:
                raise BadInput("TABLE", f'{self.name} has no "{name}"', nearest(name, [*self.tables, ALL]))
        return {name: table for name, table in self.tables.items() if name in names or ALL in names}

    def changes(self, method: str, dataset: str) -> list[str]:
        """Changes of a method on a dataset to its recipe, as ``--set`` takes them; the last one holds."""
        one = self.methods[method]
        recipe = self.recipes[one.recipe]
        mine = [self.datasets[dataset].set, recipe.set, recipe.on.get(dataset, ())]
        mine += [one.set, one.on.get(dataset, ())]
        name = self.datasets[dataset].name or dataset
        return [f"data.name={name}", *(text for some in mine for text in some)]

    def seconds(self, method: str, dataset: str) -> float | None:
        """Seconds of the processor that a run takes, where somebody has measured it."""
        told = self.datasets[dataset].seconds
        return told.get(method, told.get(DEFAULT))

    def recipe(self, method: str) -> Path:
        """The file that a method is run from."""
        return self.folder / self.recipes[self.methods[method].recipe].file


def papers() -> dict[str, Path]:
    """The folders of the papers that come with veilrec, by name."""
    home = Path(__file__).resolve().parents[1]
    for place in (home / "papers", home.parent / "papers"):  # in a wheel, and in a checkout
        found = sorted(path.parent for path in place.glob(f"*/{PAPER}"))
        if found:
            return {folder.name: folder for folder in found}
    return {}


def _folder(name: str) -> Path:
    known = papers()
    if name in known:
        return known[name]
    if (Path(name) / PAPER).is_file():
        return Path(name)
    raise BadInput("PAPER", f'no paper "{name}"', nearest(name, known))


def _figures(path: Path) -> list[dict[str, str]]:
    """Facts out of the paper: one number a row."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for line, row in enumerate(rows, 2):
        try:
            float(row["value"])
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(path, "no number under value", "give one number a row", line=line) from error
    return rows


def _wrong(paper: Paper) -> Iterator[tuple[str, str, str]]:
    """Whatever will not do: where, what, and what to do."""
    for key, recipe in paper.recipes.items():
        if not (paper.folder / recipe.file).is_file():
            yield f"recipes.{key}.file", f"there is no {recipe.file} beside {PAPER}", "name a recipe there"
    for key, table in paper.tables.items():
        for place, claim in enumerate(table.claims):
            if [bool(claim.less), bool(claim.more), bool(claim.alike)].count(True) != 1:
                where, fix = f"tables.{key}.claims.{place}", "give one of less, more and alike"
                yield where, "claims nothing, or several things", fix
    for where, names, known in _named(paper):
        for name in names:
            if name not in known:
                yield where, f'there is no "{name}"', nearest(name, known)
    for where, metrics in _metrics(paper).items():
        for name in metrics:
            short, _, k = name.partition("@")
            if short not in METRICS:
                yield where, f'there is no "{short}"', nearest(short, METRICS)
            if not k.isdigit():
                yield where, f'"{name}" has no length of a list', f'write "{short}@10"'


def _metrics(paper: Paper) -> dict[str, Sequence[str]]:
    """Metrics of usefulness by the place where they are named."""
    shown = {f"tables.{key}.metrics_beside": table.metrics_beside for key, table in paper.tables.items()}
    return {"metric": [paper.metric], "metrics_beside": paper.metrics_beside, **shown}


def _named(paper: Paper) -> Iterator[tuple[str, Iterable[str], Collection[str]]]:
    """Names that refer to something: where they stand, which they are, and what there is."""
    yield "score", [paper.score], SCORES
    yield "beside", paper.beside, SCORES
    for key, attribute in paper.attributes.items():
        yield f"attributes.{key}.score", filter(None, [attribute.score]), SCORES
    for key, method in paper.methods.items():
        yield f"methods.{key}.recipe", [method.recipe], paper.recipes
        yield f"methods.{key}.on", method.on, paper.datasets
        yield f"methods.{key}.against", filter(None, [method.against]), paper.methods
        whole = [name for name, other in paper.methods.items() if not other.trained]
        yield f"methods.{key}.trained", filter(None, [method.trained]), whole
    for key, recipe in paper.recipes.items():
        yield f"recipes.{key}.on", recipe.on, paper.datasets
    for key, dataset in paper.datasets.items():
        yield f"datasets.{key}.attributes", dataset.attributes, paper.attributes
        yield f"datasets.{key}.seconds", dataset.seconds, [*paper.methods, DEFAULT]
    for key, table in paper.tables.items():
        yield f"tables.{key}.methods", table.rows, paper.methods
        yield f"tables.{key}.facts", table.facts, FACTS
        yield f"tables.{key}.drawn", table.drawn, paper.datasets
        yield f"tables.{key}.scores", table.scores, [*SCORES, *COMPONENTS]
        for kind in ("datasets", "attributes", "audits", "attackers", "parts"):
            yield f"tables.{key}.{kind}", getattr(table, kind), getattr(paper, kind)
        for place, claim in enumerate(table.claims):
            yield from _claimed(f"tables.{key}.claims.{place}", claim, paper)


def _claimed(where: str, claim: Claim, paper: Paper) -> Iterator[tuple[str, Iterable[str], Collection[str]]]:
    yield where, [claim.who], paper.methods
    yield f"{where}.than", [claim.than], [*paper.methods, FLOOR, POPULARITY]
    yield f"{where}.datasets", claim.datasets, paper.datasets
    for kind in ("attribute", "audit", "attacker", "part", "than_audit", "than_attacker", "than_part"):
        known = getattr(paper, f"{kind.removeprefix('than_')}s")
        yield f"{where}.{kind}", filter(None, [getattr(claim, kind)]), known


def _placed(document: toml.Document, error: BadInput) -> BadInput:
    """The same error with the file, and the line of its key or of the table around it."""
    key, _, _ = str(error).partition(": ")
    parts = key.split(".")
    for length in range(len(parts), 0, -1):
        if (line := document.lines.get(".".join(parts[:length]))) is not None:
            return BadInput(document.path, str(error), line=line)
    return error if REPORTED in key else BadInput(document.path, str(error))
