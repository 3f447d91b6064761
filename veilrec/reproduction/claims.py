"""Claims: what a paper says about two of its numbers, checked on ours with the interval of the difference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from veilrec.metrics.measures import Measure
from veilrec.metrics.words import bracketed, number
from veilrec.reproduction.cells import FinishedRuns
from veilrec.reproduction.contents import Claim, Table
from veilrec.reproduction.numbers import Quantity, floors_of, minus
from veilrec.reproduction.paper import FLOOR, POPULARITY, Paper
from veilrec.reproduction.popularity import floor_of
from veilrec.reproduction.tables import values_of
from veilrec.reproduction.words import COMPONENTS, below, score_label
from veilrec.result import Result

__all__ = ["CheckedClaim", "Verdict", "check", "sides"]

Verdict = Literal["yes", "no", "not told apart", "cannot be checked"]
Side = dict[int, Measure]
Runs = dict[str, dict[int, Result]]  # by method and seed


@dataclass(frozen=True)
class CheckedClaim:
    """A claim and what our runs say to it.

    Attributes:
        verdict: Whether it holds; where the interval of the difference holds zero, it is not told apart.
        difference: The first side minus the second, over seeds and users.
        seeds: How many pairs of runs it rests on.
        sentence: All of it in words.
        ranked: False where it is about leakage and some run is below popularity, since low leakage of a model
            that learned nothing is no merit; or where an attacker said the same of everybody.
    """

    verdict: Verdict
    difference: Measure | None
    seeds: int
    sentence: str
    ranked: bool = True


def check(paper: Paper, table: Table, claim: Claim, dataset: str, finished: FinishedRuns) -> CheckedClaim:
    """A claim of a table on a dataset, from the runs that are there."""
    what, against = sides(paper, table, claim)
    runs = {who: finished.runs(dataset, who) for who in _methods(claim)}
    first = values_of(runs[claim.who], what)
    second = _second(claim, against, runs, finished.out / dataset)
    said, found = _said(paper, claim, what, against), minus(first, second)
    if found is None or not found.sure:
        why = _absent(paper, claim, runs, first, second)
        return CheckedClaim("cannot be checked", found, 0, f"{said}: cannot be checked, {why}.")
    seeds = sorted(first.keys() & second.keys())
    numbers = _numbers([first[s].value for s in seeds], [second[s].value for s in seeds], found)
    low = _below(paper, claim, runs, seeds)
    mute = any(side[seed].mute for side in (first, second) for seed in seeds)
    verdict, doubts = _verdict(claim, found), "".join(_doubts(claim, low, len(seeds), mute))
    sentence = f"{said}: {verdict}, {numbers}{doubts}."
    return CheckedClaim(verdict, found, len(seeds), sentence, ranked=not (mute or (low and claim.attribute)))


def sides(paper: Paper, table: Table, claim: Claim) -> tuple[Quantity, Quantity]:
    """The two numbers that a claim compares; what it does not name is the first of its table."""
    score = claim.by or paper.scores_of(table, claim.attribute)[0]
    if not claim.attribute:
        return Quantity(score), Quantity(score)
    audit = claim.audit or next(iter(table.audits or paper.audits))
    attacker = claim.attacker or next(iter(table.attackers or paper.attackers), "")
    there = claim.than_audit or audit, claim.than_attacker or attacker, claim.than_part
    one, other = (
        Quantity(score, claim.attribute, name, "" if part else who, part)
        for name, who, part in ((audit, attacker, claim.part), there)
    )
    return one, other


def _methods(claim: Claim) -> list[str]:
    """The methods whose runs a claim needs; a guess and popularity are read off those of the first side."""
    return list(dict.fromkeys([claim.who, *([] if claim.than in (FLOOR, POPULARITY) else [claim.than])]))


def _second(claim: Claim, what: Quantity, runs: Runs, folder: Path) -> Side:
    """The other side by seed: a method, a blind guess on the same runs, or popularity on the same users."""
    mine = runs[claim.who]
    if claim.than == POPULARITY:
        floors = {s: floor_of(folder, run, what.score) for s, run in mine.items()}
        return {seed: floor for seed, floor in floors.items() if floor is not None}
    if claim.than == FLOOR:
        best = {s: max(floors_of([run], what).values(), default=None) for s, run in mine.items()}
        return {seed: Measure(one, one, one) for seed, one in best.items() if one is not None}
    return values_of(runs[claim.than], what)


def _absent(paper: Paper, claim: Claim, runs: Runs, first: Side, second: Side) -> str:
    """The reason why nothing can be said: no runs, runs that did not measure it, or no seed of both."""
    for who in _methods(claim):
        if not runs[who]:
            return f"there are no runs of {paper.methods[who].label}"
    for side, label in ((first, paper.methods[claim.who].label), (second, _other(paper, claim))):
        if not side:
            return f"{label} was not measured in these runs"
    return "no seed has both"


def _verdict(claim: Claim, found: Measure) -> Verdict:
    if found.low <= 0 <= found.high:
        return "not told apart"
    if claim.alike:
        return "no"
    return "yes" if (found.value > 0) == bool(claim.more) else "no"


def _said(paper: Paper, claim: Claim, what: Quantity, against: Quantity) -> str:
    """The claim in words, with what it is measured by."""
    who, other, score = paper.methods[claim.who].label, _other(paper, claim), score_label(what.score)
    if not what.attribute:
        word = {"less": "recommends worse than", "more": "recommends better than", "alike": "recommends like"}
        return f"{who} {word[claim.word]} {other} ({score})"
    attribute = paper.attributes[what.attribute].label.lower()
    verb = f"leaks {attribute}" if claim.alike else f"leaks {claim.word} {attribute}"
    if what.score in COMPONENTS:
        verb = f"has a {({'less': 'lower ', 'more': 'higher '}).get(claim.word, '')}{score}"
        score = attribute
    audits = [paper.audits[name].label for name in dict.fromkeys((what.audit, against.audit))]
    two = bool(claim.than_attacker) and what.attacker != against.attacker
    here, there = (_place(paper, one, apart=len(audits) > 1, two=two) for one in (what, against))
    if claim.who == claim.than and there:
        other, there = there.lstrip(), ""  # "more in its items than in its layers", not "than itself in"
    by = [score, *(audits if len(audits) == 1 else [])]
    by += [] if what.part or two else [paper.attackers[what.attacker].label]
    return f"{who} {verb}{here} {'like' if claim.alike else 'than'} {other}{there} ({', '.join(by)})"


def _place(paper: Paper, what: Quantity, *, apart: bool, two: bool) -> str:
    """Say where a side is measured: on which part, and by whom and in which audit where sides differ."""
    place = f" in its {paper.parts[what.part].label}" if what.part else ""
    place += f" to {paper.attackers[what.attacker].label}" if two and what.attacker else ""
    return f"{place} at {paper.audits[what.audit].label}" if apart else place


def _other(paper: Paper, claim: Claim) -> str:
    told = {POPULARITY: "popularity", FLOOR: "the best blind guess"}
    return told.get(claim.than) or paper.methods[claim.than].label


def _numbers(first: list[float], second: list[float], found: Measure) -> str:
    one, other = sum(first) / len(first), sum(second) / len(second)
    return f"{number(one)} against {number(other)}, {bracketed(found, sign=True)}"


def _below(paper: Paper, claim: Claim, runs: Runs, seeds: list[int]) -> dict[str, int]:
    """Count runs of each side below popularity; none are counted where popularity is the other side."""
    if claim.than == POPULARITY:
        return {}
    low = {who: sum(mine[seed].utility.collapsed for seed in seeds) for who, mine in runs.items()}
    return {paper.methods[who].label: count for who, count in low.items() if count}


def _doubts(claim: Claim, low: dict[str, int], seeds: int, mute: bool) -> Iterator[str]:
    """Doubts that a reader must know of: one seed, an attacker or a model that learned nothing."""
    if seeds == 1:
        yield "; one seed: another training may differ"
    if low:
        yield f"; but {below(low, seeds)}{': low leakage is not ranked' if claim.attribute else ''}"
    if mute:
        yield "; but in some run the attacker said the same of everybody, and is not ranked"
