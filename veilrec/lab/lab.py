"""The lab: attacks under one protocol, judged by what they find out about users who did not tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from veilrec.attack import GRANTS, Attack, Public, Seen
from veilrec.attacks.attribute import AttributeInference
from veilrec.attacks.common.readings import covered, parts_of
from veilrec.base.defaults import own_defaults
from veilrec.base.params import part_of
from veilrec.errors import BadInput
from veilrec.lab import verdict
from veilrec.lab.soundness.findings import checked
from veilrec.lab.threat import Threat
from veilrec.lab.trials import Goal, People, Trial, goals_of, trial_of
from veilrec.lab.tried import Bench, lessened, tried
from veilrec.lab.verdict import Tried
from veilrec.metrics.leaks import RULE

__all__ = ["Audit", "People", "audit", "fitting"]

Progress = Callable[[str, int, int], None]
ALONE = AttributeInference("updates", classifiers=("logistic",))  # quick, because there are many parts
PERCEPTRON = "mlp"  # how the names of a perceptron's layers begin: where several are uploaded, also together


@dataclass(frozen=True)
class Audit:
    """Attacks and the protocol they are run by, under a name.

    Attributes:
        name, threat, attacks: What it is called, the protocol, and who attacks.
        picks: Whether attacks that cannot look at a federation are left out; else they are an error.
        alone: Who attacks each part of the model alone, where the threat asks for that.
    """

    name: str
    threat: Threat
    attacks: Mapping[str, Attack]
    picks: bool = False
    alone: AttributeInference = ALONE


def fitting(one: Audit, known: Public) -> dict[str, Attack]:
    """The attacks of an audit that can look at such a federation.

    Raises:
        BadInput: Where none can, or where one cannot that somebody asked for by name.
    """
    reasons = {name: attack.refuses(known, one.threat.grants) for name, attack in one.attacks.items()}
    for name, reason in reasons.items():
        if reason and (not one.picks or all(reasons.values())):
            what, _, fix = reason.partition("; ")
            raise BadInput(f"attack {name} of {one.name}", what, fix or "choose other attacks")
    return {name: attack for name, attack in one.attacks.items() if not reasons[name]}


@own_defaults()
def audit(
    seen: Seen,
    people: People,
    threat: Threat,
    attacks: Mapping[str, Attack],
    seed: int = 0,
    progress: Progress | None = None,
    alone: AttributeInference = ALONE,
    *,
    sound: bool = True,
) -> dict[str, Any]:
    """Everything that the attacks find out, as ``result.json`` keeps it; `alone` attacks part by part.

    Where it is not to be `sound`, nobody looks for copies of people or for columns that are the answer.

    Raises:
        BadInput: Where an attribute is unknown, too few users have a label, or an attack answers badly.
    """
    began, tell = time.perf_counter(), progress or (lambda *told: None)
    there = covered(seen)
    goals = goals_of(people, threat, there)
    trials = [
        trial_of(goal, threat, people.tags, seed, repeat)
        for goal in goals
        for repeat in range(threat.repeats)
    ]
    several = {name: one for entry, attack in attacks.items() for name, one in _unfold(entry, attack)}
    look = checked(_readings(seen, several), people, goals, there, seen.columns) if sound else None
    bench = Bench(seen, threat, people, look and look.copies, look and look.blank, choosing=len(several) > 1)
    judged = _verdicts(bench, goals, trials, _attacked(bench, trials, several, tell))
    parts = _by_part(bench, trials, alone, tell) if threat.by_part else {}
    for name, entry in judged.items():
        entry["parts"] = parts.get(name, [])
    return {
        "threat": {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(threat).items()},
        "seed": seed,
        "grants": [GRANTS[grant] for grant in threat.grants],
        "oracle": threat.selection == "oracle" or any(attack.oracle for attack in several.values()),
        "rule": RULE,
        "soundness": look.findings if look else [],
        "attributes": judged,
        "membership": None,
        "seconds": round(time.perf_counter() - began, 3),
    }


def _readings(seen: Seen, several: Mapping[str, Attack]) -> dict[str, Tensor]:
    """What the attackers learn from, each table once."""
    tables = (attack.table(seen) for attack in several.values())
    return {name: rows for table in tables if table is not None for name, rows in [table]}


def _attacked(
    bench: Bench, trials: Sequence[Trial], several: Mapping[str, Attack], tell: Progress
) -> dict[str, list[tuple[Tried, Mapping[str, Tried]]]]:
    """Every attacker on every goal that it answers; and the same on fewer targets."""
    found: dict[str, list[tuple[Tried, Mapping[str, Tried]]]] = {trial.goal.name: [] for trial in trials}
    for place, (name, attack) in enumerate(several.items()):
        tell(name, place, len(several))
        for goal, one, others in tried(bench, trials, name, attack):
            found[goal.name].append((one, others))
    return found


def _verdicts(
    bench: Bench,
    goals: Sequence[Goal],
    trials: Sequence[Trial],
    attacked: Mapping[str, Sequence[tuple[Tried, Mapping[str, Tried]]]],
) -> dict[str, Any]:
    """The verdict on each attribute; beside it those without copies that are known, and without zeros."""
    found = {}
    for goal in goals:
        if not attacked[goal.name] and not bench.threat.attributes:
            continue  # where all are attacked, leave out what nobody can answer
        own = [trial for trial in trials if trial.goal is goal]
        everybody = [one for one, _ in attacked[goal.name]]
        entry = verdict.attribute(goal, own, everybody, bench.people, bench.threat)
        found[goal.name] = {**entry, "without_copies": None, "without_zeros": None}
        for fewer, less in lessened(bench).items():
            apart = [others[fewer] for _, others in attacked[goal.name] if fewer in others]
            found[goal.name][fewer] = _without(bench, goal, own, [less(trial) for trial in own], apart)
    return found


def _without(
    bench: Bench, goal: Goal, trials: Sequence[Trial], fewer: Sequence[Trial], apart: Sequence[Tried]
) -> dict[str, Any] | None:
    """The verdict on fewer targets; None where they are as many, or nobody else is left."""
    if not apart:
        return None
    entry = verdict.attribute(goal, fewer, apart, bench.people, bench.threat)
    before = sum(int(trial.draw.target.sum()) for trial in trials)
    left = sum(int(trial.draw.target.sum()) for trial in fewer)
    return {"left_out": round((before - left) / len(trials), 1), "verdict": entry["verdict"]}


def _unfold(entry: str, attack: Attack) -> Iterator[tuple[str, Attack]]:
    for name, one in attack.unfold().items():
        yield name or entry, one


def _by_part(
    bench: Bench, trials: Sequence[Trial], alone: AttributeInference, tell: Progress
) -> dict[str, list[dict[str, Any]]]:
    """Each uploaded part attacked alone, by one attacker."""
    seen = bench.seen
    if seen.public is None or seen.public.seats.shape[1] > 1:
        return {}
    found: dict[str, list[dict[str, Any]]] = {}
    some = [trial for trial in trials if trial.goal.classes]
    looks, quick = _looks(seen, alone), bench._replace(copies=None, blank=None, choosing=False, tested=False)
    for place, (name, attack) in enumerate(looks.items()):
        tell(name, place, len(looks))
        for goal, one, _ in tried(quick, some, name, attack):
            scores = {key: verdict.told(one.scores[key]) for key in verdict.PAIRED}
            told = {"part": name, "classifier": alone.classifiers[0], **scores}
            told["replicates"] = verdict.replicates(one)
            found.setdefault(goal.name, []).append(told)
    return found


def _looks(seen: Seen, alone: AttributeInference) -> dict[str, Attack]:
    """Attacks on single parts: each as it is, of a table also the mean of the rows picked, and all layers."""
    assert seen.public is not None
    tables = {part_of(name) for name, spec in seen.public.schema.items() if spec.table is not None}
    looks: dict[str, Attack] = {}
    for part in parts_of(seen):
        looks[part] = replace(alone, parts=(part,))
        if part in tables:
            looks[f"{part}, rows picked"] = replace(alone, reads="parameters", parts=(part,))
    model = seen.public.model.parts
    layers = tuple(p for p in parts_of(seen) if p.startswith(PERCEPTRON) and model[p].rows is None)
    if len(layers) > 1:
        looks[PERCEPTRON] = replace(alone, parts=layers)
    return looks
