"""Pictures for pages about results, from committed result files: ``python -m docs.pictures`` writes them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from docs.committed import Number, Sheet, number_in, sheets
from docs.drawing import Bar, Point, bars, plane

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
AEGIS = "MovieLens-100K"
GUESS = "guess: at random, by the shares of the classes"


def drawn() -> Mapping[str, str]:
    """Every picture by its file name."""
    return {
        "apm-gender.svg": apm(),
        "pard-gender.svg": pard(),
        "fedau2-vectors.svg": fedau2_vectors(),
        "fedau2-uploads.svg": fedau2_uploads(),
        "defences.svg": defences(),
        "aegis-erasers.svg": aegis(),
    }


def apm() -> str:
    """Gender under every method of APM's Table 2, on ML-1M, where undefended uploads leak."""
    sheet = sheet_of("apm/RESULTS.md", "table2", "ML-1M", "Gender: macro-F1 of the attack")
    rows = _bars(sheet, "AIA, ζ = 0.1")
    floor = number_in(sheet.cell(GUESS, "AIA, ζ = 0.1"))
    if floor is None:
        raise ValueError("no guess")
    note = "dot and line: ours, 95 % interval; orange: the paper; hollow: below popularity, not ranked"
    return bars(
        "APM: gender on ML-1M, macro-F1 of the paper's attack", note, rows, ("guess", floor.value), (0.4, 1.0)
    )


def pard() -> str:
    """Gender under every method of PARD's Table III, on ML-100K and FedNCF."""
    sheet = sheet_of("pard/RESULTS.md", "table3", "ML-100K", "Gender: AUC of the attack, η = 0.2")
    rows = [one for one in _bars(sheet, "AIA") if one.name.startswith("FedNCF")]
    note = "dot and line: ours, 95 % interval; orange: the paper"
    return bars("PARD: gender on ML-100K, AUC of the paper's attack", note, rows, ("chance", 0.5), (0.4, 0.9))


def fedau2_vectors() -> str:
    """Gender with and without FedAU², by the paper's attack on user vectors."""
    title = "Gender: balanced accuracy of the attack, user vectors"
    sheet = sheet_of("fedau2/RESULTS.md", "table1", "ML-100K", title)
    rows = [one for one in _bars(sheet, "MLP") if _told(one)]
    note = "dot and line: ours, 95 % interval; orange: the paper"
    title = "FedAU²: gender on ML-100K, balanced accuracy of the paper's attack on vectors"
    return bars(title, note, rows, ("chance", 0.5), (0.4, 1.0))


def fedau2_uploads() -> str:
    """The same models by what is uploaded."""
    sheet = sheet_of("fedau2/RESULTS.md", "worst", "ML-100K", "Gender: AUC of the attack")
    rows = [one for one in _bars(sheet, "worst of all, our audit") if _told(one)]
    title = "FedAU²: gender on ML-100K, AUC of the worst of our attackers on uploads"
    return bars(title, "dot and line: 95 % interval", rows, ("chance", 0.5), (0.4, 1.0))


def _told(one: Bar) -> bool:
    return one.name.split(": ")[-1] in ("Original", "FedAU², gender")


def defences() -> str:
    """Eleven methods on FedNCF and ML-100K: usefulness over what the worst of six families finds."""
    points = [Point(name.removeprefix("FedNCF: "), useful, gender) for name, useful, gender, *_ in ranked()]
    note = "means of three seeds with 95 % intervals; better is above and to the left"
    popular = number_in(_useful().cell("popularity", "recall@10"))
    if popular is None:
        raise ValueError("no popularity")
    axes = ("gender: AUC of the worst of six families, nothing granted", "recall@10")
    return plane("Which defence: FedNCF on MovieLens-100K", note, points, popular.value, axes)


def aegis() -> str:
    """Erasers of all attributes at once: usefulness over what the worst of seven families finds of gender."""
    useful = sheet_of("aegis/RESULTS.md", "table4", AEGIS, "Usefulness, and what is guaranteed")
    gender = sheet_of("aegis/RESULTS.md", "verdict", AEGIS, "Gender: AUC of the attack")
    points = []
    for row in gender.rows:
        name = row[0].rstrip("*†=! ")
        leak = number_in(row[1])
        if leak and not name.startswith("guess") and (ours := number_in(useful.cell(name, "NDCG@10"))):
            points.append(Point(name, ours, leak))
    popular = number_in(useful.cell("popularity", "NDCG@10"))
    if popular is None:
        raise ValueError("no popularity")
    note = "one model, its users changed by each; 95 % intervals; better is above and to the left"
    axes = (
        "gender: AUC of the worst of seven families, 80 % known, turned where surely below 1/2",
        "NDCG@10",
    )
    return plane("Erasers of all attributes: MovieLens-100K", note, points, popular.value, axes)


def ranked() -> list[tuple[str, Number, Number, Number, str, str]]:
    """Each method with its usefulness, what is found of gender of age, and its ε: a coordinate, the run."""
    gender, age = (
        sheet_of("pard/RESULTS-rank.md", "rank", "ML-100K", f"{name}: AUC of the attack, without oracle")
        for name in ("Gender", "Age")
    )
    found = []
    for row in _useful().rows:
        if row[0].startswith("FedNCF"):
            name = row[0].rstrip("*†=! ")
            cells = (
                _useful().cell(name, "recall@10"),
                gender.cell(name, "worst of all"),
                age.cell(name, "worst of all"),
            )
            useful, first, second = (number_in(cell) for cell in cells)
            if not (useful and first and second):
                raise ValueError(f"no numbers of {name}")
            told = (_useful().cell(name, f"ε {of}") for of in ("a coordinate", "the run"))
            found.append((name, useful, first, second, *told))
    return found


def sheet_of(path: str, table: str, dataset: str, title: str) -> Sheet:
    """One grid of a committed file."""
    found = sheets(ROOT / "papers" / path)
    return next(one for one in found if (one.table, one.dataset, one.title) == (table, dataset, title))


def _useful() -> Sheet:
    return sheet_of("pard/RESULTS-rank.md", "rank", "ML-100K", "Usefulness, and what is guaranteed")


def _bars(sheet: Sheet, column: str) -> list[Bar]:
    """The rows that are methods of the paper, with what it prints beside that column."""
    place = sheet.head.index(column)
    printed = place + 1 if sheet.head[place + 1] == "paper" else None
    found = []
    for row in sheet.rows:
        ours = number_in(row[place])
        if ours and not row[0].startswith("guess") and "*" not in row[0]:
            paper = number_in(row[printed]) if printed else None
            name = {"ours": "APM"}.get(row[0].rstrip("†=! "), row[0].rstrip("†=! "))
            found.append(Bar(name, ours, paper.value if paper else None, "†" in row[0]))
    return found


def main(arguments: Sequence[str]) -> int:
    """Write the pictures, or say with ``--check`` which are not as they would be drawn now."""
    stale = 0
    for name, text in drawn().items():
        path = FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale += 1
            print(path.relative_to(ROOT))
            if "--check" not in arguments:
                path.write_text(text, encoding="utf-8")
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
