"""Audits: what attackers hold, from what they read to their answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from veilrec.attack import Attack
from veilrec.attacks.attribute import AttributeInference
from veilrec.attacks.common.classifiers import CLASSIFIERS
from veilrec.base.limits.fits import Need
from veilrec.engine.probe import public
from veilrec.lab.examiner import Examiner
from veilrec.lab.lab import Audit, fitting
from veilrec.lab.soundness import copies
from veilrec.lab.threat import Threat
from veilrec.runs.needs.attackers import Learning, answers_of, learning
from veilrec.runs.needs.counts import Counts
from veilrec.runs.needs.readings import Readings
from veilrec.runs.needs.trial import Tryout

__all__ = ["Audits", "Examined", "draws"]

LIBRARIES = {"sklearn": 90 << 20, "scipy.stats": 60 << 20}  # bytes of a first import, as measured
OURS = ("neural", "floor")  # families without scikit-learn, but for one net
REPLICATE, REPLICATED = 32, 6  # bytes of a number in a list; how many scores of an attacker are resampled
COMPARED = 48  # bytes of a value among the columns that are looked through for copies


class Examined(NamedTuple):
    """An audit: what is held while its readings are made, and while its attackers learn."""

    name: str
    reading: tuple[Need, ...]
    learning: tuple[Need, ...]


@dataclass
class Audits:
    """The audits of a run, one after another.

    Attributes:
        counts, examiner, trial: The federation, its audits, and a trial of it.
    """

    counts: Counts
    examiner: Examiner
    trial: Tryout
    _imported: set[str] = field(default_factory=set)

    def __iter__(self) -> Iterator[Examined]:
        along, seen = self.examiner.along, public(self.counts.federation)
        readings = Readings(self.counts, self.trial, seen)
        for one in [*self.examiner.audits, *([along.audit] if along else [])]:
            yield self._examined(one, fitting(one, seen), readings)

    def _examined(self, one: Audit, attacks: Mapping[str, Attack], readings: Readings) -> Examined:
        several = [each for attack in attacks.values() for each in attack.unfold().values()]
        readers = [each for each in several if isinstance(each, AttributeInference)]
        readers += [one.alone] if one.threat.by_part else []
        made = [readings.of(each, one.threat) for each in readers]
        common = [*self._libraries(readers, one.threat), *self._judging(one.threat, len(several))]
        common.append(Need("readings", readings.kept))
        making = Need("making a reading", max((one.bytes for one in made), default=0))
        jobs = one.threat.repeats * (1 + one.threat.folds * (len(several) > 1))
        learners = [
            self._learning(each, one.threat, found.width, jobs)
            for each, found in zip(readers, made, strict=True)
        ]
        widest = max((one.width for one in made), default=0)
        looks = Need("looking for copies", COMPARED * self.counts.users * min(widest, copies.AT_ONCE))
        most = Need("the attacker who holds most", max(learners, default=0))
        return Examined(one.name, (*common, making), (*common, looks, most))

    def _learning(self, one: AttributeInference, threat: Threat, width: int, jobs: int) -> int:
        goals, threads = self._classes(threat), torch.get_num_threads()
        known = self.counts.users if threat.share is None else max(1, round(threat.share * self.counts.users))
        staged = threat.selection != "last"
        return learning(
            Learning(
                one.classifiers[0],
                known,
                self.counts.users,
                width,
                max(goals),
                jobs * len(goals),
                threads,
                staged,
            )
        )

    def _judging(self, threat: Threat, attackers: int) -> Iterator[Need]:
        """Draws of known users, what attackers answer, and resamples of the people."""
        users, goals = self.counts.users, self._classes(threat)
        yield draws(threat, users, len(goals))
        answers = attackers * answers_of(users, goals, threat.repeats)
        yield Need("answers", answers, "threat.repeats", threat.repeats)
        lists = REPLICATE * REPLICATED * attackers * len(goals)
        yield Need("resamples", (2 * users + lists) * threat.resamples, "threat.resamples", threat.resamples)

    def _libraries(self, readers: Sequence[AttributeInference], threat: Threat) -> Iterator[Need]:
        names = [name for one in readers for name in one.classifiers]
        foreign = any(CLASSIFIERS[name].family not in OURS or name == "mlp-fedau2" for name in names)
        self._imported |= {"sklearn"} if foreign else set()
        self._imported |= {"scipy.stats"} if threat.membership else set()
        wanted = sorted(self._imported - sys.modules.keys())  # the others are held already
        yield from (Need(name, LIBRARIES[name]) for name in wanted)

    def _classes(self, threat: Threat) -> list[int]:
        """The classes of each attribute that is attacked; one of a continuous one."""
        data = self.examiner.data
        names = threat.attributes or [*data.attributes, *data.values]
        return [len(data.classes.get(name, ())) or 2 if name in data.attributes else 1 for name in names] or [
            1
        ]


def draws(threat: Threat, users: int, goals: int) -> Need:
    """The known and target users of every draw, and the parts that are held out in turn."""
    each = 10 + 9 * threat.folds  # a label and two masks, and in each part a label and a mask
    return Need(
        "draws of known users", goals * threat.repeats * users * each, "threat.repeats", threat.repeats
    )
