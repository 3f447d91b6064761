"""Attackers: the memory of those who learn from a reading, by what each holds of it.

They are counted and not tried: most are scikit-learn's, whose memory torch does not see, and they take long.
A count says how often the rows to learn from, and those asked about, are held at once, in bytes a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from veilrec.attacks.common.classifiers import CLASSIFIERS
from veilrec.attacks.common.jobs import BLOCK, STACK, WIDE, Sizes
from veilrec.attacks.common.perceptron import CHUNK, Perceptron

__all__ = ["Learning", "answers_of", "learning"]

KERNEL = 200 << 20  # what libsvm keeps of a kernel, at most
BINS, NODES = 64 * 24, 16  # a histogram of one column in bytes, and how many of them a tree of 8 leaves holds
TREES, NODE = 200, 64  # of a forest, with a node for four users; its bytes, and 8 more for each class
NET = 48  # bytes a weight: it, the best of it, its decay, two moments, its gradient twice, words to draw it


class BytesHeld(NamedTuple):
    """How often values are held: in bytes for each of the rows to learn from, and of those asked about."""

    taught: float
    asked: float


# A reading is float32 (4). `Scaled` makes it float64 (8) and less its mean (8); scikit-learn copies once more
# to check it (8), and `Tuned` holds two parts beside the whole (8).
HELD = {
    "linear": BytesHeld(4 + 16 + 8 + 8, 16),
    "quadratic": BytesHeld(4 + 16 + 16, 32),
    "tree": BytesHeld(4 + 4, 4),
    "forest": BytesHeld(4 + 4, 4),
    "boosting": BytesHeld(4 + 8 + 1, 8),
    "kernel": BytesHeld(4 + 16 + 8, 24),
    "neighbours": BytesHeld(4 + 16 + 8, 20),
    "floor": BytesHeld(4, 4),
}


class Learning(NamedTuple):
    """What is learned: by whom, from how many users of all, from how many columns, how often.

    Attributes:
        name: Of the attacker, in `CLASSIFIERS`.
        known, users: The users to learn from, and all.
        width: The columns of the reading.
        classes: Of the attribute that has most.
        jobs: The number of things to learn: draws, held-out parts and attributes.
        threads: How many are learned side by side.
        staged: Whether what an attacker says in each epoch is kept.
    """

    name: str
    known: int
    users: int
    width: int
    classes: int
    jobs: int
    threads: int
    staged: bool


def learning(one: Learning) -> int:
    """The bytes that an attacker takes while it learns, and is asked about everybody."""
    beside = min(one.threads, one.jobs)
    asked = min(one.users, max(1, BLOCK // max(1, one.width))) * one.width
    net = _net(one)
    if net is not None:
        return _stages(one, net) + beside * _nets(one, net, asked)
    held = HELD.get(CLASSIFIERS[one.name].family, HELD["linear"])
    return int(beside * (held.taught * one.known * one.width + held.asked * asked + _more(one)))


def answers_of(users: int, classes: Sequence[int], draws: int) -> int:
    """The bytes of one attacker's answers, which are kept until an audit is over."""
    return 8 * users * draws * sum(classes)


def _net(one: Learning) -> Perceptron | None:
    """The net, where the attacker is one of ours."""
    if one.name == "mlp-fedau2":  # scikit-learn's
        return None
    made = CLASSIFIERS[one.name].classes(Sizes(one.known, one.width, one.classes, 0))
    return made if isinstance(made, Perceptron) else None


def _nets(one: Learning, net: Perceptron, asked: int) -> int:
    """One thread's nets: their weights and rows, or one of them asked about a block of users."""
    count = 1 if one.width >= WIDE or one.staged else min(STACK, one.jobs)
    widths = [round(h * one.width) if isinstance(h, float) else h for h in net.hidden]
    layers = [one.width, *(max(1, wide) for wide in widths), max(2, one.classes)]
    weights = sum((into + 1) * out for into, out in pairwise(layers))
    step = min(net.batch or one.known, one.known)
    taught = one.known * one.width
    rows = count * 8 * taught + 24 * taught + count * 4 * step * (one.width + 4 * sum(layers[1:]))
    told = 20 * min(asked, CHUNK * one.width)
    return max(rows + count * NET * weights, count * 8 * taught + count * NET * weights // 2 + told)


def _stages(one: Learning, net: Perceptron) -> int:
    """What is said of everybody in each epoch, once as it comes and once put together."""
    return 2 * 8 * net.epochs * one.users * max(1, one.classes) if one.staged else 0


def _more(one: Learning) -> float:
    """What an attacker holds beside its rows."""
    family, small = CLASSIFIERS[one.name].family, min(one.width, one.known)
    leaves = TREES * one.known / 4 * (NODE + 8 * one.classes) if family == "forest" else 0
    square = {"lda": 24.0 * one.width**2, "qda": 8.0 * (one.classes + 3) * small**2}.get(one.name, 0.0)
    kernel = min(KERNEL, 8 * one.known**2) if family == "kernel" else 0
    bins = BINS * NODES * one.width if family == "boosting" else 0
    said = 3 * 8 * one.users * max(1, one.classes)
    return leaves + square + kernel + bins + said
