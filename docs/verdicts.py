"""Verdicts: what came of a paper's claims, decided by the sentences that its committed results have checked.

``python -m docs.verdicts`` writes the tables of verdicts into the pages that ask for them, between two marks;
``--check`` says which pages are not as it would write them. Nothing is trained, and no number is typed in.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from docs.committed import Claim, Sheet, claims, number_in, sheets
from docs.pictures import ranked
from docs.undefended import leakage, quality
from veilrec.metrics.measures import Measure
from veilrec.reproduction.nearness import Printed, near_lines, nearness

ROOT = Path(__file__).parents[1]
PAPERS = {"apm": "APM", "pard": "PARD", "fedau2": "FedAU²", "aegis": "Aegis"}
HOLDS, PART, NOT, OPEN = "**holds**", "in part", "**does not hold**", "cannot be told"
BLOCK = re.compile(r"<!-- (verdicts|near|rank|few|quality|leakage): (\S+) -->\n.*?<!-- end -->", re.DOTALL)
UNRUN = re.compile(r"^- Not run on [^:]+: (.+)\.$")
READ = "## How to read it"
HEAD = """\
| Claim of the paper | Where | Verdict | Shown | The number that decides |
| --- | --- | --- | ---: | --- |"""


class Verdict(NamedTuple):
    """One claim of a paper and what came of it."""

    says: str
    where: str
    verdict: str
    parts: Sequence[Claim]
    shown: Claim
    trap: str

    def row(self) -> str:
        """The claim as a line of a table."""
        yes = sum(one.outcome == "yes" for one in self.parts)
        number = f"{self.shown.dataset}, *{short(self.shown.text)}*: {self.shown.difference}"
        trap = f" {self.trap}" if self.trap else ""
        return (
            f"| {self.says}.{trap} | {self.where} | {self.verdict} | {yes} of {len(self.parts)} | {number} |"
        )


def verdicts(paper: str) -> list[Verdict]:
    """Every claim of a paper, in the order of its ``verdicts.toml``."""
    told = tomllib.loads((ROOT / "papers" / paper / "verdicts.toml").read_text(encoding="utf-8"))
    return [_verdict(paper, one) for one in told["claims"]]


def judged(outcomes: Sequence[str]) -> str:
    """The verdict on a claim by the outcomes of its parts.

    It holds where every part is shown, and does not where one is shown to be otherwise and none to be so.
    Parts that are not told apart, or not ranked, decide nothing.
    """
    yes, no = outcomes.count("yes"), outcomes.count("no")
    if yes == len(outcomes):
        return HOLDS
    return PART if yes else NOT if no else OPEN


def table(paper: str) -> str:
    """A paper's verdicts: how many of which, then each."""
    found = verdicts(paper)
    return f"{counted(found)}\n\n{HEAD}\n" + "\n".join(one.row() for one in found)


def counted(found: Sequence[Verdict]) -> str:
    """How many hold, hold in part, do not, and cannot be told."""
    many = Counter(one.verdict for one in found)
    words = (HOLDS, PART, NOT, OPEN)
    head = " | ".join(word.strip("*") for word in words)
    return (
        f"Of {len(found)} claims:\n\n| {head} |\n| ---: | ---: | ---: | ---: |\n"
        f"| {' | '.join(str(many[word]) for word in words)} |\n\n"
        "A claim holds where every comparison that it rests on is shown by an interval that leaves out zero, "
        "and does not where one shows the contrary and none bears it out; *shown* counts them."
    )


def short(text: str) -> str:
    """A sentence without its brackets, in a table."""
    return re.sub(r" \([^()]*(?:\([^()]*\))?[^()]*\)$", "", text).replace("|", "\\|")


def near(path: Path) -> list[str]:
    """A line for each table of a committed file: printed, within 0.01, inside our interval, missing."""
    found: dict[tuple[str, str], list[Printed]] = {}
    for sheet in sheets(path):
        found.setdefault((sheet.table, sheet.dataset), []).extend(_pairs(sheet))
    unrun = _unrun(path)
    return near_lines(
        nearness(f"{table} on {dataset}", pairs, unrun.get((table, dataset), []))
        for (table, dataset), pairs in found.items()
    )


def headed(text: str, path: Path) -> str:
    """A committed file of results with those lines on top, as `veilrec reproduce` would begin it."""
    title, rest = text.split("\n", 1)
    body = rest[rest.index(READ) :] if READ in rest else f"{READ}\n{rest}"
    return "\n".join([title, "", *near(path), "", body])


def rank() -> str:
    """Every defence on one model and dataset: usefulness, gender, age and ε, one number a cell."""
    lines = [
        "| Method | recall@10 | interval | gender, AUC | interval | age, AUC | interval "
        "| ε of a value | ε of the run |",
        "| --- | ---: | --- | ---: | --- | ---: | --- | --- | --- |",
    ]
    for name, useful, gender, age, epsilon, run in sorted(ranked(), key=lambda one: one[2].value):
        cells = [
            cell
            for one in (useful, gender, age)
            for cell in (f"{one.value:.3f}", f"{one.low:.3f} to {one.high:.3f}")
        ]
        noise = ["none", "none"] if epsilon.startswith("no noise") else [epsilon, run]
        lines.append(f"| {' | '.join([name.removeprefix('FedNCF: '), *cells, *noise])} |")
    return "\n".join(lines)


def few() -> str:
    """No defence and four others in three columns: how useful, and what is found of gender."""
    kept = {
        "FedAvg": "no defence",
        "PARD": "PARD",
        "APM": "APM",
        "FedNews": "FedNews (noise on all rows)",
    }
    found = {name.removeprefix("FedNCF: "): numbers for name, *numbers in ranked()}
    rows = [
        f"| {told} | {found[name][0].value:.3f} | {found[name][1].value:.3f} |" for name, told in kept.items()
    ]
    return "\n".join(["| Method | recall@10 | gender, AUC |", "| --- | ---: | ---: |", *rows])


def filled(text: str) -> str:
    """A page with its tables as the results have them now."""
    made = {
        "verdicts": table,
        "near": lambda paper: "\n".join(near(ROOT / "papers" / paper / "RESULTS.md")[4:]),
        "rank": lambda _: rank(),
        "few": lambda _: few(),
        "quality": lambda _: quality(),
        "leakage": lambda _: leakage(),
    }
    return BLOCK.sub(lambda m: f"<!-- {m[1]}: {m[2]} -->\n\n{made[m[1]](m[2])}\n\n<!-- end -->", text)


def pages() -> Iterator[Path]:
    """Every page that has a place for a table of verdicts."""
    for path in sorted([ROOT / "README.md", *ROOT.glob("papers/*/README.md"), *ROOT.glob("docs/**/*.md")]):
        if BLOCK.search(path.read_text(encoding="utf-8")):
            yield path


def _pairs(sheet: Sheet) -> Iterator[Printed]:
    """Every printed number beside ours, which stands on its left."""
    places = [place for place, head in enumerate(sheet.head) if head == "paper" or head.endswith(", paper")]
    for row in sheet.rows:
        for place in places:
            if printed := number_in(row[place]):
                ours = number_in(row[place - 1])
                ends = (
                    (ours.low, ours.high) if ours and ours.low is not None and ours.high is not None else ()
                )
                yield Printed(printed.value, Measure(ours.value, *ends) if ours else None)


def _unrun(path: Path) -> dict[tuple[str, str], list[str]]:
    found, place = {}, ("", "")
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("### ") and " on " in line:
            name, dataset = line.removeprefix("### ").split(": ")[0].split(" on ", 1)
            place = (name, dataset)
        elif unrun := UNRUN.match(line):
            found[place] = unrun[1].split("; ")
    return found


def _verdict(paper: str, told: Mapping[str, Any]) -> Verdict:
    parts = [
        one
        for rest in told["rests"]
        for one in _claims(paper, rest.get("file", "RESULTS.md"))
        if re.search(rest["match"], one.text)
    ]
    parts = [one for one in parts if one.outcome != "cannot be checked"]
    if not parts:
        raise ValueError(f"{paper}: nothing was checked of: {told['says']}")
    outcomes = [one.outcome for one in parts]
    if told.get("turned"):  # the sentences say the contrary of the claim
        outcomes = [{"yes": "no", "no": "yes"}.get(one, one) for one in outcomes]
        parts = [replace(one, outcome=outcome) for one, outcome in zip(parts, outcomes, strict=True)]
    shows = [one for one in parts if re.search(told.get("shows", ""), f"{one.dataset}: {one.text}")]
    if not shows:
        raise ValueError(f"{paper}: no sentence to show for: {told['says']}")
    return Verdict(told["says"], told["where"], judged(outcomes), parts, shows[0], told.get("trap", ""))


@cache
def _claims(paper: str, name: str) -> list[Claim]:
    return claims(ROOT / "papers" / paper / name)


def written() -> Iterator[tuple[Path, str, str]]:
    """Every file that this writes: as it is, and as it should be."""
    for path in pages():
        text = path.read_text(encoding="utf-8")
        yield path, text, filled(text)
    for path in sorted(ROOT.glob("papers/*/RESULTS*.md")):
        if path.parent.name in PAPERS:
            text = path.read_text(encoding="utf-8")
            yield path, text, headed(text, path)


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or say with ``--check`` which are not up to date."""
    stale = [(path, new) for path, text, new in written() if text != new]
    for path, new in stale:
        print(path.relative_to(ROOT))
        if "--check" not in arguments:
            path.write_text(new, encoding="utf-8")
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
