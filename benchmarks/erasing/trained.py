"""Trained: recommenders of which users' vectors are taken, and how useful they are with other vectors."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from veilrec.base.params import Params
from veilrec.base.plan import Plan
from veilrec.base.tensors import beneath, read, write
from veilrec.cli import finished
from veilrec.clients import Clients
from veilrec.datasets.common.places import find
from veilrec.datasets.ml_1m import ml_1m
from veilrec.datasets.ml_100k import ml_100k
from veilrec.datasets.synthetic import synthetic
from veilrec.engine.evaluation import Evaluation, candidates, evaluate
from veilrec.engine.workers import workers
from veilrec.experiment import Experiment
from veilrec.interactions import Interactions
from veilrec.model import Recommender
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.runs.erasing import user_vectors

__all__ = ["DATASETS", "MODELS", "Trained", "data_of", "file_of", "train"]

DATASETS = ("ml-100k", "ml-1m", "toy")
MODELS = ("fedmf", "fedncf")
VECTORS = {"fedmf": ("user",), "fedncf": ("user", "mlp_user")}
SAMPLED = Evaluation(candidates=99, metrics=("hr", "ndcg"), ks=(10,))
WHOLE = Evaluation(candidates=0, metrics=("hr", "ndcg"), ks=(10,))
AGES = (18, 25, 35, 45, 50, 56)  # first years of the second and later of seven groups
SILOS = 10


class Schedule(NamedTuple):
    """How long a recommender is trained at most: the best state on validation items is taken."""

    rounds: int
    epochs: int
    batch: int


SCHEDULES = {
    ("ml-100k", "fedmf"): Schedule(36, 2, 512),
    ("ml-100k", "fedncf"): Schedule(36, 2, 512),
    ("ml-1m", "fedmf"): Schedule(24, 1, 512),
    ("ml-1m", "fedncf"): Schedule(24, 1, 512),
    ("toy", "fedmf"): Schedule(4, 2, 64),
    ("toy", "fedncf"): Schedule(4, 2, 64),
}


@lru_cache(maxsize=1)
def data_of(name: str) -> Interactions:
    """A log with gender, age in seven groups and occupation."""
    if name == "toy":
        return synthetic(users=240, items=260)
    path = find(name)
    return ml_100k(path, ages=AGES) if name == "ml-100k" else ml_1m(path, ages=AGES)


def model_of(kind: str, dataset: str) -> Any:
    """What makes the recommender, whose users have 128 numbers: under FedNCF 64 and 64."""
    width = 16 if dataset == "toy" else 128
    if kind == "fedmf":
        return partial(FedMF, dim=width, objective="bpr", scale=0.1)
    return partial(FedNCF, kind="neumf", dim=width // 2, head=(64, 32), objective="bpr", scale=0.1)


def file_of(folder: Path, dataset: str, model: str, seed: int) -> Path:
    """Where a trained recommender is kept."""
    return folder / f"trained-{dataset}-{model}-{seed}.safetensors"


def train(folder: Path, dataset: str, model: str, seed: int) -> dict[str, Any]:
    """Train, and keep what is needed afterwards; how useful it became."""
    rounds, epochs, batch = SCHEDULES[dataset, model]
    plan = Plan(
        rounds=rounds,
        epochs=epochs,
        batch=batch,
        negatives=1,
        optimiser="adam",
        lr=0.003,
        evaluate_every=1,
        patience=4,
        workers=1,
    )
    data = data_of(dataset)
    experiment = Experiment(
        data, model_of(model, dataset), plan=plan, evaluation=SAMPLED, seed=seed, silos=SILOS
    )
    with tempfile.TemporaryDirectory(prefix="erasers-") as place:
        result = experiment.run(Path(place) / "run")
        opened = finished.reopen(Path(place) / "run")
        users, vectors = user_vectors(opened.federation.fleet, list(VECTORS[model]))
    kept = torch.zeros(data.n_users, vectors.shape[1])
    kept[users] = vectors
    server = {f"server/{name}": value for name, value in opened.state.server.items()}
    write(file_of(folder, dataset, model, seed), {"users": kept, **server})
    return {**result.utility.test, "round": result.selected}


@dataclass(frozen=True)
class Trained:
    """A trained recommender, whose users' vectors may be exchanged for others.

    Attributes:
        vectors: ``[users, width]`` as they were trained.
        server: The weights that all users share.
    """

    dataset: str
    name: str
    vectors: Tensor
    server: Params

    @classmethod
    def at(cls, folder: Path, dataset: str, model: str, seed: int) -> Trained:
        """One that was kept."""
        found = read(file_of(folder, dataset, model, seed))
        return cls(dataset, model, found["users"], dict(beneath(found, "server/")))

    def useful(self, vectors: Tensor) -> dict[str, Tensor]:
        """By metric ``[users]``: with 99 sampled items, and with all that the user has not touched."""
        clients, pool = _judged_by(self.dataset)
        model = self._model
        found: dict[str, Tensor] = {}
        for name, protocol, drawn in (("99", SAMPLED, pool), ("all", WHOLE, None)):

            def score(cohort: Tensor, items: Tensor | None) -> Tensor:
                own = self._own(vectors[clients.seats[cohort, 0]])
                return model.cohort_scores({**self.server, **own}, None, items)  # type: ignore[arg-type]

            with workers(1) as threads:
                scored = evaluate(protocol, clients, "test", score, drawn, threads)
            found |= {f"{metric}/{name}": value for metric, value in scored.values.items()}
        return found

    def scores(self, vectors: Tensor) -> Tensor:
        """``[users, items]`` of all users."""
        whole = self._model.cohort_scores({**self.server, **self._own(vectors)}, None, None)  # type: ignore[arg-type]
        return whole[:, 0]

    @property
    def _model(self) -> Recommender:
        made: Recommender = model_of(self.name, self.dataset)(data_of(self.dataset).n_items)
        return made

    def _own(self, vectors: Tensor) -> Params:
        """Vectors as the weights of one-user devices ``[c, 1, width]``."""
        names = VECTORS[self.name]
        parts = vectors.float().split(vectors.shape[1] // len(names), 1)
        return {name: part[:, None] for name, part in zip(names, parts, strict=True)}


@lru_cache(maxsize=1)
def _judged_by(dataset: str) -> tuple[Clients, Tensor]:
    """One client a user, whose held-out items are those of the silos, and 99 items each."""
    clients = Clients.phones(data_of(dataset).leave_one_out(validation=True))
    return clients, candidates(clients, SAMPLED.candidates)
