"""The benchmark's round in pfl-research: its simulated backend, its averaging, its worker processes."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import CrossSiloUserSampler
from pfl.data.user_state import InMemoryUserStateStorage
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import fedncf, worlds
from benchmarks.examples import Sampler
from benchmarks.loop import share_out

DEADLINE = 600


class Module(nn.Module):
    """FedNCF as pfl wants it; the user's own vector is put in before each client is trained."""

    def __init__(self, weights: fedncf.Weights) -> None:
        super().__init__()
        self.item = nn.Parameter(weights.item.clone())
        self.head = nn.ParameterList([weight.clone() for weight in weights.head])
        self.labels = fedncf.labels()
        self.user = torch.zeros(fedncf.WIDTH)

    def weights(self) -> fedncf.Weights:
        """What the server averages."""
        return fedncf.Weights(self.item.detach(), tuple(weight.detach() for weight in self.head))

    def loss(self, items: Tensor) -> Tensor:
        """Binary cross-entropy of examples ``[n, 1 + NEGATIVES]``."""
        rows = functional.embedding(items.reshape(-1), self.item)
        logits = fedncf.scores(self.user, rows, tuple(self.head))
        return functional.binary_cross_entropy_with_logits(logits, self.labels[: len(logits)])

    def metrics(self, items: Tensor) -> dict[str, Weighted]:
        """Nothing worth reporting, but pfl asks for it before the first round."""
        return {"nothing": Weighted(0, len(items))}


class KeepsUserVectors(FederatedAveraging):  # type: ignore[misc]
    """Federated averaging in which each client keeps a vector of its own between rounds."""

    def __init__(self, users: Tensor) -> None:
        super().__init__()
        self.storage = InMemoryUserStateStorage()
        for client, vector in enumerate(users):
            self.storage.save_state({"user": vector}, str(client))

    def train_one_user(self, initial: Any, model: PyTorchModel, user_dataset: Dataset, context: Any) -> Any:
        """Train one client with its own vector, and put that away again."""
        state = self.storage.load_state(user_dataset.user_id)
        model.pytorch_model.user = state["user"].clone().requires_grad_()
        result = super().train_one_user(initial, model, user_dataset, context)
        self.storage.save_state({"user": model.pytorch_model.user.detach()}, user_dataset.user_id)
        return result


class Clock(TrainingProcessCallback):  # type: ignore[misc]
    """Notes the time at the end of every round, and how far the weights came in the first."""

    def __init__(self, first: fedncf.Weights) -> None:
        self.first, self.moved = first, 0.0
        self.ends: list[float] = []

    def after_central_iteration(self, _: Any, model: PyTorchModel, **__: Any) -> tuple[bool, Metrics]:
        """Called by pfl when the model has been updated."""
        if not self.ends:
            self.moved = fedncf.moved(self.first, model.pytorch_model.weights())
        self.ends.append(time.perf_counter())
        return False, Metrics()


def cohort(world: worlds.World, workers: int) -> FederatedDataset:
    """Every client once a round, always in the same process, with examples drawn anew."""
    sampler, seen = Sampler(world), Counter[int]()

    def dataset(client: int) -> Dataset:
        examples = sampler.draw(seen[client], client)
        seen[client] += 1
        return Dataset((examples,), user_id=str(client))

    # pfl deals the places of a cohort in turn, so that the first worker has the larger share
    shares = sorted(share_out(world, workers), key=len, reverse=True)
    return FederatedDataset(
        dataset, CrossSiloUserSampler("minimize_reuse", silo_to_user_ids=dict(enumerate(shares)))
    )


def measure(world: worlds.World, workers: int, rounds: int) -> dict[str, Any]:
    """Run the rounds in this process, which may be one of several."""
    torch.set_num_threads(1)
    first = fedncf.first_weights(world)
    module, clock = Module(first), Clock(first)
    model = PyTorchModel(
        module,
        lambda parameters, lr: torch.optim.SGD([*parameters, module.user], lr=lr),
        torch.optim.SGD(module.parameters(), lr=1.0),
    )
    data = cohort(world, workers)
    KeepsUserVectors(fedncf.first_users(world)).run(
        NNAlgorithmParams(rounds + 1, rounds + 2, world.shape.users, None),
        SimulatedBackend(data, data),
        model,
        NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=fedncf.RATE, local_batch_size=fedncf.BATCH
        ),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    times = [end - start for start, end in pairwise(clock.ends)]
    return {"round_s": times, "clients": world.shape.users, "moved": clock.moved, "world": world.digest()}


def launch(workers: int) -> None:
    """Start the worker processes with this command line, and print what the first of them found."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    processes = []
    for rank in range(workers):
        environment = dict(
            os.environ, PFL_WORKER_RANK=str(rank), PFL_WORKER_ADDRESSES=",".join([address] * workers)
        )
        processes.append(subprocess.Popen([sys.executable, *sys.argv], env=environment))
    try:
        codes = [process.wait(DEADLINE) for process in processes]
    finally:
        for process in processes:
            process.kill()
    raise SystemExit(max(codes))


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=worlds.SHAPES, default="ml-100k")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.workers > 1 and "PFL_WORKER_RANK" not in os.environ:
        launch(options.workers)
    found = measure(worlds.make(options.shape), options.workers, options.rounds)
    if os.environ.get("PFL_WORKER_RANK", "0") == "0":
        print(json.dumps(found))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
