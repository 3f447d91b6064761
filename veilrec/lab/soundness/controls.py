"""Controls: six made-up tables on which it is known what an audit must say, attacked like the real one.

An audit that finds nothing in vectors proves little if its attackers would not find a planted signal either;
one that finds a leak in noise proves nothing at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from veilrec.attack import Seen
from veilrec.attacks.attribute import AttributeInference
from veilrec.base.keys import Keys
from veilrec.interactions import id_hashes
from veilrec.lab.lab import audit
from veilrec.lab.soundness.columns import places_of
from veilrec.lab.threat import Threat
from veilrec.lab.trials import People

__all__ = ["CONTROLS", "controls"]

USERS, WIDTH = 1000, 8
APART = 2.0  # standard deviations between two classes
Progress = Callable[[str, int, int], None]


class Control(NamedTuple):
    """A table with a known answer.

    Attributes:
        make: From keys and labels ``[users]`` of two classes to ``[users, WIDTH]``.
        told: What an audit must say: a leak, nothing, or the kind of a finding about its own input.
        means: The same in words.
    """

    make: Callable[[Keys, Tensor], Tensor]
    told: str
    means: str


def _planted(keys: Keys, label: Tensor) -> Tensor:
    return keys.normal(len(label), WIDTH) + APART / math.sqrt(WIDTH) * (label[:, None] - 0.5)


def _xor(keys: Keys, label: Tensor) -> Tensor:
    """The sign of the first column is a coin, that of the second the same for class 0 and the other for 1."""
    rows = keys.normal(len(label), WIDTH)
    sign = 2.0 * keys.fold("sign").integers(2, len(label)) - 1
    rows[:, 0] = rows[:, 0].abs() * sign
    rows[:, 1] = rows[:, 1].abs() * sign * (1 - 2 * label)
    return rows


def _spread(keys: Keys, label: Tensor) -> Tensor:
    return keys.normal(len(label), WIDTH) * (1 + 0.5 * label[:, None])


def _copy(keys: Keys, label: Tensor) -> Tensor:
    rows = keys.normal(len(label), WIDTH)
    rows[:, 3] = 1 - 2.0 * label
    return rows


LEAK, NOTHING = "leak", "nothing"
CONTROLS = {
    "planted signal": Control(_planted, LEAK, "a leak"),
    "XOR of two columns": Control(_xor, LEAK, "a leak"),
    "spread alone": Control(_spread, LEAK, "a leak"),
    "noise": Control(lambda keys, label: keys.normal(len(label), WIDTH), NOTHING, "nothing"),
    "constant": Control(
        lambda keys, label: torch.full((len(label), WIDTH), 0.5), "constant", "that all is constant"
    ),
    "perfect copy": Control(_copy, "answer", "that a column is the attribute"),
}


def controls(
    classifiers: Sequence[str], threat: Threat, seed: int = 0, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """What an audit by these attackers says of each control, and whether that is what it must say.

    Two classes of 1,000 users, eight columns, the share of known users of the threat, one draw. Noise is
    taken for a leak in one case of twenty, by the audit's own rule; with another seed it is another noise.
    """
    tell = progress or (lambda *told: None)
    found = []
    for place, (name, control) in enumerate(CONTROLS.items()):
        tell(name, place, len(CONTROLS))
        found.append(_judged(name, control, classifiers, threat, seed))
    return found


def _judged(
    name: str, control: Control, classifiers: Sequence[str], threat: Threat, seed: int
) -> dict[str, Any]:
    keys = Keys.seed(seed).fold("control").fold(name)
    label = keys.fold("label").integers(2, USERS)
    ids = [f"control {name} {k}" for k in range(USERS)]
    who = People({"class": label}, id_hashes(ids), {"class": ["0", "1"]}, places=places_of(ids))
    share = 0.2 if threat.share is None else threat.share
    same = Threat(known=share, resamples=threat.resamples, permutations=threat.permutations)
    same = replace(same, by_part=False, membership=False)
    attacks = {"": AttributeInference("embeddings", classifiers=classifiers)}
    told = audit(Seen.of_vectors(control.make(keys.fold("rows"), label)), who, same, attacks, seed)
    verdict = told["attributes"]["class"]["verdict"]
    kinds = [one["kind"] for one in told["soundness"]]
    said = kinds or [NOTHING if verdict["leaning"] == "none" else LEAK]
    return {
        "control": name,
        "must_say": control.means,
        "says": [one["sentence"] for one in told["soundness"]] or [verdict["sentence"]],
        "passed": said == [control.told],
        "attacker": verdict["attacker"].rpartition("/")[2],
        "auc": verdict["auc"],
        "leaning": verdict["leaning"],
    }
