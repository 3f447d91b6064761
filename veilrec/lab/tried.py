"""One attacker on all trials at once: what it says about the targets, and about known users held out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from veilrec.attack import Attack, Seen
from veilrec.base.keys import Keys
from veilrec.engine.workers import workers
from veilrec.errors import BadInput
from veilrec.lab import verdict
from veilrec.lab.components import components
from veilrec.lab.soundness.copies import Copies
from veilrec.lab.soundness.shuffled import luck_of_the_best
from veilrec.lab.threat import KnownDraw, Threat
from veilrec.lab.trials import FEWEST, Goal, People, Trial
from veilrec.lab.verdict import TrialAnswer, Tried

__all__ = ["Bench", "leaves_out", "lessened", "tried", "without", "without_users"]


class Bench(NamedTuple):
    """What every attacker of an audit is tried on.

    Attributes:
        seen, threat, people: The evidence, the protocol, and the truth.
        copies: Users who are copies of one another; None where nobody looked.
        blank: ``[users]`` a mask of those whose row is all zeros; None where nobody looked.
        choosing: Whether one attacker of several is chosen, for which known users are held out.
        tested: Whether attackers get p-values, which take longer than all the rest.
    """

    seen: Seen
    threat: Threat
    people: People
    copies: Copies | None = None
    blank: Tensor | None = None
    choosing: bool = True
    tested: bool = True


def tried(
    bench: Bench, trials: Sequence[Trial], name: str, attack: Attack
) -> Iterator[tuple[Goal, Tried, Mapping[str, Tried]]]:
    """An attacker judged on each goal that it answers; and, by name, on fewer targets (`lessened`)."""
    mine = [trial for trial in trials if attack.answers(bench.seen, trial.task)]
    if not mine:
        return
    began = time.perf_counter()
    said, held_out = _scores(bench, mine, attack)
    each = (time.perf_counter() - began) / len(mine)
    inside = iter(held_out)
    grouped: dict[str, list[_Said]] = {}
    for trial, (score, luck) in zip(mine, said, strict=True):
        shape = (len(trial.task.known), max(1, trial.goal.classes))
        held = [_checked(name, next(inside), shape) for _ in trial.inner] if bench.choosing else []
        run = _Said(trial, _checked(name, score, shape), held, luck)
        grouped.setdefault(trial.goal.name, []).append(run)
    for runs in grouped.values():
        seconds = each * len(runs)
        with workers(1):  # many small sums: two threads would spend their time waiting for each other
            one = _judged(bench, name, attack, runs, seconds)
            others = {}
            for fewer, less in lessened(bench).items():
                left = [run._replace(trial=less(run.trial)) for run in runs]
                if leaves_out([run.trial for run in runs], [run.trial for run in left]):
                    others[fewer] = _judged(bench, name, attack, left, seconds)
        yield runs[0].trial.goal, one, others


def lessened(bench: Bench) -> dict[str, Callable[[Trial], Trial]]:
    """What makes draws with fewer targets of whole ones, by the name of their verdict in a result."""
    found: dict[str, Callable[[Trial], Trial]] = {}
    if bench.copies is not None:
        found["without_copies"] = partial(without, copies=bench.copies)
    if bench.blank is not None:
        found["without_zeros"] = partial(without_users, users=bench.blank)
    return found


def without(trial: Trial, copies: Copies) -> Trial:
    """The same draw without targets, and without held-out known users, of whom a copy is known."""
    return without_users(trial, copies.beside(trial.draw.known))


def without_users(trial: Trial, users: Tensor) -> Trial:
    """The same draw without some users (a mask) among its targets, and among known users held out."""
    inner = [(task, held & ~users) for task, held in trial.inner]
    return trial._replace(draw=KnownDraw(trial.draw.known, trial.draw.target & ~users), inner=inner)


def leaves_out(trials: Sequence[Trial], fewer: Sequence[Trial]) -> bool:
    """Whether draws without copies have fewer targets than those with them, and still enough to be judged."""
    before = sum(int(trial.draw.target.sum()) for trial in trials)
    left = [trial.goal.label[trial.draw.target] for trial in fewer]
    judged = all(len(label) >= FEWEST and len(label.unique()) > 1 for label in left)
    return bool(left) and judged and sum(map(len, left)) < before


class _Said(NamedTuple):
    """What an attacker said in one trial: of everybody, of each part held out, and an oracle's luck."""

    trial: Trial
    score: Tensor
    held: list[Tensor]
    luck: Tensor | None


def _judged(bench: Bench, name: str, attack: Attack, runs: Sequence[_Said], seconds: float) -> Tried:
    """The scores of one goal's trials, told by the judge."""
    goal, notes = runs[0].trial.goal, {**attack.notes(bench.seen)}
    if parts := components(bench.seen, attack, [run.trial for run in runs], bench.people, bench.threat):
        notes["components"] = parts
    answers = [TrialAnswer(run.trial, run.score, _outside(run.trial, run.held), run.luck) for run in runs]
    return verdict.judged(
        name, attack, notes, goal, answers, bench.people, bench.threat, seconds, tested=bench.tested
    )


Chosen = tuple[Tensor, Tensor | None]  # an attacker's scores, and its luck where the targets chose its stage


def _scores(bench: Bench, trials: Sequence[Trial], attack: Attack) -> tuple[list[Chosen], list[Tensor]]:
    """An attacker's answers to all trials, and those to their inner tasks where one attacker is chosen."""
    inner = [task for trial in trials for task, _ in trial.inner] if bench.choosing else []
    if bench.threat.selection == "last":
        said = attack.infer_all(bench.seen, [trial.task for trial in trials] + inner)
        return [(score, None) for score in said[: len(trials)]], said[len(trials) :]
    chosen = [_chosen(bench, trial, attack) for trial in trials]
    return chosen, attack.infer_all(bench.seen, inner) if inner else []


def _outside(trial: Trial, held: Sequence[Tensor]) -> float:
    """The AUC (or rank correlation) on known users, each judged by who did not learn from that user.

    The mean over the parts: scores of different fits do not compare, and pooled they would rank a class the
    lower, the more of it was held out.
    """
    label, pairs = trial.goal.label, zip(held, trial.inner, strict=False)
    each = [verdict.main_score(label[mask], score[mask]) for score, (_, mask) in pairs if bool(mask.any())]
    return sum(each) / len(each) if each else float("nan")


def _chosen(bench: Bench, trial: Trial, attack: Attack) -> Chosen:
    """The stage of an attacker that is best on held-out known users, or, with an oracle, on the targets."""
    stages = attack.stages(bench.seen, trial.task)
    if len(stages) == 1:
        return stages[0], None
    if bench.threat.selection == "oracle":
        return _by_targets(bench, trial, stages)
    marks = [0.0] * len(stages)
    for task, held in trial.inner:
        inner = attack.stages(bench.seen, task)
        for k in range(len(stages)):
            marks[k] += _mark(trial.goal.label[held], inner[min(k, len(inner) - 1)][held]) / len(trial.inner)
    if trial.goal.classes <= 2:  # where chance is known, wrong more often than chance is as good as right
        marks = [abs(mark - (0.5 if trial.goal.classes else 0.0)) for mark in marks]
    return stages[int(torch.tensor(marks).argmax())], None


def _by_targets(bench: Bench, trial: Trial, stages: Tensor) -> Chosen:
    """The stage that is best on the targets, and what such a choice gives where nothing leaks."""
    target = trial.draw.target
    label, said = trial.goal.label[target], stages[:, target]
    best = int(torch.tensor([_mark(label, stage) for stage in said]).argmax())
    keys = Keys.seed(0).fold("permute oracle")
    return stages[best], luck_of_the_best(label, said, _mark, keys, bench.threat.permutations)


def _mark(truth: Tensor, scores: Tensor) -> float:
    """Score by which a stage is chosen: AUC of two classes, accuracy of more (as PARD), ranks of values."""
    if scores.shape[1] > 2:
        return float((scores.argmax(1) == truth).double().mean())
    return verdict.main_score(truth, scores)


def _checked(name: str, scores: Tensor, shape: tuple[int, int]) -> Tensor:
    if tuple(scores.shape) != shape or not bool(torch.isfinite(scores).all()):
        what = f"{name} answers with {list(scores.shape)}, or with values that are not finite"
        raise BadInput("attack", what, f"answer with finite scores of shape {list(shape)}")
    return scores.double()
