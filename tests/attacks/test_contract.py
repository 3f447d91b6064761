"""Every attack of the catalogue: scores for everyone, from the transcript and the known labels alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

from tests.contract import Case, cases
from tests.worlds import checkerboard
from veilrec.attack import Threat
from veilrec.experiment import Experiment
from veilrec.interactions import id_hashes
from veilrec.keys import Keys
from veilrec.models.fedmf import FedMF
from veilrec.plan import Plan
from veilrec.transcript import Record, Transcript

EVERY = pytest.mark.parametrize("case", cases("attacks"), ids=str)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Transcript:
    """What the server saw of a world in which gender is written all over the uploads."""
    out: Path = tmp_path_factory.mktemp("attacked") / "run"
    model = partial(FedMF, dim=4, user="exposed")
    plan = Plan(rounds=3, lr=1.0)
    Experiment(checkerboard(), model, plan=plan, record=Record(("user", "item"), 1)).run(out)
    return Transcript.open(out / "transcript.safetensors")


def known(share: float = 0.5) -> torch.Tensor:
    data = checkerboard()
    return Threat("gender", share).draw(data.attributes["gender"], id_hashes(data.user_ids), Keys.seed(0))


@EVERY
def test_scores_every_class_for_everyone(case: Case, seen: Transcript) -> None:
    scores = case.build().infer(seen, known(), 2)
    assert scores.shape == (24, 2)
    assert scores.isfinite().all()


@EVERY
def test_the_same_again(case: Case, seen: Transcript) -> None:
    attack = case.build()
    assert torch.equal(attack.infer(seen, known(), 2), attack.infer(seen, known(), 2))


@EVERY
def test_leaves_what_it_is_given_alone(case: Case, seen: Transcript) -> None:
    labels = known()
    before = labels.clone()
    case.build().infer(seen, labels, 2)
    assert torch.equal(labels, before)


@EVERY
def test_copes_with_a_class_that_nobody_is_known_to_have(case: Case, seen: Transcript) -> None:
    labels = torch.where(known() == 1, -1, known())
    assert case.build().infer(seen, labels, 2).isfinite().all()


def test_a_random_guess_follows_the_known_shares() -> None:
    from veilrec.attacks.random_guess import RandomGuess

    labels = torch.cat([torch.zeros(300), torch.ones(100), torch.full((4000,), -1)]).long()
    guess = RandomGuess().infer(None, labels, 2).argmax(1)  # type: ignore[arg-type]  # it reads nothing
    assert abs(float((guess == 0).double().mean()) - 0.75) < 0.03
    other = RandomGuess(seed=1).infer(None, labels, 2).argmax(1)  # type: ignore[arg-type]
    assert not torch.equal(guess, other)


@pytest.mark.parametrize("stratified", [True, False])
def test_known_users_are_a_share_and_the_same_whatever_the_order(stratified: bool) -> None:
    label = torch.tensor([0] * 60 + [1] * 30 + [-1] * 10)
    tags, threat = torch.arange(100) * 7919, Threat("gender", 0.2, stratified)
    chosen = threat.draw(label, tags, Keys.seed(3))
    assert int((chosen >= 0).sum()) == 18
    assert bool((chosen[label < 0] == -1).all())
    assert torch.equal(chosen[chosen >= 0], label[chosen >= 0])
    if stratified:
        assert (int((chosen == 0).sum()), int((chosen == 1).sum())) == (12, 6)
    order = Keys.seed(5).order(100)
    assert torch.equal(threat.draw(label[order], tags[order], Keys.seed(3)), chosen[order])
