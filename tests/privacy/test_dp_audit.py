"""The audit of ε: it finds what is there, flags what is too little, and never passes what it cannot see."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.noisy import device
from tests.privacy.dp_audit import Audit, Sampler, audit
from veilrec.base.keys import Keys
from veilrec.defence import secretly
from veilrec.defences.apm import APM
from veilrec.defences.gaussian import Gaussian
from veilrec.defences.laplace import Laplace
from veilrec.defences.noise.noisy import Noisy
from veilrec.privacy.mechanism import DELTA

MILLION = 10**6
CLIP = 0.5
CLAIMS = [0.5, 1.0, 2.0, 4.0]
WIDE = [0.5, *(pytest.param(epsilon, marks=pytest.mark.slow) for epsilon in (1.0, 2.0)), 4.0]


def arms(defence: Noisy, name: str = "item", seed: int = 0) -> Sampler:
    """Outputs of a defence for the two ends of what it clips, one value a draw."""

    def sample(arm: int, n: int) -> Any:
        plain = torch.full((n,), (-CLIP, CLIP)[arm])
        sent = defence.on_upload({name: plain}, device(Keys.seed(seed).fold(arm)))[name]
        assert isinstance(sent, Tensor)
        return sent.double().numpy()

    return sample


def ideal(epsilon: float, seed: int = 1) -> Sampler:
    """Laplace's mechanism in float64, by numpy."""

    def sample(arm: int, n: int) -> Any:
        return np.random.default_rng([seed, arm]).laplace((-CLIP, CLIP)[arm], 2 * CLIP / epsilon, n)

    return sample


@pytest.mark.parametrize(("epsilon", "expected"), list(zip(CLAIMS, [0.49, 0.97, 1.95, 3.95], strict=True)))
def test_an_ideal_sampler_is_seen_as_it_is(epsilon: float, expected: float) -> None:
    assert audit(ideal(epsilon), epsilon).lower == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("made", [Laplace, APM], ids=["Laplace", "APM"])
@pytest.mark.parametrize("epsilon", WIDE)
def test_our_noise_keeps_its_claim_and_is_seen_to_use_it(epsilon: float, made: Any) -> None:
    """RELIABILITY E3."""
    how = {"epsilon": epsilon} if made is Laplace else {"low": epsilon, "high": epsilon}
    found = audit(arms(made(clip=CLIP, **how)), epsilon)
    assert found.verdict == "holds"
    assert 0.9 * epsilon <= found.lower <= epsilon


@pytest.mark.parametrize(("epsilon", "expected"), list(zip(CLAIMS, [0.96, 1.96, 3.91, 7.56], strict=True)))
def test_half_the_noise_is_flagged(epsilon: float, expected: float) -> None:
    found = audit(arms(Laplace(clip=CLIP, scale=CLIP / epsilon)), epsilon)
    assert found.verdict == "violated"
    assert found.lower == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("secret", [False, True], ids=["seeded", "system"])
def test_so_is_the_noise_of_a_real_device(secret: bool) -> None:
    defence = Laplace(clip=CLIP, epsilon=2.0)
    real = secretly(defence) if secret else defence
    assert isinstance(real, Noisy)
    found = audit(arms(real), 2.0)
    assert 1.8 <= found.lower <= 2.0


def test_gaussian_noise_at_its_delta() -> None:
    found = audit(arms(Gaussian(clip=CLIP, epsilon=2.0)), 2.0, delta=DELTA)
    assert found.verdict == "holds"
    assert found.lower > 1.0
    assert audit(arms(Gaussian(clip=CLIP, epsilon=6.0)), 2.0, delta=DELTA).verdict == "violated"


# What cannot be seen.


@pytest.mark.parametrize(("samples", "limit"), [(10**5, 8.8), (MILLION, 11.1)])
def test_the_limit_is_about_the_logarithm_of_the_samples(samples: int, limit: float) -> None:
    """RELIABILITY E4."""
    found = audit(lambda arm, n: np.full(n, float(arm)), 60.0, samples=samples)
    assert found.limit == pytest.approx(limit, abs=0.05)
    assert found.lower == pytest.approx(found.limit)  # the arms never meet: nothing more could be proved
    assert found.verdict == "not_verifiable"


@pytest.mark.parametrize("part", ["user", "item", "mlp1", "mlp2"])
def test_the_defaults_of_apm_are_beyond_what_can_be_verified(part: str) -> None:
    defence = APM()
    found = audit(arms(defence, part), float(defence.budget(part)), samples=10**5)
    assert found.verdict == "not_verifiable"


def test_without_any_noise_a_small_claim_is_refuted() -> None:
    assert audit(lambda arm, n: np.full(n, float(arm)), 4.0, samples=10**5).verdict == "violated"


def test_the_same_outputs_prove_nothing() -> None:
    found = audit(lambda arm, n: np.random.default_rng(arm).normal(size=n), 1.0, samples=10**5)
    assert found.lower < 0.1
    assert found.verdict == "holds"


@pytest.mark.parametrize("flip", [False, True])
def test_which_input_is_which_does_not_matter(flip: bool) -> None:
    plain = ideal(2.0)
    found = audit(lambda arm, n: plain(1 - arm if flip else arm, n), 2.0, samples=10**5)
    assert 1.7 <= found.lower <= 2.0


def refuted(repeated: bool) -> float:
    """How often two arms that are one law are told apart, at a confidence of 90 %."""
    found = []
    for seed in range(80):

        def sample(arm: int, n: int, seed: int = seed) -> Any:
            drawn = np.random.default_rng([seed, arm]).normal(size=n)
            return np.tile(drawn[: n // 2], 2) if repeated else drawn

        found.append(audit(sample, 0.0, samples=2000, confidence=0.9).lower > 0)
    return float(np.mean(found))


def test_the_bound_holds_as_often_as_it_says() -> None:
    assert refuted(repeated=False) <= 0.1 + 3 * math.sqrt(0.09 / 80)


def test_planted_choosing_and_counting_on_the_same_half_refutes_too_often() -> None:
    assert refuted(repeated=True) > 0.3


def test_a_verdict_is_one_of_three() -> None:
    settings = {"delta": 0.0, "limit": 11.1, "samples": MILLION, "confidence": 0.999}
    assert Audit(claimed=1.0, lower=1.01, **settings).verdict == "violated"  # type: ignore[arg-type]
    assert Audit(claimed=1.0, lower=0.99, **settings).verdict == "holds"  # type: ignore[arg-type]
    assert Audit(claimed=30.0, lower=11.0, **settings).verdict == "not_verifiable"  # type: ignore[arg-type]
    assert Audit(claimed=11.2, lower=11.3, **settings).verdict == "violated"  # type: ignore[arg-type]
