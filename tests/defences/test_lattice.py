"""The lattice: how likely each step is, by counting the bits that lead to it; and what has no lattice."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.noisy import device, steps_of
from veilrec.base.keys import Keys
from veilrec.defences.apm import APM
from veilrec.defences.fednews import FedNews
from veilrec.defences.gaussian import Gaussian
from veilrec.defences.laplace import Laplace
from veilrec.defences.noise.noisy import Noisy, _how
from veilrec.defences.noise.sampling import lattice
from veilrec.errors import BadInput

Floats = NDArray[np.float64]
FEWEST, ALL = 1 << 21, 1 << 31  # a magnitude below the first is drawn anew
ANEW = 10 * math.log(2)  # scales away


class Given:
    """A source of just these bits."""

    def __init__(self, bits: Any) -> None:
        self.given = bits.astype(np.int32)[None]

    def bits(self, some: Any, words: Any, spare: Any) -> Any:
        return self.given.copy()

    def more(self, row: Any, column: Any, turn: int) -> Any:
        raise AssertionError("nothing here is rare")


def steps(magnitude: Any, scale: float) -> Any:
    """The noise that magnitudes of 31 bits lead to, an even number of them."""
    return steps_of(Given(magnitude), "laplace", scale, 1, len(magnitude))[0]


def within(scale: float) -> Any:
    """``[j]`` how many of the 2³¹ magnitudes lead to j steps or fewer: the larger ones, found by halving."""
    place = np.arange(2 * round((ANEW * scale + 2) / 2))
    low, high = np.full(len(place), FEWEST - 1), np.full(len(place), ALL - 1)
    while (high - low > 1).any():
        middle = np.maximum((low + high) // 2, FEWEST)
        fits = steps(middle, scale) <= place
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    return ALL - high


def chances(scale: float, far: float = 12.0) -> Floats:
    """``[j]`` the probability that noise is j steps: counted up to ten halvings, the law's beyond them."""
    count = np.diff(within(scale), prepend=0)
    chance: Floats = np.zeros(int(far * scale))
    chance[: len(count)] = count / 2 / ALL
    chance[0] *= 2  # either sign
    edge = np.maximum(np.arange(len(chance) + 1) - 0.5, ANEW * scale) / scale
    chance += np.diff(-np.exp(-edge)) / 2
    return chance


def law(scale: float, far: float = 12.0) -> Floats:
    """``[j]`` the same for Laplace noise that is rounded."""
    edge = (np.arange(int(far * scale) + 1) - 0.5) / scale
    chance: Floats = np.diff(-np.exp(-edge)) / 2
    chance[0] = -math.expm1(-0.5 / scale)
    return chance


def odds(chance: Floats, most: int) -> Floats:
    """``[y]`` the log-odds of each output for two inputs, `most` steps to either side of zero."""
    both: Floats = np.log(np.concatenate([chance[:0:-1], chance]))
    told: Floats = np.abs(both[2 * most :] - both[: -2 * most])
    return told


def in_steps(ratio: Fraction) -> tuple[float, int]:
    """The scale and the clip in steps, for a scale of so many clips."""
    how = _how("laplace", ratio / 2, Fraction(1, 2), False)
    return how.scale, how.lattice.most


RATIOS = [Fraction(ratio) for ratio in ("1/30", "1/15", "1", "4", "10", "300", "2000")]


def test_more_bits_are_never_more_noise() -> None:
    """What `within` rests on, on a million magnitudes and on some in a row."""
    magnitude = np.sort(np.random.default_rng(0).integers(FEWEST, ALL, 10**6))
    row = np.arange(10**5)
    for some in (magnitude, FEWEST + row, (1 << 24) + row, ALL - len(row) + row):
        assert (np.diff(steps(some, 4095.9)) <= 0).all()


@pytest.mark.parametrize("ratio", RATIOS, ids=str)
def test_every_step_has_its_probability(ratio: Fraction) -> None:
    """By counting all 2³² bits: to a thousandth up to one scale away, to a hundredth everywhere."""
    scale, _ = in_steps(ratio)
    chance, expected = chances(scale), law(scale)
    assert chance.sum() == pytest.approx(expected.sum(), abs=1e-7)
    error = np.abs(np.log(chance / expected))
    assert error[: int(scale)].max() < 1e-3
    assert error.max() < 1e-2


@pytest.mark.parametrize("ratio", RATIOS, ids=str)
def test_no_output_tells_more_than_epsilon(ratio: Fraction) -> None:
    """The log-odds of any output for any two inputs: ε to a thousandth of it where the scale is no more than
    the clip, and ε + 0.01 elsewhere (ε + 0.002 for outputs within a scale).
    """
    scale, most = in_steps(ratio)
    epsilon, chance = float(2 / ratio), chances(scale, 12 + 2 / float(ratio))
    told = odds(chance, most).max()
    assert told < (epsilon * (1 + 1e-3) if ratio <= 1 else epsilon + 1e-2)
    if most < scale:
        assert odds(chance[: int(scale) + 1], most).max() < epsilon + 2e-3


def test_planted_a_finer_lattice_is_found() -> None:
    """The twin: with 2¹⁷ steps a scale, 31 bits are too few."""
    error = np.abs(np.log(chances(2.0**17) / law(2.0**17)))
    assert error.max() > 0.05
    assert error[: 1 << 17].max() > 1e-2


# Settings that are used change no bit.

ORDINARY: list[tuple[Noisy, tuple[int, int]]] = [
    (Laplace(), (-16, 32768)),
    (Laplace(scale=0.0167), (-16, 32768)),
    (Laplace(scale=0.033), (-15, 16384)),
    (Laplace(clip=0.5, scale=0.5), (-11, 1024)),
    (Laplace(clip=0.02, scale=0.05), (-16, 1310)),
    (Laplace(clip=0.01, epsilon=1.0), (-17, 1310)),
    (FedNews(), (-16, 32768)),
    (APM(low=3), (-12, 2048)),
    (APM(low=100), (-17, 65536)),
    (APM(clip=0.1), (-18, 26214)),
    (Gaussian(), (-15, 16384)),
    (Gaussian(clip_by="norm", clip=0.1, scale=0.2), (-14, 1638)),
]


@pytest.mark.parametrize(("defence", "expected"), ORDINARY, ids=str)
def test_ordinary_settings_have_the_lattice_that_they_had(defence: Noisy, expected: tuple[int, int]) -> None:
    found = lattice(defence.noise.scale_of("user"), defence.noise.clip)
    assert (math.log2(found.step), found.most) == expected


DRAWN: list[tuple[Noisy, list[int]]] = [
    (Laplace(), [7659, 6108, 6048, 16399, 6573, 5961]),
    (Laplace(scale=0.0167), [7292, 6256, 6216, 13131, 6567, 6158]),
    (Laplace(scale=0.033), [4007, 2983, 2943, 9775, 3290, 2886]),
    (APM(), [7291, 6257, 6217, 13117, 6567, 6159]),
    (Gaussian(), [2301, 2371, 4178, 3284, 3176, 3134]),
    (Gaussian(clip_by="norm"), [2300, 2370, 4177, 3283, 3175, 3133]),
]


@pytest.mark.parametrize(("defence", "expected"), DRAWN, ids=str)
def test_ordinary_settings_draw_what_they_drew(defence: Noisy, expected: list[int]) -> None:
    """In steps; a result that was published can be computed again."""
    sent = defence.on_upload({"item": torch.full((6,), 0.1)}, device(Keys.seed(0)))["item"]
    assert isinstance(sent, Tensor)
    step = lattice(defence.noise.scale_of("item"), defence.noise.clip).step
    assert (sent.double() / step).tolist() == expected


# Settings that have no lattice.

MUCH = "the noise is more than 2,000 times the clip"
LITTLE = "the noise is less than a millionth of the clip"
CLIPS = {1e40: "too large", 1e16: "too large", 1e-16: "too small", 1e-40: "too small"}


@pytest.mark.parametrize("made", [Laplace, FedNews, Gaussian, APM])
@pytest.mark.parametrize("clip", CLIPS, ids=str)
def test_a_clip_that_float32_cannot_hold_is_refused(made: Any, clip: float) -> None:
    words = f"{clip:g} is {CLIPS[clip]}; give a number from 1e-15 to 1e+15"
    with pytest.raises(BadInput, match=rf"^defence\.clip: {re.escape(words)}$"):
        made(clip=clip)


@pytest.mark.parametrize("made", [Laplace, FedNews, Gaussian])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"clip": 0.5, "scale": 1001.0}, f"scale: {MUCH}; lower it, or raise the clip"),
        ({"clip": 1e-10}, f"scale: {MUCH}; lower it, or raise the clip"),
        ({"scale": 1e-40}, f"scale: {LITTLE}; raise it, or lower the clip"),
        ({"clip": 1e15}, f"scale: {LITTLE}; raise it, or lower the clip"),
        ({"epsilon": 1e-300}, f"epsilon: {MUCH}; give a larger ε"),
        ({"epsilon": 1e30}, f"epsilon: {LITTLE}; give a smaller ε"),
    ],
    ids=str,
)
def test_noise_that_has_no_lattice_with_its_clip_is_refused(
    made: Any, options: dict[str, float], told: str
) -> None:
    with pytest.raises(BadInput, match=f"^defence.{told}$"):
        made(**options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"low": 1e-9}, f"low: {MUCH}; give a larger ε"),
        ({"low": 1e9}, f"low: {LITTLE}; give a smaller ε"),
        ({"low": 1.5e6}, f"low: {LITTLE}; give a smaller ε"),
        ({"low": 3, "high": 1e9}, f"high: {LITTLE}; give a smaller ε"),
    ],
    ids=str,
)
def test_apm_names_the_end_that_has_no_lattice(options: dict[str, float], told: str) -> None:
    with pytest.raises(BadInput, match=f"^defence.{told}$"):
        APM(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("clip", [1e-15, 1e-6, 1.0, 1e15])
@pytest.mark.parametrize("ratio", [1e-6, 1.0, 2000.0])
@pytest.mark.parametrize("made", [Laplace, Gaussian])
def test_what_is_not_refused_works_in_float32(made: Any, ratio: float, clip: float) -> None:
    """At the very ends: noise has its size, and what leaves is finite and on the lattice."""
    defence = made(clip=clip, scale=ratio * clip)
    sent = defence.on_upload({"x": torch.full((20_000,), clip)}, device(Keys.seed(0)))["x"]
    step = lattice(defence.noise.scale_of("x"), defence.noise.clip).step
    assert torch.equal(sent.double() / step, (sent.double() / step).round())
    noise = (sent.double() - clip) / (ratio * clip)
    spread = 1.0 if made is Gaussian else math.sqrt(2)
    assert float(noise.std()) == pytest.approx(spread, rel=0.05)


def test_no_noise_is_no_matter_of_the_lattice() -> None:
    for clip in (1e-15, 1e15):
        assert Laplace(clip=clip, scale=0.0).noise.scale == 0
