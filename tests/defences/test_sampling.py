"""Noise deserves its name: a lattice that tells nothing, tails without an end, bits from the right source."""

from __future__ import annotations

import math
import os
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from tests.noisy import CLIP, blurred, clients, device, number, seeded, steps_of, values
from veilrec.base.keys import Keys
from veilrec.base.params import Rows
from veilrec.defence import secretly
from veilrec.defences.apm import APM
from veilrec.defences.gaussian import Gaussian
from veilrec.defences.laplace import Laplace
from veilrec.defences.noise import weights
from veilrec.defences.noise.compiled import LARGEST
from veilrec.defences.noise.noisy import Noisy
from veilrec.defences.noise.sampling import Sampler, Seeded, System, lattice, tail

ALARM = 1e-6
NOISES = [Laplace(), Laplace(clip=0.1, scale=1.0), APM(), Gaussian(), Laplace(clip=CLIP, epsilon=0.5)]


def sent_for(
    defence: Noisy, value: float, n: int, seed: int = 0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """What leaves for the same value, many times."""
    plain = torch.full((n,), value, dtype=dtype)
    sent = defence.on_upload({"item": plain}, device(Keys.seed(seed)))["item"]
    assert isinstance(sent, Tensor)
    return sent


def step_of(defence: Noisy) -> float:
    return lattice(defence.noise.scale_of("item"), defence.noise.clip).step


# The lattice.


@given(st.floats(1e-6, 2000), st.floats(1e-15, 1e15))
@settings(max_examples=200, deadline=None)
def test_the_lattice_keeps_its_promises(ratio: float, clip: float) -> None:
    bound = Fraction(str(clip))
    of = Fraction(str(ratio)) * bound
    found = lattice(of, bound)
    step = Fraction(found.step)
    assert math.log2(found.step).is_integer()
    assert found.most * step <= bound < (found.most + 1) * step
    assert 1 <= found.most <= 1 << 22
    assert 2 <= of / step <= 4096
    roomy = bound / of < 2048 and of / bound < 2
    assert not roomy or step <= min(of, bound) / 1024


@pytest.mark.parametrize(
    "dtype",
    [
        pytest.param(torch.float32, id="single"),
        pytest.param(torch.float64, id="double", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("defence", NOISES, ids=str)
def test_what_leaves_is_on_a_lattice_that_no_value_decides(defence: Noisy, dtype: torch.dtype) -> None:
    """RELIABILITY E6: 200,000 outputs of each of some values, none off the lattice."""
    step = step_of(defence)
    for value in (0.0, 0.1, -0.3, 1e-9, 1 / 3, 7.0, -math.inf):
        steps = sent_for(defence, value, 200_000, dtype=dtype).double() / step
        assert torch.equal(steps, steps.round())
        assert float(steps.abs().max()) <= LARGEST


def off(outputs: Tensor, step: float) -> float:
    """The share that is on no whole number of steps."""
    return float((outputs.double() / step != (outputs.double() / step).round()).double().mean())


def test_planted_a_plain_sum_in_float32_is_off_the_lattice_of_another_value() -> None:
    noise = 0.025 * Keys.seed(0).laplace(200_000)
    assert off(0.1 + noise, step_of(Laplace())) > 0.99
    fine = 2.0**-24  # even on the finest lattice that 0.5 has, sums with 0.001 leave it
    assert off(0.5 + noise, fine) < 0.5 < off(0.001 + noise, fine)


def test_the_lattice_is_no_bias() -> None:
    """The mean of many is the value, to within half a step and the noise of a mean."""
    for value in (0.1, -0.3, 0.4999):
        sent = sent_for(Laplace(), value, 10**6, seed=3).double()
        assert abs(float(sent.mean()) - value) < step_of(Laplace()) / 2 + 4.9 * 0.025 * math.sqrt(2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["single", "double"])
@pytest.mark.parametrize("clip", [0.1, 0.5, 1 / 3])
def test_nothing_is_beyond_the_bound_before_the_noise(clip: float, dtype: torch.dtype) -> None:
    """RELIABILITY E5: two uploads with the same noise differ by what was clipped."""
    plain = Keys.seed(3).normal(1000, 1000, dtype=dtype) * 10.0 ** Keys.seed(4).integers(12, 1000, 1).sub(8)
    plain[0, :4] = torch.tensor([math.inf, -math.inf, clip, -clip])
    defence = Laplace(clip=clip, scale=clip)
    sent, noise = (
        defence.on_upload({"x": x}, device(Keys.seed(0)))["x"] for x in (plain, torch.zeros_like(plain))
    )
    assert isinstance(sent, Tensor)
    assert isinstance(noise, Tensor)
    within = (sent.double() - noise.double()).abs()
    assert Fraction(float(within.max())) <= Fraction(str(clip))
    assert float(within[0, :4].min()) > clip - lattice(Fraction(str(clip)), Fraction(str(clip))).step
    assert float((within - plain.double().abs().clamp(max=clip)).abs().max()) <= clip / 1024


def test_no_number_stays_none() -> None:
    sent = Laplace().on_upload({"x": torch.tensor([math.nan, 0.0])}, device(Keys.seed(0)))["x"]
    assert isinstance(sent, Tensor)
    assert sent.isnan().tolist() == [True, False]


def test_a_norm_does_not_grow_on_the_lattice() -> None:
    """Noise is the same for both: the difference is what was scaled and put on the lattice."""
    defence = Gaussian(clip=0.5, scale=0.5, clip_by="norm")
    plain = Keys.seed(3).normal(300, dtype=torch.float64)
    sent, noise = (defence.on_upload({"x": x}, device(Keys.seed(0)))["x"] for x in (plain, 0 * plain))
    assert isinstance(sent, Tensor)
    assert isinstance(noise, Tensor)
    assert 0.49 < float((sent - noise).norm()) <= 0.5


# Tails.


class Zeros:
    """A source whose first words are all zero: everything is drawn anew, as often as it is told."""

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def bits(self, some: Any, words: Any, spare: Any) -> Any:
        return np.zeros((len(words), 2 * words.shape[1]), np.int32)

    def more(self, row: Any, column: Any, turn: int) -> Any:
        return np.full(len(row), 0 if turn < self.turns else 1 << 63, np.uint64)


@pytest.mark.parametrize("turns", [0, 1, 2, 5])
def test_a_tail_has_no_end(turns: int) -> None:
    expected = 1000.0 * math.log(2) * (10 + 32 * turns + 1)
    found = steps_of(Zeros(turns), "laplace", 1000.0, 3, 2)
    assert found == pytest.approx(np.full((3, 2), expected), abs=0.51)


def drawn(n: int, kind: Any = "laplace", scale: float = 1e4) -> Any:
    """``[n]`` noise with scale 1, from keys."""
    rows = n // 1000
    source = seeded(Keys.seed(9).value.expand(rows).contiguous(), torch.arange(rows), 1000)
    return steps_of(source, kind, scale, rows, 1000).astype(np.float64).ravel() / scale


def test_the_law_is_right_where_numbers_are_drawn_anew() -> None:
    """Beyond 10 ln 2 an exponential law begins anew: ten thousand of ten million."""
    size = np.abs(drawn(10**7))
    beyond = size[size > 10 * math.log(2) + 1e-4] - 10 * math.log(2)
    assert abs(len(beyond) - 10**7 / 1024) < 4.9 * math.sqrt(10**7 / 1024)
    assert stats.kstest(beyond, stats.expon.cdf).pvalue > ALARM
    edges = np.array([0, 0.5, 1, 2, 4, 6, 6.5, 7, 7.5, 8, 9, 10, 12, np.inf])
    counts = np.histogram(size, edges)[0]
    assert stats.chisquare(counts, 10**7 * np.diff(-np.exp(-edges))).pvalue > ALARM


def test_planted_a_tail_that_ends_is_found() -> None:
    """The twin: 31 bits and nothing beyond them leave gaps where numbers are large."""
    size = -np.log(np.abs(np.arange(1, 2000)) / 2**31)  # all that is possible beyond 13.9
    assert np.diff(np.sort(size))[-1] > 0.5


def test_gaussian_numbers_are_so_in_the_tail_too() -> None:
    noise = drawn(4 * 10**6, "gaussian")
    assert stats.kstest(noise[::20], stats.norm.cdf).pvalue > ALARM
    edges = np.array([0, 1, 2, 3, 3.5, 3.723, 4, 4.5, np.inf])  # a radius is drawn anew beyond 3.723
    counts = np.histogram(np.abs(noise), edges)[0]
    assert stats.chisquare(counts, len(noise) * np.diff(2 * stats.norm.cdf(edges))).pvalue > ALARM


def test_no_step_of_the_lattice_is_left_out() -> None:
    """Two neighbouring magnitudes are far less than a step apart, up to where they are drawn anew."""
    magnitude = np.array([2**21, 2**21 + 1, 2**24, 2**24 + 1, 2**30, 2**30 + 1, 2**31 - 2, 2**31 - 1])
    size = -np.log(magnitude / 2**31) * 4096  # the most steps that a scale has
    assert float(np.abs(np.diff(size)[::2]).max()) < 2e-3


def test_sums_stay_where_float32_is_exact() -> None:
    """Much noise on a small clip, and a source that gives nothing but tails."""
    defence = Laplace(clip=1e-6, scale=2e-3)
    steps = sent_for(defence, 1.0, 10**6).double() / step_of(defence)
    assert torch.equal(steps, steps.round())
    assert float(steps.abs().max()) < LARGEST


def test_a_number_that_is_too_far_is_clamped_after_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "Seeded", lambda *_: Zeros(400))
    sent = Laplace().on_upload({"x": torch.tensor([0.5, -0.5])}, device(Keys.seed(0)))["x"]
    assert isinstance(sent, Tensor)
    assert sent.tolist() == [LARGEST * step_of(Laplace())] * 2


# Where the bits come from.


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("width", [1, 2, 5, 8])
def test_numbers_are_those_of_whole_numbers(kind: str, width: int) -> None:
    """Against a loop on Python's integers; float32 may round to the next step."""
    key, scale, rows = 12345678901234567890, 1700.0, [0, 1, 7, 900]
    source = Seeded(np.full((4, 1), key, np.uint64), np.array(rows, np.uint64), [width])
    found = steps_of(source, kind, scale, 4, width)  # type: ignore[arg-type]
    expected = [[scale * number(kind, key, row, column, width) for column in range(width)] for row in rows]
    assert np.abs(found - np.array(expected)).max() < 0.51
    assert np.array_equal(found, np.rint(found))


def test_the_tail_of_the_loop_is_the_same() -> None:
    """All rows of which some number was drawn anew, among many."""
    key, width, scale = 987654321, 64, 1700.0
    source = seeded(torch.full((400,), key), torch.arange(400), width)
    found = steps_of(source, "laplace", scale, 400, width)
    far = np.argwhere(np.abs(found) > 10.2 * math.log(2) * scale)
    assert len(far) > 10
    for row, column in far.tolist():
        expected = scale * number("laplace", key, row, column, width)
        assert abs(found[row, column] - expected) < 0.51


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_weights_side_by_side_draw_what_they_draw_alone(kind: Any) -> None:
    """Rare numbers, odd widths and a scale for each of them included."""
    widths, scales, rows = [5, 3000, 1, 64], [900.0, 1100.0, 1500.0, 2000.0], np.array([0, 3, 8], np.uint64)
    keys = clients(12).value.numpy().view(np.uint64).reshape(3, 4)
    even = np.array([width + width % 2 for width in widths])
    both = Sampler(Seeded(keys, rows, widths), kind, np.repeat(scales, even), int(even.sum()) // 2, 3)
    together = both.draw(slice(0, 3)).copy()
    row, column, far = both.rest()
    assert len(row) > 3
    together[row, column] = far
    begins = [0, *even.cumsum()]
    for k, (width, scale) in enumerate(zip(widths, scales, strict=True)):
        alone = steps_of(Seeded(keys[:, k : k + 1].copy(), rows, [width]), kind, scale, 3, width)
        assert np.array_equal(together[:, begins[k] : begins[k] + width], alone)


@pytest.mark.parametrize("block", [1, 100, 1 << 12, 1 << 20])
@pytest.mark.parametrize("defence", [Laplace(), Gaussian(clip_by="norm"), Gaussian()], ids=str)
def test_blocks_change_no_bit(block: int, defence: Noisy, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = values(5)
    before = blurred(defence, {**plain}, clients(5))
    monkeypatch.setitem(weights.BLOCK, "cpu", block)
    after = blurred(defence, {**plain}, clients(5))
    assert all(torch.equal(before[name], after[name]) for name in plain)


def test_what_the_system_gives_is_new_every_time_and_has_its_law() -> None:
    """RELIABILITY E7: no key decides it."""
    real = secretly(Laplace(scale=0.02))
    assert isinstance(real, Noisy)
    first, second = (sent_for(real, 0.0, 125_000).double() for _ in range(2))
    assert float((first == second).double().mean()) < 0.01
    assert abs(float(first.abs().mean()) / 0.02 - 1) < 0.0125
    assert stats.kstest(first[:5000].numpy() / 0.02, stats.laplace.cdf).pvalue > ALARM
    simulated = sent_for(Laplace(scale=0.02), 0.0, 125_000)
    assert torch.equal(simulated, sent_for(Laplace(scale=0.02), 0.0, 125_000))
    assert float((first == simulated.double()).double().mean()) < 0.01


def test_the_system_alone_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever `os.urandom` gives is what is drawn, and nothing else: all zero bytes, all the same noise."""
    asked: list[int] = []

    def urandom(n: int) -> bytes:
        asked.append(n)
        return b"\x01" * n

    monkeypatch.setattr(os, "urandom", urandom)
    real = secretly(Laplace(scale=0.02))
    assert isinstance(real, Noisy)
    assert (
        len(set(sent_for(real, 0.0, 1000, seed=1).tolist() + sent_for(real, 0.0, 1000, seed=2).tolist())) == 1
    )
    assert sum(asked) >= 2 * 4 * 1000
    asked.clear()
    sent_for(Laplace(), 0.0, 1000)
    assert asked == []


def test_the_system_draws_tails_anew() -> None:
    nowhere = np.zeros(5000, np.int64)
    assert stats.kstest(tail(System(), nowhere, nowhere), stats.expon.cdf).pvalue > ALARM


def test_padding_and_rows_of_a_table() -> None:
    """A row has the noise of its number, wherever it stands and whatever pads it."""
    row = torch.tensor([3, 8, -1])
    sent = [
        Laplace().on_upload({"item": Rows(r, torch.zeros(len(r), 5))}, device(Keys.seed(0)))["item"]
        for r in (row, torch.arange(9))
    ]
    assert isinstance(sent[0], Rows)
    assert isinstance(sent[1], Rows)
    assert torch.equal(sent[0].value[:2], sent[1].value[row[:2]])
