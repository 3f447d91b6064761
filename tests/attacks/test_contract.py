"""Every attack of the catalogue: scores for everyone, from the transcript and the known labels alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.contract import Case, cases
from tests.hooks import Classifying
from tests.worlds import checkerboard, federation, phones
from veilrec.attack import Attack, Seen, Task
from veilrec.base.keys import Keys
from veilrec.clients import Clients
from veilrec.engine.features import with_features
from veilrec.engine.probe import see
from veilrec.interactions import id_hashes
from veilrec.lab.threat import Threat
from veilrec.model import Recommender
from veilrec.models.fedgcn import FedGCN
from veilrec.models.fedmf import FedMF
from veilrec.models.fedrap import FedRAP

EVERY = pytest.mark.parametrize("case", cases("attacks"), ids=str)


Worlds = tuple[Seen, ...]
GRANTS = "interactions", "user_vectors", "tables"


@pytest.fixture(scope="module")
def seen() -> Seen:
    """What the server sees of a world in which gender is written all over the uploads."""
    return seen_of(FedMF(48, 1, dim=4, user="exposed"))


@pytest.fixture(scope="module")
def worlds(seen: Seen) -> Worlds:
    """That one, one in which devices keep item tables of their own, and one in which they know features."""
    people = with_features(phones(checkerboard(48)), private=True)
    featured = FedGCN(48, n_features=len(people.log.feature_names), dim=4, head=(4,))
    return seen, seen_of(FedRAP(48, 1, dim=4)), seen_of(featured, people)


def seen_of(model: Recommender, people: Clients | None = None) -> Seen:
    fed = federation(people or phones(checkerboard(48)), model, None, Classifying(), lr=1.0)
    return see(fed, fed.run(fed.start(), rounds=3), GRANTS)


def fitting(case: Case, worlds: Worlds) -> Iterator[tuple[Attack, Seen]]:
    """All that an entry unfolds to, each in the first world that it does not refuse."""
    for attack in case.build().unfold().values():
        yield attack, next(seen for seen in worlds if not attack.refuses(seen.public, GRANTS))


def task(share: float = 0.5) -> Task:
    data = checkerboard(48)
    label, tags = data.attributes["gender"], id_hashes(data.user_ids)
    return Task(Threat(("gender",), share).draw(label, tags, Keys.seed(0)).hide(label), 2, 0, "gender")


@EVERY
def test_scores_every_class_for_everyone(case: Case, worlds: Worlds) -> None:
    for attack, seen in fitting(case, worlds):
        scores = attack.infer(seen, task())
        assert scores.shape == (48, 2)
        assert scores.isfinite().all()


@EVERY
def test_the_same_again(case: Case, worlds: Worlds) -> None:
    for attack, seen in fitting(case, worlds):
        assert torch.equal(attack.infer(seen, task()), attack.infer(seen, task()))


@EVERY
def test_many_tasks_are_each_alone(case: Case, worlds: Worlds) -> None:
    for attack, seen in fitting(case, worlds):
        both = attack.infer_all(seen, [task(), task(0.25)])
        for one, own in zip(both, (task(), task(0.25)), strict=True):
            assert torch.allclose(one, attack.infer(seen, own), atol=1e-4)


@EVERY
def test_leaves_what_it_is_given_alone(case: Case, worlds: Worlds) -> None:
    given = task()
    before = given.known.clone()
    for attack, seen in fitting(case, worlds):
        attack.infer(seen, given)
        assert torch.equal(given.known, before)


@EVERY
def test_copes_with_a_class_that_nobody_is_known_to_have(case: Case, worlds: Worlds) -> None:
    given = task()
    rare = given._replace(known=torch.where(given.known == 1, -1, given.known))
    for attack, seen in fitting(case, worlds):
        assert attack.infer(seen, rare).isfinite().all()
