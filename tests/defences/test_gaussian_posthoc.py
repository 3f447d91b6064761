"""GaussianPosthoc: noise of the size that was asked for, on what was named, once, and the same every time."""

from __future__ import annotations

import pytest
import torch

from tests.worlds import checkerboard, digest, everyone, federation, largest, phones, run
from veilrec.base.params import KEPT, ROW
from veilrec.defences.gaussian_posthoc import GaussianPosthoc
from veilrec.errors import BadInput
from veilrec.models.fedncf import FedNCF
from veilrec.models.fedrap import FedRAP
from veilrec.rounds import Federation

NOISE = GaussianPosthoc({"user": 0.5, "mlp1": 0.1})


def fed_of(defence: GaussianPosthoc = NOISE, cohort: float = 1.0) -> Federation:
    model = FedNCF(24, dim=64, head=(64,))
    return federation(phones(checkerboard()), model, defence=defence, cohort=cohort)


def test_the_noise_is_where_it_was_asked_for_and_of_that_size() -> None:
    fed = fed_of()
    state = run(fed)
    after = NOISE.unlearn(state, fed)
    change = after.devices.get(everyone(fed))["user"] - state.devices.get(everyone(fed))["user"]
    assert abs(float(change.std()) - 0.5) < 0.05
    assert abs(float(torch.corrcoef(change.flatten(1))[0, 1])) < 0.5  # no two devices' alike
    head = after.server["mlp1.weight"] - state.server["mlp1.weight"]
    assert abs(float(head.std()) - 0.1) < 0.01
    assert all(torch.equal(after.server[n], w) for n, w in state.server.items() if not n.startswith("mlp1"))


def test_it_is_the_same_every_time_and_leaves_the_first_state_alone() -> None:
    fed = fed_of()
    state = run(fed)
    before = digest(state)
    assert digest(NOISE.unlearn(state, fed)) == digest(NOISE.unlearn(state, fed)) != before
    assert digest(state) == before


def test_who_never_took_part_stays_as_they_began() -> None:
    fed = fed_of(cohort=0.25)
    state = run(fed)
    absent = (state.devices.slot < 0).nonzero().squeeze(1)
    after = NOISE.unlearn(state, fed)
    assert len(absent)
    assert torch.equal(after.devices.get(absent)["user"], fed.fresh(absent)["user"])


def test_tables_of_a_devices_own_get_noise_where_it_touched_them() -> None:
    noise = GaussianPosthoc({"residual": 0.2})
    fed = federation(phones(checkerboard()), FedRAP(24, dim=16), defence=noise)
    state = run(fed)
    before, after = (s.devices.get(everyone(fed)) for s in (state, noise.unlearn(state, fed)))
    assert torch.equal(before[ROW], after[ROW])
    there = before[ROW] >= 0
    change = (after[KEPT + "residual"] - before[KEPT + "residual"])[there]
    assert abs(float(change.std()) - 0.2) < 0.02
    assert all(largest(before[n], after[n]) == 0 for n in before if n != KEPT + "residual")


def test_a_part_that_is_not_there_is_named() -> None:
    with pytest.raises(BadInput, match="usr"):  # before any work is done
        fed_of(GaussianPosthoc({"usr": 1.0}))
    with pytest.raises(BadInput, match="user"):
        GaussianPosthoc({"user": -1.0})
