"""Undefended models in the papers' committed results: how good their lists are, and what attackers find."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from docs.committed import Number, Sheet, number_in, sheets

__all__ = ["leakage", "quality"]

PAPERS = Path(__file__).parents[1] / "papers"
USEFUL = "Usefulness, and what is guaranteed"


class Place(NamedTuple):
    """Where a paper's results have undefended models.

    Attributes:
        file, table, dataset: Which grids.
        rows: Names of rows, and what their model is called.
        metric: The column of usefulness.
        attacker: Who attacks, in words.
        gender, age: The titles of the grids with AUC, and their columns.
    """

    file: str
    table: str
    dataset: str
    rows: dict[str, str]
    metric: str
    attacker: str
    gender: tuple[str, str]
    age: tuple[str, str]


APM = {"FedMF": "FedMF", "FedNCF": "FedNCF, perceptron", "Pure FedRec": "FedGCN with features"}
PARD = {"FedNCF: FedAvg": "FedNCF", "FedNCF: PFedRec": "PFedRec", "FedGCN: FedAvg": "FedLightGCN"}
FEDAU2 = {f"{name}: Original": name for name in ("FedNCF", "FedVAE", "FedRAP")}


def places() -> Iterator[Place]:
    """Every such place, paper by paper."""
    for dataset in ("ML-100K", "ML-1M"):
        one = tuple(
            (f"{name}: the same attack by other scores, ζ = 0.1", "AUC: AIA") for name in ("Gender", "Age")
        )
        yield Place("apm/RESULTS.md", "fig2", dataset, APM, "Hit@20", "APM's, on the whole upload", *one)
    for name, dataset in (("RESULTS.md", "ML-100K"), ("RESULTS-ml-1m.md", "ML-1M")):
        gender = ("Gender: AUC of the attack, η = 0.2", "AIA")
        age = ("Age: the same attack by other scores, η = 0.2", "AUC: AIA")
        yield Place(f"pard/{name}", "table3", dataset, PARD, "recall@10", "PARD's, an oracle", gender, age)
    for name, dataset in (("RESULTS.md", "ML-100K"), ("RESULTS-ml-1m.md", "ML-1M")):
        one = tuple(
            (f"{what}: the same attack by other scores, user vectors", "AUC: MLP")
            for what in ("Gender", "Age")
        )
        yield Place(f"fedau2/{name}", "table1", dataset, FEDAU2, "Hit@10", "FedAU²'s, on user vectors", *one)


def quality() -> str:
    """A row for each model on each dataset: ours, popularity, and what the paper prints."""
    lines = [
        "| Model | Data | Metric | Ours | 95 % interval | Popularity | The paper |",
        "| --- | --- | --- | ---: | --- | ---: | ---: |",
    ]
    for place in places():
        sheet = _sheet(place, USEFUL)
        popular = number_in(sheet.cell("popularity", place.metric))
        for row, model in place.rows.items():
            ours, paper = number_in(sheet.cell(row, place.metric)), number_in(sheet.cell(row, "paper"))
            told = [model, place.dataset, place.metric, *_two(ours), _one(popular), _one(paper)]
            lines.append(f"| {' | '.join(told)} |")
    return "\n".join(lines)


def leakage() -> str:
    """A row for each model on each dataset: AUC for gender and age by the paper's own attack."""
    lines = [
        "| Model | Data | Attack | Gender, AUC | 95 % interval | Age, AUC | 95 % interval |",
        "| --- | --- | --- | ---: | --- | ---: | --- |",
    ]
    for place in places():
        for row, model in place.rows.items():
            found = [
                number_in(_sheet(place, title).cell(row, column))
                for title, column in (place.gender, place.age)
            ]
            told = [model, place.dataset, place.attacker, *_two(found[0]), *_two(found[1])]
            lines.append(f"| {' | '.join(told)} |")
    return "\n".join(lines)


def _sheet(place: Place, title: str) -> Sheet:
    found = sheets(PAPERS / place.file)
    wanted = (place.table, place.dataset, title)
    return next(one for one in found if (one.table, one.dataset, one.title) == wanted)


def _one(number: Number | None) -> str:
    return "–" if number is None else f"{number.value:.3f}"


def _two(number: Number | None) -> tuple[str, str]:
    if number is None or number.low is None or number.high is None:
        return _one(number), "–"
    return _one(number), f"{number.low:.3f} to {number.high:.3f}"
