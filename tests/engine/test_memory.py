"""Memory grows with the devices at work, not with all devices times all items."""

from __future__ import annotations

import subprocess
import sys

import pytest

ROUND = """
from veilrec import Clients, FedAvg, FedNCF, Federation, Plan, synthetic
from veilrec.defences.none import Undefended
from veilrec.engine.evaluation import Evaluation

log = synthetic(users={users}, items={items}, events={events})
clients = Clients.phones(log.leave_one_out())
plan = Plan(rounds=2, cohort={cohort}, evaluate_every=1)
fed = Federation.of(
    clients, FedNCF(log.n_items), FedAvg(), Undefended(), plan, evaluation=Evaluation(candidates={candidates})
)
fed.run(fed.start())
print([line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1])
"""
WORLDS = {
    "all clients of ML-1M, full ranking": (6_040, 3_706, 1_000_209, 1.0, 0, 1.5),
    "a hundred thousand clients, a thousand a round": (100_000, 20_000, 3_000_000, 0.01, 99, 3.0),
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
def test_peak_memory_of_two_rounds(world: tuple[int, int, int, float, int, float]) -> None:
    users, items, events, cohort, candidates, limit = world
    code = ROUND.format(users=users, items=items, events=events, cohort=cohort, candidates=candidates)
    assert int(said(code)) / 1024**2 < limit  # GB


def said(code: str) -> str:
    """What a process of its own prints."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=True).stdout


SHELVED = """
from veilrec import Clients, FedAvg, FedNCF, Federation, Plan, synthetic
from veilrec.defences.pard import PARD
from veilrec.engine.evaluation import Evaluation

log = synthetic(users=6040, items=3706, events=1_000_209)
plan = Plan(rounds=2, cohort=0.8, negatives=5, evaluate_every=2)
clients = Clients.phones(log.leave_one_out(), consent=0.2)
model = FedNCF(log.n_items, dim=64, user="exposed")
fed = Federation.of(clients, model, FedAvg(), PARD(), plan, evaluation=Evaluation(candidates=99))
state = fed.run(fed.start())
assert fed.fleet.devices.shelf is not None
assert len(state.posts.owner) > 500
print([line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_estimators_lie_in_files() -> None:
    """ML-1M's users under PARD: estimators of all attributes with their momentum, some gigabytes of them."""
    assert int(said(SHELVED)) / 1024**2 < 3.0  # GB


ROWS = """
from veilrec import Clients, FedAvg, Federation, Plan, synthetic
from veilrec.defences.fedau2 import FedAU2
from veilrec.engine.evaluation import Evaluation
from veilrec.models.fedvae import FedVAE
from veilrec.engine.probe import see

log = synthetic(users=6040, items=3706, events=1_000_209)
plan = Plan(rounds=2, cohort=0.1, batch=4096, evaluate_every=2)
protocol = FedAvg(sends="gradients", server="adam", server_lr=0.001)
defence = FedAU2(attributes=("gender",), strength=30.0)
clients = Clients.phones(log.leave_one_out())
looks = Evaluation(candidates=99)
fed = Federation.of(clients, FedVAE(log.n_items), protocol, defence, plan, evaluation=looks)
state = fed.run(fed.start())
whole = next(see(fed, state).probe({"encoder"}))  # of some devices, one by one
assert whole.received.values["encoder.weight"].dim() == 3
print([line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
def test_a_model_that_everybody_moves_whole_under_fedau2() -> None:
    """FedVAE has 4.7 million weights: summed over 604 devices, and one by one where somebody looks."""
    assert int(said(ROWS)) / 1024**2 < 3.0  # GB


TEN = """
from functools import partial
from veilrec import Experiment, FedNCF, Plan, synthetic

world = synthetic(users=400, items=300)
for seed in range(10):
    Experiment(world, partial(FedNCF, dim=32), plan=Plan(rounds=3, evaluate_every=3), seed=seed).run()
    print([line for line in open("/proc/self/status") if line.startswith("VmRSS")][0].split()[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_ten_runs_in_one_process_end_where_the_first_one_did() -> None:
    after = [int(line) for line in said(TEN).split()]
    assert len(after) == 10
    assert after[-1] < 1.1 * after[0]
