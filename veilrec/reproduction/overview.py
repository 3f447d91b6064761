"""The outcome on one screen: what a paper says, what our numbers tell apart, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from veilrec.metrics.measures import gathered
from veilrec.reproduction.claims import CheckedClaim
from veilrec.reproduction.paper import Paper
from veilrec.reproduction.sheets import Sheet
from veilrec.reproduction.tables import Page
from veilrec.reproduction.words import seeds_told

__all__ = ["SAYS", "Told", "heading", "missing_lines", "outcome", "overview"]

SAYS = "What the paper says, on our numbers"
UNRANKED = "not ranked"
ALWAYS, SOMETIMES = ("yes", "no", "not told apart", UNRANKED), ("cannot be checked",)


@dataclass(frozen=True)
class Told:
    """A table on a dataset with all that is said about it.

    Attributes:
        page, sheets, claims: Its numbers, as rows of text, and what the paper says of them.
        drawing: A picture of it, as SVG; "" for none.
    """

    page: Page
    sheets: Sequence[Sheet]
    claims: Sequence[CheckedClaim]
    drawing: str = ""

    @property
    def picture(self) -> str:
        """The name of the file that the drawing belongs in."""
        return f"{self.page.name}-{self.page.dataset}.svg"


def outcome(claim: CheckedClaim) -> str:
    """The verdict, unless a run that has not learned leaves it open: then ``not ranked``."""
    return claim.verdict if claim.ranked or claim.difference is None else UNRANKED


def heading(paper: Paper, page: Page) -> str:
    """``table2 on ML-100K: its title``: no two sections have the same."""
    return f"{page.name} on {paper.datasets[page.dataset].label}: {page.table.title}"


def overview(paper: Paper, told: Sequence[Told]) -> list[str]:
    """Count the claims that hold by dataset, each once, and list those that are decided; else nothing."""
    claims = gathered((one.page.dataset, claim) for one in told for claim in one.claims)
    if not claims:
        return []
    lists = []
    for dataset, found in claims.items():
        label, once = paper.datasets[dataset].label, {claim.sentence: claim for claim in found}
        counts = Counter(map(outcome, once.values()))
        words = [*ALWAYS, *(word for word in SOMETIMES if counts[word])]
        lists += ["", f"{label}: {', '.join(f'{counts[word]} {word}' for word in words)}."]
        lists += _decided(label, once)
    return [
        f"## {SAYS}",
        "",
        "*Not ranked* are claims about leakage in which a run is below popularity, or an attacker said the "
        "same of everybody. What follows are the claims that are *yes* or *no*, each once; the others stand "
        "under their tables.",
        *lists,
    ]


def _decided(label: str, claims: Mapping[str, CheckedClaim]) -> list[str]:
    """The claims of a dataset that our numbers bear out, then those that they speak against."""
    lines = []
    for word in ("yes", "no"):
        found = [sentence for sentence, claim in claims.items() if outcome(claim) == word]
        lines += ["", f"{label}, *{word}*:", "", *(f"- {one}" for one in found)] if found else []
    return lines


def missing_lines(paper: Paper, pages: Sequence[Page], stale: Mapping[str, str]) -> list[str]:
    """Markdown of all that these tables lack, or that nothing does."""
    names = dict.fromkeys(f"{page.dataset}/{name}" for page in pages for name in page.missing)
    lines = [f"- {who}: {seeds_told(seeds)}" for (who, _), seeds in _grouped(paper, names, {}).items()]
    lines = lines or ["Nothing: every run of these tables is there."]
    if stale:
        lines += ["", "Made with other settings or audits than `paper.toml` asks for by now:", ""]
        for (who, what), seeds in _grouped(paper, stale, stale).items():
            lines.append(f"- {who}, {seeds_told(seeds)}: {what}")
    return lines


def _grouped(paper: Paper, cells: Iterable[str], told: Mapping[str, str]) -> dict[tuple[str, str], list[int]]:
    """Seeds by method on its dataset, and by what is told of the cell."""
    found = ((_who(paper, cell), told.get(cell, "")) for cell in cells)
    return gathered(((who, what), seed) for (who, seed), what in found)


def _who(paper: Paper, cell: str) -> tuple[str, int]:
    """``ml-1m/pure/seed=0`` as *ML-1M: Pure FedRec* and 0."""
    dataset, method, seed = cell.split("/")
    label = f"{paper.datasets[dataset].label}: {paper.methods[method].label}"
    return label, int(seed.removeprefix("seed="))
