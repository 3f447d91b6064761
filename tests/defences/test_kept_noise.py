"""Noise that is drawn once: a device's key is its own, and on a real device nobody else's."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from tests.worlds import checkerboard, federation, held, phones, run
from veilrec.base.keys import Keys
from veilrec.defence import Defence, chain, secretly
from veilrec.defences.common.kept_noise import kept_keys, with_kept_keys
from veilrec.defences.f_dpmf import FDPMF
from veilrec.defences.f_gerai import FGERAI
from veilrec.defences.none import Undefended
from veilrec.model import Recommender, bind
from veilrec.models.fedmf import FedMF
from veilrec.rounds import Federation


def fed_of(defence: Defence, seed: int = 0) -> Federation:
    return federation(phones(checkerboard()), FedMF(24, dim=4), None, defence, seed=seed, lr=0.1)


def keys_of(defence: Defence, name: str, seed: int = 0) -> Tensor:
    """``[24, 3]`` what the devices keep after a round."""
    fed = fed_of(defence, seed)
    return held(fed, run(fed))[f"{name}.key"]


def word(model: Recommender, key: Tensor) -> int:
    found = bind(model, {"noise.key": key}, lambda model: kept_keys(model, "noise").value)
    return int(found)


BOTH = [(FGERAI(), "f_gerai"), (FDPMF(), "f_dpmf")]


@pytest.mark.parametrize(("defence", "name"), BOTH, ids=["f_gerai", "f_dpmf"])
def test_in_a_simulation_the_key_comes_from_the_seed(defence: Defence, name: str) -> None:
    assert torch.equal(keys_of(defence, name), keys_of(defence, name))
    assert not bool((keys_of(defence, name) == keys_of(defence, name, seed=1)).any())


@pytest.mark.parametrize(("defence", "name"), BOTH, ids=["f_gerai", "f_dpmf"])
def test_on_a_real_device_it_comes_from_the_system(defence: Defence, name: str) -> None:
    real = secretly(defence)
    assert real == defence
    assert dataclasses.asdict(real) == dataclasses.asdict(defence)  # type: ignore[call-overload]
    first, second = keys_of(real, name), keys_of(secretly(chain(Undefended(), defence)), name)
    assert len({tuple(row.tolist()) for row in torch.cat([first, second])}) == 48
    assert not bool((first == keys_of(defence, name)).any())
    fed = fed_of(real)
    state = run(fed)
    kept = held(fed, state)[f"{name}.key"]
    for _ in fed.rounds(state, until=3):
        pass
    assert torch.equal(held(fed, state)[f"{name}.key"], kept)  # drawn once, all the same


def test_every_bit_of_the_key_counts() -> None:
    model = with_kept_keys(FedMF(3, dim=2), "noise")
    key = Keys.seed(4).uniform(3)
    words = {word(model, key), word(model, key.flip(0))}
    for place in range(3):
        words.add(word(model, key + 2.0**-23 * torch.eye(3)[place]))
    assert len(words) == 5
    assert word(model, key.double()) == word(model, key)  # and precision does not
