"""Attribute inference: learn labels from what the server saw of users whose label is known.

Papers: APM §3.3 (updates), PARD §II-B, Eq. 7 (parameters), Aegis §2.2 and FedAU² §5.1 (embeddings).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, Literal

from torch import Tensor

from veilrec.attack import Attack, Public, Seen, Task
from veilrec.attacks.common import classifiers
from veilrec.attacks.common.readings import Reading, read, refusal
from veilrec.base.limits.bounds import Bounds
from veilrec.errors import BadInput, nearest

__all__ = ["AttributeInference"]


@dataclass(frozen=True)
class AttributeInference(Attack):
    """A reading of the uploads, and any attackers that learn from it.

    The label is planted in the first column of everybody's vector, and known of the first four users:

    >>> import torch
    >>> vectors = torch.tensor([[-1.0, 0.2], [1.0, 0.1], [-1.1, -0.3], [0.9, 0.0], [1.2, 0.1], [-0.8, 0.2]])
    >>> task = Task(torch.tensor([0, 1, 0, 1, -1, -1]), classes=2)
    >>> attack = AttributeInference(reads="embeddings", classifiers=("mlp",))
    >>> attack.infer(Seen.of_vectors(vectors), task).argmax(1)
    tensor([0, 1, 0, 1, 1, 0])

    Attributes:
        reads: ``updates``, ``parameters``, ``profile``, ``embeddings``, ``recovered``, ``withheld``,
            ``lists`` or ``difference``; `readings` says what each is.
        parts: Parts of the model to read; empty for all.
        classifiers: Attackers that learn, by their names in `classifiers.CLASSIFIERS`.
        columns: A weight with more values than this is folded into so many columns.
    """

    learns: ClassVar[bool] = True

    reads: Literal[
        "updates", "parameters", "profile", "embeddings", "recovered", "withheld", "lists", "difference"
    ] = "updates"
    parts: Sequence[str] = ()
    classifiers: Sequence[str] = ("logistic", "mlp", "boosting", "forest", "knn")
    columns: Annotated[int, Bounds(1, 1_000_000)] = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.classifiers:
            if name not in classifiers.CLASSIFIERS:
                fix = nearest(name, classifiers.CLASSIFIERS)
                raise BadInput("attack.classifiers", f'no classifier "{name}"', fix)
        if not self.classifiers:
            raise BadInput("attack.classifiers", "an empty list", "name at least one")

    @property
    def family(self) -> str:
        return classifiers.CLASSIFIERS[self.classifiers[0]].family

    @property
    def _lead(self) -> str:
        """The name of the reading: ``updates of item``."""
        where = "+".join(self.parts)
        return f"{self.reads} of {where}" if where else self.reads

    def unfold(self) -> Mapping[str, Attack]:
        return {f"{self._lead}/{name}": replace(self, classifiers=(name,)) for name in self.classifiers}

    def table(self, seen: Seen) -> tuple[str, Tensor]:
        return self._lead, self._read(seen).features

    def infer(self, seen: Seen, task: Task) -> Tensor:
        return self.infer_all(seen, [task])[0]

    def infer_all(self, seen: Seen, tasks: Sequence[Task]) -> list[Tensor]:
        return classifiers.fit_predict(self.classifiers[0], self._shown(seen), [_job(t) for t in tasks])

    def stages(self, seen: Seen, task: Task) -> Tensor:
        return classifiers.staged(self.classifiers[0], self._shown(seen), _job(task))

    def refuses(self, public: Public | None, grants: Collection[str]) -> str:
        missing = [n for n in self.classifiers if n.startswith("xgboost") and find_spec("xgboost") is None]
        if missing:
            return f"{missing[0]} needs a package: pip install 'veilrec[boost]'"
        return "" if public is None else refusal(public, grants, self.reads, self.parts)

    def answers(self, seen: Seen, task: Task) -> bool:
        return task.classes > 0 or classifiers.CLASSIFIERS[self.classifiers[0]].values is not None

    def notes(self, seen: Seen) -> dict[str, Any]:
        return self._read(seen).notes()

    def _shown(self, seen: Seen) -> Tensor:
        """``[users, kept]`` features to learn from: for nets on the federation's device, else on the CPU."""
        device = "cpu" if seen.public is None or self.family != "neural" else seen.public.device
        return self._read(seen).features.to(device)

    def _read(self, seen: Seen) -> Reading:
        return read(seen, self.reads, self.parts, self.columns)


def _job(task: Task) -> classifiers.Job:
    rows = task.labelled
    return classifiers.Job(rows, task.known[rows], task.classes, task.seed)
