"""F-GERAI, its first stage: features are blurred once, and each user's by its own keys alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from tests.worlds import (
    checkerboard,
    digest,
    federation,
    phones,
    run,
    silos,
    uploads_of,
)
from veilrec.base.keys import Keys, hash_text
from veilrec.clients import Clients
from veilrec.defence import Defence, chain
from veilrec.defences.f_gerai import FGERAI
from veilrec.defences.none import Undefended
from veilrec.errors import BadInput
from veilrec.interactions import Interactions
from veilrec.models.fedgcn import FedGCN
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.protocols.fedavg import FedAvg
from veilrec.recipe.catalogue import find
from veilrec.rounds import Federation

NAMES = ("age", "items", "gender=f", "gender=m")
ITEMS = 12


def world(people: Sequence[str]) -> Interactions:
    """Everybody's events and features hang on the name alone."""
    keys = [Keys.seed(hash_text(name)) for name in people]
    items = [key.order(ITEMS)[:5] for key in keys]
    woman = torch.tensor([int(key.fold("gender").integers(2)) for key in keys])
    numbers = torch.stack([2 * key.fold("features").uniform(2) - 1 for key in keys])
    return Interactions.build(
        torch.arange(len(people)).repeat_interleave(5),
        torch.cat(items),
        list(people),
        [f"i{k}" for k in range(ITEMS)],
        time=torch.arange(5).repeat(len(people)),
        features=torch.cat([numbers, torch.stack([woman, 1 - woman], 1)], 1),
        feature_names=NAMES,
    )


PEOPLE = [f"person {k}" for k in range(30)]


def features(clients: Clients, defence: Defence, seed: int = 0) -> dict[str, Tensor]:
    """What training reads of each user, by name."""
    told = defence.prepare(clients, Keys.seed(seed)).log
    assert told.features is not None
    return dict(zip(told.user_ids, told.features, strict=True))


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a.keys() & b.keys())


def test_the_features_are_blurred_and_nothing_else() -> None:
    clients = phones(world(PEOPLE))
    told = FGERAI(epsilon=5.0).prepare(clients, Keys.seed(0))
    assert clients.log.features is not None
    assert told.log.features is not None
    assert told.log.features.shape == clients.log.features.shape
    assert told.log.features.dtype == clients.log.features.dtype
    assert not bool((told.log.features == clients.log.features).all(1).any())
    assert float(told.log.features.abs().max()) <= 1
    assert replace(told, log=replace(told.log, features=clients.log.features)) == clients


def test_nobodys_noise_hangs_on_who_else_is_there_or_on_the_order() -> None:
    defence = FGERAI(epsilon=5.0)
    whole = features(phones(world(PEOPLE)), defence)
    assert same(whole, features(phones(world(PEOPLE[::-1])), defence))
    assert same(whole, features(phones(world(PEOPLE[7:9])), defence))
    assert same(whole, features(phones(world(PEOPLE[7:8])), defence))  # as a real device is
    assert same(whole, features(silos(world(PEOPLE), 4), defence))
    assert len({tuple(row.tolist()) for row in whole.values()}) == len(PEOPLE)


def test_planted_noise_by_place_is_noticed() -> None:
    @dataclass(frozen=True)
    class ByPlace(FGERAI):
        def prepare(self, clients: Clients, keys: Keys) -> Clients:
            numbered = replace(
                clients, log=replace(clients.log, user_ids=list(map(str, range(len(clients)))))
            )
            told = super().prepare(numbered, keys)
            return replace(told, log=replace(told.log, user_ids=clients.log.user_ids))

    whole = features(phones(world(PEOPLE)), ByPlace(epsilon=5.0))
    assert not same(whole, features(phones(world(PEOPLE[::-1])), ByPlace(epsilon=5.0)))


def test_a_user_who_takes_another_value_changes_nobody_else() -> None:
    clients = phones(world(PEOPLE))
    assert clients.log.features is not None
    other = clients.log.features.clone()
    other[3] = torch.tensor([1.0, -1.0, 0.0, 0.0])
    changed = features(replace(clients, log=replace(clients.log, features=other)), FGERAI(epsilon=10.0))
    before = features(clients, FGERAI(epsilon=10.0))
    assert {n for n in before if not torch.equal(before[n], changed[n])} == {PEOPLE[3]}


def test_other_seeds_and_other_places_in_a_chain_draw_others() -> None:
    clients, defence = phones(world(PEOPLE)), FGERAI(epsilon=10.0)
    told = features(clients, defence)
    assert not same(told, features(clients, defence, seed=1))
    assert not same(told, features(clients, chain(Undefended(), defence)))


@pytest.mark.parametrize("defence", [FGERAI(features=False), FGERAI(epsilon=math.inf)], ids=["NL", "inf"])
def test_without_stage_one_the_features_stay(defence: FGERAI) -> None:
    clients = phones(world(PEOPLE))
    assert defence.prepare(clients, Keys.seed(0)) is clients


def test_where_there_are_no_features_the_variants_are_one() -> None:
    clients = phones(checkerboard())
    assert FGERAI().prepare(clients, Keys.seed(0)) is clients
    states = [run(federation(clients, FedMF(24, dim=4), None, FGERAI(features=on))) for on in (True, False)]
    assert digest(states[0]) == digest(states[1])


def test_features_without_names_are_refused() -> None:
    clients = phones(replace(world(PEOPLE), feature_names=NAMES[:3]))
    with pytest.raises(BadInput, match="4 columns and 3 names"):
        FGERAI().prepare(clients, Keys.seed(0))


def test_training_reads_the_blurred_features() -> None:
    """The model trains as if the blurred features had been the data."""
    clients = phones(world(PEOPLE))
    told = FGERAI(epsilon=5.0).prepare(clients, Keys.seed(0).fold("prepare"))
    only = FGERAI(epsilon=5.0, objective_epsilon=math.inf)
    blurred, given, plain = (
        run(federation(c, FedGCN(ITEMS, n_features=4, dim=4, head=(4,)), None, d), 2)
        for c, d in ((clients, only), (told, None), (clients, None))
    )
    assert digest(blurred) == digest(given) != digest(plain)


def networks(defence: Defence | None) -> Federation:
    return federation(phones(world(PEOPLE)), FedNCF(ITEMS, dim=4, head=(4,)), None, defence)


@pytest.mark.parametrize(
    "off", [FGERAI(features=False, objective_epsilon=math.inf), FGERAI(epsilon=math.inf, sensitivity=0.0)]
)
def test_at_no_strength_nothing_changes(off: FGERAI) -> None:
    assert digest(run(networks(None), 2)) == digest(run(networks(off), 2))


def test_it_promises_nothing_for_uploads_and_sends_what_it_would_anyway() -> None:
    assert FGERAI().declares(FedMF(24), FedAvg()) == ()
    assert find("defences", "f_gerai") is FGERAI
    plain, tilted = (uploads_of(networks(d))[1] for d in (None, FGERAI()))
    assert all(plain[k][0].received.values.keys() == tilted[k][0].received.values.keys() for k in plain)


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 0.0},
        {"objective_epsilon": -1.0},
        {"sensitivity": -1.0},
        {"ridge": -1.0},
        {"epsilon": math.nan},
    ],
)
def test_settings_that_mean_nothing_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(BadInput, match=f"defence.{next(iter(options))}"):
        FGERAI(**options)  # type: ignore[arg-type]
