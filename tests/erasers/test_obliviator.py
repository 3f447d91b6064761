"""Obliviator: dependence falls, what it frees has no covariance left, and nobody predicts himself."""

from __future__ import annotations

import torch

from tests.erasers.worlds import KEYS, keyed
from veilrec.eraser import Request
from veilrec.erasers.common.fourier import FOLDS, Fourier, covariance, restored, typical, unit
from veilrec.erasers.obliviator import Obliviator, View, _freed

USERS, WIDTH = 240, 16
GENDER = torch.arange(USERS) % 2
EVERYBODY = torch.ones(USERS, dtype=torch.bool)
VECTORS = KEYS.fold("obliviator").normal(USERS, WIDTH) + 0.8 * GENDER[:, None] * (torch.arange(WIDTH) < 3)
ONE_HOT = torch.nn.functional.one_hot(GENDER).float()


def features(rows: torch.Tensor, name: str, count: int = 64) -> torch.Tensor:
    scale = typical(rows)
    return Fourier.drawn(KEYS.fold(name), rows.shape[1], count=count, scale=scale)(rows)


def dependence(rows: torch.Tensor) -> float:
    """HSIC with the attribute, by features that no eraser has drawn."""
    return float(covariance(features(rows.float(), "judge", 512), ONE_HOT).square().sum())


def test_what_is_freed_has_no_covariance_with_the_attribute_and_keeps_the_rest() -> None:
    seen = features(unit(VECTORS), "seen")
    freed = _freed(seen, ONE_HOT, [View(features(unit(VECTORS), "view"), 1.0, 1.0)], EVERYBODY)
    told = covariance(seen, ONE_HOT).norm() / seen.std()
    assert float(covariance(freed, ONE_HOT).norm() / freed.std()) < 0.2 * float(told)  # rows of length one
    assert freed.shape[1] < seen.shape[1]


def test_a_network_lowers_the_dependence_and_stages_go_on() -> None:
    request = Request({"gender": GENDER})
    first, third = (
        Obliviator(stages=stages, features=128, hidden=64).forget(VECTORS, request, keyed())
        for stages in (1, 3)
    )
    assert dependence(first) < 0.5 * dependence(VECTORS)
    moved = [float((after - VECTORS).square().mean()) for after in (first, third)]
    assert moved[0] < moved[1]  # its strength


def test_nobody_has_a_say_in_what_is_predicted_of_himself() -> None:
    rows, fold = unit(VECTORS), torch.arange(USERS) % FOLDS
    back = Fourier.drawn(KEYS.fold("back"), WIDTH, count=32, scale=1.0)
    fits = torch.arange(USERS) != 7
    other = VECTORS.double()
    other[[7, 11]] += 50.0
    one, two = (restored(rows, wanted, fits, fold, back) for wanted in (VECTORS.double(), other))
    assert float((one[11] - two[11]).abs().max()) < 1.0  # but for the mean of all, which is moved by 0.2
    assert float((one[7] - two[7]).abs().max()) < 2.0  # who is not learned from: by what 11 has changed
    assert float((one - VECTORS)[fits].square().mean()) < 0.9 * float(VECTORS[fits].square().mean())


def test_those_who_ask_are_moved_by_what_others_have_taught() -> None:
    asks = torch.arange(USERS) < 20
    small = Obliviator(stages=1, features=64, hidden=32)
    hidden = torch.where(asks, -1, GENDER)
    one, two = (
        small.forget(VECTORS, Request({"gender": label}, asks=asks, lends=~asks), keyed())
        for label in (GENDER, hidden)
    )
    assert torch.equal(one, two)
    assert torch.equal(one[~asks], VECTORS[~asks])
