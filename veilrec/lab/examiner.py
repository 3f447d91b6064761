"""Audits: what a federation's uploads give away in a state, by our own protocol and by those of papers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from veilrec.attack import Attack, Public, Seen
from veilrec.attacks.attribute import AttributeInference
from veilrec.base.defaults import own_defaults
from veilrec.engine.probe import public, see
from veilrec.errors import BadInput
from veilrec.interactions import Interactions
from veilrec.lab.curve_audit import Along
from veilrec.lab.lab import Audit, People, audit, fitting
from veilrec.lab.membership import membership
from veilrec.lab.presets import OWN, PRESETS, preset
from veilrec.lab.soundness.controls import controls as controlled
from veilrec.lab.soundness.uploads import over_uploads
from veilrec.lab.threat import Threat
from veilrec.lab.trials import Trial, goals_of, trial_of
from veilrec.protocol import State
from veilrec.rounds import Federation
from veilrec.wire.transcript import Transcript

__all__ = ["CUSTOM", "Examiner"]

CUSTOM = "custom"  # the name of a protocol that somebody put together
Progress = Callable[[str, int, int, Mapping[str, float] | None], None]


@dataclass(frozen=True)
class Examiner:
    """Runs audits on a federation.

    Attributes:
        data: The log; its attributes are the truth that attacks are judged by.
        audits: What is run.
        seed: Of known users and attackers.
        along: What is run while a model is trained.
    """

    data: Interactions
    audits: Sequence[Audit]
    seed: int = 0
    along: Along | None = None

    @classmethod
    def of(
        cls, data: Interactions, threat: Threat | None, attacks: Mapping[str, Attack], seed: int
    ) -> Examiner:
        """The audits that an experiment asks for: none without a threat, our own without attacks."""
        if threat is None:
            return cls(data, (), seed)
        own = Audit(CUSTOM, threat, attacks) if attacks else replace(PRESETS[OWN], threat=threat)
        others = [_with(preset(name, threat.attributes), threat) for name in threat.also]
        along = Along.of(data, threat, seed) if threat.along else None
        return cls(data, [own, *others] if threat.own or attacks else others, seed, along)

    def check(self, federation: Federation, kept: Collection[str] | None = None) -> None:
        """Find out before any work whether there is anything to attack, and anything to attack it with.

        Args:
            federation: That will be trained, or was.
            kept: The weights of which rounds of training will be kept; None where it is over, and attacks
                look for themselves.

        Raises:
            BadInput: Where an attribute is unknown, too few users have a label, no attack can look, or one
                reads rounds that will not be kept.
        """
        people, known = People.of(self.data).sharing(federation.clients), public(federation)
        there = torch.zeros(self.data.n_users, dtype=torch.bool)
        seats = known.seats[federation.able.cpu()]
        there[seats[seats >= 0]] = True
        for one in [*self.audits, *([self.along.audit] if self.along else [])]:
            goals = goals_of(people, one.threat, there)
            draws = itertools.product(goals, range(one.threat.repeats))
            trials = [trial_of(goal, one.threat, people.tags, self.seed, repeat) for goal, repeat in draws]
            for name, attack in fitting(one, known).items():
                _check_answers(name, attack, known, trials)
                if kept is not None:
                    _check_kept(name, attack, known, trials, kept)

    @own_defaults()
    def examine(
        self,
        federation: Federation,
        state: State,
        round: int,
        kept: Path | None,
        progress: Progress,
        *,
        controls: bool = False,
    ) -> dict[str, Any]:
        """Every audit's findings, by its name; with `controls` also that of made-up tables."""
        found, people, known = {}, People.of(self.data).sharing(federation.clients), public(federation)
        looks: dict[tuple[str, ...], Seen] = {}  # what was read once is there for the next audit
        for one in self.audits:
            grants = tuple(sorted(one.threat.grants))
            if grants not in looks:
                transcript = Transcript.open(kept) if kept is not None and kept.is_file() else None
                looks[grants] = see(federation, state, grants, transcript)
            seen = looks[grants]

            def tell(name: str, done: int, total: int, title: str = one.name) -> None:
                progress(f"attack by {title}: {name}", done, total, None)

            attacks = fitting(one, known)
            report = audit(seen, people, one.threat, attacks, self.seed, tell, one.alone)
            report["sees"] = _sees(attacks, seen, round)
            if one.threat.membership:
                train = federation.clients.log
                touched = train.user.cpu(), train.item.cpu()
                report["membership"] = membership(seen, *touched, people, one.threat.resamples)
            if controls:
                learners = _learners(attacks)
                report["controls"] = controlled(learners, one.threat, self.seed, tell) if learners else []
                report["uploads"] = over_uploads(seen, people, one.threat, self.seed)
            found[one.name] = report
        return found


def _learners(attacks: Mapping[str, Attack]) -> list[str]:
    """The attackers of an audit that learn from rows of numbers, each once."""
    several = [one.classifiers for one in attacks.values() if isinstance(one, AttributeInference)]
    return list(dict.fromkeys(name for names in several for name in names))


def _sees(attacks: Mapping[str, Attack], seen: Seen, round: int) -> str:
    """Name what the attackers of an audit looked at."""
    kept = [one.kept for attack in attacks.values() for one in attack.unfold().values()]
    told = []
    if not kept or not all(kept):
        told.append(f"one upload of every user on the state of round {round}, after every defence")
    if any(kept) and seen.kept is not None and seen.public is not None:
        rounds = seen.kept.rounds
        met = torch.cat([seen.kept.cohort(one) for one in rounds]).unique()
        users = int((seen.public.seats[met] >= 0).sum())
        span = f"{len(rounds)} round{'s' * (len(rounds) > 1)} of training"
        told.append(f"the uploads of {span}, in which {users} of {seen.public.n_users} users took part")
    return "; and ".join(told)


def _with(one: Audit, threat: Threat) -> Audit:
    """A paper's protocol where the experiment may not want the parts of the model attacked alone."""
    return replace(one, threat=replace(one.threat, by_part=one.threat.by_part and threat.by_part))


def _check_answers(name: str, attack: Attack, known: Public, trials: Sequence[Trial]) -> None:
    """Refuse an attack that has nothing to say about any attribute, as one on a part that is not there."""
    blind = Seen(known, lambda *parts: iter(()))
    for entry, one in attack.unfold().items():
        if trials and not any(one.answers(blind, trial.task) for trial in trials):
            goals = ", ".join(dict.fromkeys(trial.goal.name for trial in trials))
            what = f"can say nothing about {goals}"
            raise BadInput(f"attack {entry or name}", what, "check its part and its attribute, or drop it")


def _check_kept(
    name: str, attack: Attack, known: Public, trials: Sequence[Trial], kept: Collection[str]
) -> None:
    """Refuse an attack that reads weights in rounds of training of which they will not be kept."""
    blind, goals = Seen(known, lambda *parts: iter(())), {trial.goal.name: trial.task for trial in trials}
    for entry, one in attack.unfold().items():
        wanted = [weight for task in goals.values() for weight in one.keeps(blind, task)]
        if missing := [weight for weight in wanted if weight not in kept]:
            what = f'no round is kept with "{missing[0]}", which attack {entry or name} reads'
            raise BadInput(
                "record", what, "give record.last, with that among record.parts, or drop the attack"
            )
