"""GaussianPosthoc: noise of the size that was asked for, on what was named, once, and the same every time."""

from __future__ import annotations

import pytest
import torch

from tests.worlds import Both, both, checkerboard, copied, digest, federation, held, largest, phones, run
from veilrec.base.params import KEPT, ROW
from veilrec.erasers.gaussian_posthoc import GaussianPosthoc
from veilrec.errors import BadInput
from veilrec.models.fedncf import FedNCF
from veilrec.models.fedrap import FedRAP
from veilrec.rounds import Federation

NOISE = GaussianPosthoc({"user": 0.5, "mlp1": 0.1})


def fed_of(cohort: float = 1.0) -> Federation:
    model = FedNCF(24, dim=64, head=(64,))
    return federation(phones(checkerboard()), model, cohort=cohort)


def mended(fed: Federation, state: Both, noise: GaussianPosthoc = NOISE) -> Both:
    """The state of both halves after the noise, from a state of both."""
    fed.fleet.devices = copied(state.devices)
    return both(fed, fed.erase(state, noise, fed.keys.fold("unlearn")))


def test_the_noise_is_where_it_was_asked_for_and_of_that_size() -> None:
    fed = fed_of()
    state = run(fed)
    after = mended(fed, state)
    change = held(fed, after)["user"] - held(fed, state)["user"]
    assert abs(float(change.std()) - 0.5) < 0.05
    assert abs(float(torch.corrcoef(change.flatten(1))[0, 1])) < 0.5  # no two devices' alike
    head = after.server["mlp1.weight"] - state.server["mlp1.weight"]
    assert abs(float(head.std()) - 0.1) < 0.01
    assert all(torch.equal(after.server[n], w) for n, w in state.server.items() if not n.startswith("mlp1"))


def test_it_is_the_same_every_time_and_leaves_the_first_state_alone() -> None:
    fed = fed_of()
    state = run(fed)
    before = digest(state)
    assert digest(mended(fed, state)) == digest(mended(fed, state)) != before
    assert digest(state) == before


def test_who_never_took_part_stays_as_they_began() -> None:
    fed = fed_of(cohort=0.25)
    state = run(fed)
    absent = (state.devices.slot < 0).nonzero().squeeze(1)
    after = mended(fed, state)
    assert len(absent)
    assert torch.equal(after.devices.get(absent)["user"], fed.fleet.fresh(absent)["user"])


def test_tables_of_a_devices_own_get_noise_where_it_touched_them() -> None:
    fed = federation(phones(checkerboard()), FedRAP(24, dim=16))
    state = run(fed)
    before, after = held(fed, state), held(fed, mended(fed, state, GaussianPosthoc({"residual": 0.2})))
    assert torch.equal(before[ROW], after[ROW])
    there = before[ROW] >= 0
    change = (after[KEPT + "residual"] - before[KEPT + "residual"])[there]
    assert abs(float(change.std()) - 0.2) < 0.02
    assert all(largest(before[n], after[n]) == 0 for n in before if n != KEPT + "residual")


def test_a_part_that_is_not_there_is_named() -> None:
    with pytest.raises(BadInput, match="usr"):  # before any work is done
        GaussianPosthoc({"usr": 1.0}).check(FedNCF(24))
    with pytest.raises(BadInput, match="user"):
        GaussianPosthoc({"user": -1.0})
