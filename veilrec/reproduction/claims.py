"""Claims: what a paper says about two of its numbers, checked on ours with the interval of the difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from veilrec.comparison.measures import Measure
from veilrec.reproduction.cells import Shelf
from veilrec.reproduction.contents import Claim
from veilrec.reproduction.numbers import Quantity, Value, floors_of, minus
from veilrec.reproduction.paper import FLOOR, POPULARITY, Paper
from veilrec.reproduction.popularity import floor_of
from veilrec.reproduction.tables import values_of
from veilrec.reproduction.words import score_label
from veilrec.result import Result

__all__ = ["Checked", "Verdict", "check"]

Verdict = Literal["yes", "no", "not told apart", "cannot be checked"]
Side = dict[int, Value]


@dataclass(frozen=True)
class Checked:
    """A claim and what our runs say to it.

    Attributes:
        verdict: Whether it holds; where the interval of the difference holds zero, it is not told apart.
        difference: The first side minus the second, over seeds and users.
        seeds: How many pairs of runs it rests on.
        sentence: All of it in words.
    """

    verdict: Verdict
    difference: Measure | None
    seeds: int
    sentence: str


def check(paper: Paper, claim: Claim, dataset: str, shelf: Shelf) -> Checked:
    """A claim on a dataset, from the runs that are there."""
    what = _quantity(paper, claim, claim.part)
    runs = shelf.runs(dataset, claim.who)
    first = values_of(runs, what)
    second = _second(paper, claim, dataset, shelf, runs)
    said, found = _said(paper, claim, what), minus(first, second)
    if found is None or found.low is None:
        lacking = paper.methods[claim.who].label if not first else _other(paper, claim)
        return Checked(
            "cannot be checked", found, 0, f"{said}: cannot be checked, there are no runs of {lacking}."
        )
    seeds = sorted(first.keys() & second.keys())
    numbers = _numbers([first[s].value for s in seeds], [second[s].value for s in seeds], found)
    verdict = _verdict(claim, found)
    return Checked(verdict, found, len(seeds), f"{said}: {verdict}, {numbers}{_doubts(claim, runs, seeds)}.")


def _quantity(paper: Paper, claim: Claim, part: str) -> Quantity:
    score = claim.by or paper.score
    if not claim.attribute:
        return Quantity(score)
    audit = claim.audit or next(iter(paper.audits))
    attacker = "" if part else claim.attacker or next(iter(paper.attackers))
    return Quantity(score, claim.attribute, audit, attacker, part)


def _second(paper: Paper, claim: Claim, dataset: str, shelf: Shelf, runs: dict[int, Result]) -> Side:
    """The other side by seed: a method, a blind guess on the same runs, or popularity on the same users."""
    what = _quantity(paper, claim, claim.than_part)
    if claim.than == POPULARITY:
        floors = {s: floor_of(shelf.out / dataset, run, what.score) for s, run in runs.items()}
        return {seed: floor for seed, floor in floors.items() if floor is not None}
    if claim.than == FLOOR:
        best = {s: max(floors_of([run], what).values(), default=None) for s, run in runs.items()}
        return {seed: Value(one, one, one) for seed, one in best.items() if one is not None}
    return values_of(shelf.runs(dataset, claim.than), what)


def _verdict(claim: Claim, found: Measure) -> Verdict:
    assert found.low is not None
    assert found.high is not None
    if found.low <= 0 <= found.high:
        return "not told apart"
    if claim.alike:
        return "no"
    return "yes" if (found.value > 0) == bool(claim.more) else "no"


def _said(paper: Paper, claim: Claim, what: Quantity) -> str:
    """The claim in words, with what it is measured by."""
    who, other, score = paper.methods[claim.who].label, _other(paper, claim), score_label(what.score)
    if not what.attribute:
        word = {"less": "recommends worse than", "more": "recommends better than", "alike": "recommends like"}
        return f"{who} {word[claim.word]} {other} ({score})"
    attribute, audit = paper.attributes[what.attribute].label, paper.audits[what.audit].label
    by = "" if what.part else f", {paper.attackers[what.attacker].label}"
    words = {"less": "leaks less {} than", "more": "leaks more {} than", "alike": "leaks {} like"}
    verb = words[claim.word].format(attribute.lower())
    if what.part and claim.than_part:
        who, other = (f"{paper.parts[part].label} of {label}" for part, label in _parts(claim, who, other))
    return f"{who} {verb} {other} ({score}, {audit}{by})"


def _parts(claim: Claim, who: str, other: str) -> list[tuple[str, str]]:
    return [(claim.part, who), (claim.than_part, other)]


def _other(paper: Paper, claim: Claim) -> str:
    told = {POPULARITY: "popularity", FLOOR: "the best blind guess"}
    return told.get(claim.than) or paper.methods[claim.than].label


def _numbers(first: list[float], second: list[float], found: Measure) -> str:
    one, other = sum(first) / len(first), sum(second) / len(second)
    low, high = found.low or 0.0, found.high or 0.0
    told = f"{one:.3f} against {other:.3f}, {found.value:+.3f} [{low:+.3f}, {high:+.3f}]"
    return told.replace("-", "−")


def _doubts(claim: Claim, runs: dict[int, Result], seeds: list[int]) -> str:
    """What a reader must know: one seed, or a model that learned nothing and so leaks nothing."""
    doubt = "; one seed: another training may differ" if len(seeds) == 1 else ""
    low = sum(runs[seed].utility.collapsed for seed in seeds)
    if claim.attribute and claim.less and low:
        doubt += f"; but {low} of its {len(seeds)} runs are below popularity: low leakage is not ranked"
    return doubt
