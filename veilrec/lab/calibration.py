"""Calibration: how much noise APM gives each part of a model, and which component resists attacks least.

Paper: Zhang, Yuan and Yin, "Comprehensive Privacy Analysis on Federated Recommender System against Attribute
Inference Attacks", TKDE 2024 (APM), §4. There the order was read off a figure; here it is measured, with the
doubt about users and seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple

from veilrec.attack import Public, Seen
from veilrec.attacks.attribute import AttributeInference
from veilrec.base.params import part_of
from veilrec.defence import HOOKS
from veilrec.defences.apm import APM, component_of
from veilrec.errors import BadInput
from veilrec.lab.lab import People, audit
from veilrec.lab.threat import Threat
from veilrec.metrics.measures import Measure, interval
from veilrec.rounds import Federation
from veilrec.wire.codec import weights

__all__ = [
    "ATTACKERS",
    "Calibration",
    "Component",
    "Found",
    "Share",
    "allocation",
    "calibrated",
    "components_of",
    "leaks",
    "undefended",
]

ATTACKERS = ("logistic", "mlp-apm")  # whichever does better on known users speaks for a component
COLUMNS = 1024  # of a weight: four components and two attackers in a minute or two
CHANCE = 0.5
HARMLESS = ("stop",)  # hooks that change nothing of an upload


class Share(NamedTuple):
    """What APM does to one part: its component, place in the order, ε of a value and λ of the noise."""

    part: str
    component: str
    place: int
    epsilon: float
    scale: float


class Found(NamedTuple):
    """What one run's uploads of one component give away.

    Attributes:
        score: The mean over the attributes of AUC - 0.5, turned round where it is surely below.
        replicates: The same on every resample of the users.
        attributes: By name, the AUC and who reached it.
    """

    score: float
    replicates: Sequence[float]
    attributes: Mapping[str, tuple[float, str]]


class Component(NamedTuple):
    """A component over all runs: its parts, its score with the interval, and the mean AUC by attribute."""

    name: str
    parts: tuple[str, ...]
    score: Measure
    attributes: Mapping[str, float]


@dataclass(frozen=True)
class Calibration:
    """Components from the least to the most resistant.

    Attributes:
        components: In that order.
        differences: How much more each gives away than the next; one fewer than there are components.
    """

    components: Sequence[Component]
    differences: Sequence[Measure]

    @property
    def order(self) -> list[str]:
        """The names, as the option `order` of APM takes them."""
        return [one.name for one in self.components]

    @property
    def unsure(self) -> list[tuple[str, str]]:
        """Neighbours that cannot be told apart: the interval of their difference holds zero."""
        pairs = zip(pairwise(self.order), self.differences, strict=True)
        return [pair for pair, one in pairs if one.low is None or one.low <= 0]


def components_of(public: Public, components: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The uploaded parts of each component, in the order of the model.

    Raises:
        BadInput: Where a part stands for no component, or nothing is uploaded.
    """
    uploaded = {part_of(name) for name in weights(public.schema)}
    found: dict[str, tuple[str, ...]] = {}
    for part in (part for part in public.model.parts if part in uploaded):
        name = component_of(part, components)
        found[name] = (*found.get(name, ()), part)
    if not found:
        raise BadInput("model", "uploads no component of the paper's model", "choose one that is trained")
    return found


def allocation(public: Public, defence: APM) -> list[Share]:
    """What APM would do to each uploaded part, from most noise to least.

    Raises:
        BadInput: Where a part stands for no component, or for one that the order leaves out.
    """
    shares = []
    for component, parts in components_of(public, defence.components).items():
        for part in parts:
            epsilon, place = float(defence.budget(part)), defence.ranking.index(component)
            shares.append(Share(part, component, place, epsilon, 2 * defence.clip / epsilon))
    return sorted(shares, key=lambda share: share.place)


def undefended(federation: Federation, where: str) -> None:
    """Refuse a run from which no order can be learned.

    Raises:
        BadInput: Where a defence changes the uploads, or a client holds several users.
    """
    acting = [hook for hook in HOOKS if hook not in HARMLESS and federation.defence.acts(hook)]
    if acting:
        what = f"is defended ({', '.join(acting)}): what leaks is what the defence leaves"
        raise BadInput(where, what, "calibrate on a run without defences")
    if federation.clients.n_seats > 1:
        what = "is of silos: an upload holds many users"
        raise BadInput(where, what, "calibrate on a run of one user a client")


def leaks(
    seen: Seen,
    people: People,
    components: Mapping[str, Sequence[str]],
    threat: Threat,
    seed: int = 0,
    tell: Callable[[str, int, int], None] | None = None,
) -> dict[str, Found]:
    """What each component alone gives away in one run, by the worst of `ATTACKERS`.

    Attributes that are values and not classes are left out.

    Raises:
        BadInput: Where no attribute has classes, or one is unknown.
    """
    chosen = [name for name in threat.attributes or people.labels if _classed(people, name)]
    if not chosen:
        raise BadInput("threat.attributes", "no attribute has classes", "name one that has, as gender")
    bare = replace(threat, attributes=tuple(chosen), by_part=False, membership=False)
    found = {}
    for place, (name, parts) in enumerate(components.items()):
        if tell is not None:
            tell(name, place, len(components))
        attack = AttributeInference("updates", tuple(parts), ATTACKERS, COLUMNS)
        found[name] = _found(audit(seen, people, bare, {name: attack}, seed)["attributes"])
    return found


def _classed(people: People, attribute: str) -> bool:
    """False for values alone; a name that nobody knows is somebody else's complaint."""
    return attribute in people.labels or attribute not in people.values


def _found(attributes: Mapping[str, Any]) -> Found:
    """The verdicts on all attributes as one number, resample by resample."""
    verdicts = {name: entry["verdict"] for name, entry in attributes.items()}
    signs = {name: -1.0 if one["leaning"] == "below" else 1.0 for name, one in verdicts.items()}
    scores = [signs[name] * (one["auc"]["value"] - CHANCE) for name, one in verdicts.items()]
    resampled = zip(*(one["replicates"] for one in verdicts.values()), strict=True)
    replicates = [
        fmean(sign * (auc - CHANCE) for sign, auc in zip(signs.values(), each, strict=True))
        for each in resampled
    ]
    reached = {
        name: (one["auc"]["value"], one["attacker"].rpartition("/")[2]) for name, one in verdicts.items()
    }
    return Found(fmean(scores), replicates, reached)


def calibrated(runs: Sequence[Mapping[str, Found]], components: Mapping[str, Sequence[str]]) -> Calibration:
    """The order of the components over all runs: who gives away most resists least, and comes first."""

    order = sorted(components, key=lambda name: fmean(run[name].score for run in runs), reverse=True)
    ranked = [Component(name, tuple(components[name]), *_over(runs, name)) for name in order]
    return Calibration(ranked, [_difference(runs, one, other) for one, other in pairwise(order)])


def _over(runs: Sequence[Mapping[str, Found]], name: str) -> tuple[Measure, dict[str, float]]:
    """A component's score over the runs, and its mean AUC by attribute."""
    found = [run[name] for run in runs]
    score = interval([one.score for one in found], [one.replicates for one in found])
    return score, {name: fmean(one.attributes[name][0] for one in found) for name in found[0].attributes}


def _difference(runs: Sequence[Mapping[str, Found]], one: str, other: str) -> Measure:
    """How much more one component gives away than another: pairs of the same run and the same resample."""
    values = [run[one].score - run[other].score for run in runs]
    pairs = [zip(run[one].replicates, run[other].replicates, strict=True) for run in runs]
    return interval(values, [[a - b for a, b in both] for both in pairs])
