"""Jobs: one attacker taught many things at once, side by side where there are cores for it.

No bit of an answer depends on the number of threads: the libraries get one each, because they would add
up in another order, and what is learned together is decided by the jobs alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from veilrec.attacks.common.perceptron import Perceptron, alike, learn
from veilrec.engine.workers import Workers, workers
from veilrec.errors import BadInput

__all__ = ["FAMILIES", "Classifier", "Job", "Sizes", "answers", "stages"]

FAMILIES = ("neural", "linear", "quadratic", "tree", "kernel", "neighbours", "forest", "boosting", "floor")
BLOCK = 1 << 25  # values that an attacker is asked about at a time: 256 MB in float64
STACK = 4  # nets that learn at once: more do not fit the cache of a core
WIDE = 4096  # columns with which not even one fits: then every net is a job of its own, for a core of its own
COLUMNS_ON_GPU = 1 << 19  # of all nets that learn at once on a GPU, which waits less the more they are


class Job(NamedTuple):
    """One thing to learn.

    Attributes:
        rows: ``[k]`` the users to learn from.
        label: ``[k]`` their classes (int64), or values (float).
        classes: How many classes there are; 0 for values.
        seed: Of whatever the attacker draws.
    """

    rows: Tensor
    label: Tensor
    classes: int
    seed: int = 0


class Sizes(NamedTuple):
    """The sizes an attacker is built for: rows to learn from, columns, classes (0 for values), and a seed."""

    rows: int
    width: int
    classes: int
    seed: int


@dataclass(frozen=True)
class Classifier:
    """One attacker.

    Attributes:
        family: What kind of attacker it is, one of `FAMILIES`.
        classes: Makes a scikit-learn shaped classifier for a shape.
        values: The same for a continuous attribute; None where the attacker has no such form.
    """

    family: str
    classes: Callable[[Sizes], Any]
    values: Callable[[Sizes], Any] | None = None


def answers(entry: Classifier, features: Tensor, jobs: Sequence[Job], threads: int) -> list[Tensor]:
    """Predictions for all users, ``[users, classes]`` or ``[users, 1]``, job by job."""
    models = [_make(entry, features, job) for job in jobs]
    stacks = _stacks(models, jobs, _at_once(features))
    said: dict[int, Tensor] = {}
    with _side_by_side(threads) as crew:
        found = crew.map(lambda stack: _taught(features, [(models[k], jobs[k]) for k in stack]), stacks)
        for stack, scores in zip(stacks, found, strict=True):
            said |= dict(zip(stack, scores, strict=True))
    return [said[place] for place in range(len(jobs))]


def stages(entry: Classifier, features: Tensor, job: Job) -> Tensor:
    """``[stages, users, classes]`` an attacker's predictions while it learns; of all but nets one stage."""
    model = _make(entry, features, job)
    if not isinstance(model, Perceptron):
        return answers(entry, features, [job], 1)[0][None]
    with _side_by_side(1):
        said = model.fit_staged(*_rows(features, job), features)
        return torch.stack([_whole(one, job) for one in said])


def _make(entry: Classifier, features: Tensor, job: Job) -> Any:
    """The attacker of a job, not yet taught; None where the known users are all alike."""
    make = entry.classes if job.classes else entry.values
    if make is None:
        raise BadInput(
            "attack.classifiers", "one that knows classes, not values", "choose another, such as mlp"
        )
    if not len(job.rows):
        raise BadInput("threat.known", "there is no user to learn from", "let more users be known")
    if len(job.label.unique()) == 1:
        return None
    return make(Sizes(len(job.rows), features.shape[1], job.classes, job.seed % 2**32))


def _at_once(features: Tensor) -> int:
    """The number of nets that learn at once."""
    if features.device.type != "cpu":
        return max(1, COLUMNS_ON_GPU // max(1, features.shape[1]))
    return STACK if features.shape[1] < WIDE else 1


def _stacks(models: Sequence[Any], jobs: Sequence[Job], most: int) -> list[list[int]]:
    """Groups of jobs to learn at once: up to so many nets with equal settings, and every other job alone."""
    nets = [place for place, model in enumerate(models) if isinstance(model, Perceptron)]
    groups = alike([models[place] for place in nets], [len(jobs[place].rows) for place in nets])
    cut = [group[i : i + most] for group in groups for i in range(0, len(group), most)]
    return [[nets[k] for k in part] for part in cut] + [[k] for k in range(len(models)) if k not in nets]


def _taught(features: Tensor, work: Sequence[tuple[Any, Job]]) -> list[Tensor]:
    """Teach one stack of nets, or one other attacker, and ask about everybody."""
    model, job = work[0]
    if model is None:
        same = job.label[:1].double() if not job.classes else torch.ones(1, 1)
        return [_whole(same.expand(len(features), *same.shape[1:]), job)]
    if isinstance(model, Perceptron):
        learn([net for net, _ in work], [_rows(features, each) for _, each in work])
        return [_asked(net, features, each) for net, each in work]
    with threadpool_limits(1, "openmp"):  # a setting of each thread
        x, y = _rows(features, job)
        model.fit(x.numpy(force=True), y.numpy(force=True))
        return [_asked(model, features.numpy(force=True), job)]


def _asked(model: Any, features: Any, job: Job) -> Tensor:
    """Predictions for everybody; where rows are wide, for some users at a time: most attackers copy them."""
    some = max(1, BLOCK // max(1, features.shape[1]))
    tell = model.predict_proba if job.classes else model.predict
    return torch.cat([_whole(tell(features[k : k + some]), job) for k in range(0, len(features), some)])


def _rows(features: Tensor, job: Job) -> tuple[Tensor, Tensor]:
    """``[k, width]`` and ``[k]`` rows and labels to learn from; classes that occur are numbered from 0."""
    rows, label = features[job.rows.to(features.device)], job.label.to(features.device)
    return rows, label.unique(return_inverse=True)[1] if job.classes else label.double()


def _whole(said: Any, job: Job) -> Tensor:
    """``[users, classes that occur]`` to ``[users, classes]``; values ``[users]`` to ``[users, 1]``."""
    found = torch.as_tensor(said).cpu().double()
    if not job.classes:
        return found[:, None].clone()
    whole = found.new_zeros(len(found), job.classes)
    whole[:, job.label.cpu().unique()] = found
    return whole


@contextmanager
def _side_by_side(n: int) -> Iterator[Workers]:
    """Threads of our own, and none inside the libraries."""
    with workers(n) as crew, threadpool_limits(1), warnings.catch_warnings():
        # An attacker that has not converged in the steps it is given is weaker, not wrong.
        warnings.filterwarnings("ignore", "(?s).*converge", UserWarning)
        yield crew
