"""All places at once, and defences in a chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from tests.hooks import (
    LR,
    Add,
    Attached,
    Blur,
    Everywhere,
    Forget,
    Helped,
    NoisyPenalty,
    Open,
    Push,
    Scramble,
    StopAfter,
    Times,
    fed_of,
    goals,
)
from tests.worlds import checkerboard, digest, federation, held, largest, phones, run, uploads_of
from veilrec.base.keys import Keys
from veilrec.base.params import Rows, Scope
from veilrec.clients import Batch
from veilrec.defence import HOOKS, HelperSteps, chain
from veilrec.defences.none import Undefended
from veilrec.defences.pard import PARD
from veilrec.defences.uc_fedrec import UCFedRec
from veilrec.errors import BadInput
from veilrec.model import Device
from veilrec.models.fedmf import FedMF
from veilrec.wire.codec import one


def test_all_hooks_are_reached_as_often_as_they_should_be() -> None:
    defence = Everywhere()
    fed = fed_of(defence, phones(checkerboard(), 0.5), rounds=2, epochs=3, batch=5, chunk=12)
    state = fed.run(fed.start())
    chunks, steps = 2, 2
    assert defence.calls == {
        "prepare": 1,
        "attach": 1,
        "posts": 2 * chunks,
        "helper_loss": 2 * chunks * 3 * steps,
        "penalty": 2 * chunks * 3 * steps,
        "after_epoch": 2 * chunks * 3,
        "on_upload": 2 * chunks,
        "stop": 2,
    }
    assert set(defence.calls) == set(HOOKS)
    plain = run(fed_of(None, rounds=2, epochs=3, batch=5, chunk=12), 2)
    assert largest(state.server["item"], plain.server["item"]) == 0


def test_a_defence_says_where_it_acts() -> None:
    assert all(Everywhere().acts(hook) for hook in HOOKS)
    assert not any(Undefended().acts(hook) for hook in HOOKS)
    assert [hook for hook in HOOKS if Blur().acts(hook)] == ["on_upload"]
    assert [hook for hook in HOOKS if chain(Blur(), Push()).acts(hook)] == ["penalty", "on_upload"]


def test_a_chain_of_one_or_of_nothing_is_no_chain() -> None:
    blur = Blur()
    assert chain(blur) is blur
    assert digest(run(fed_of(chain()), 2)) == digest(run(fed_of(), 2))
    assert digest(run(fed_of(chain(Undefended(), Undefended())), 2)) == digest(run(fed_of(), 2))


def test_changes_apply_in_order() -> None:
    first, second = (fed_of(chain(*pair), lr=0.0) for pair in ((Add(), Times()), (Times(), Add())))
    user = held(first, first.start())["user"]
    assert largest(held(first, run(first))["user"], (user + 1) * 3) < 1e-5
    assert largest(held(second, run(second))["user"], user * 3 + 1) < 1e-5


@dataclass(frozen=True)
class Choosy(Add):
    """Has a body for a hook at which its options let it do nothing."""

    def acts(self, hook: str) -> bool:
        return False


def test_a_link_is_skipped_where_it_says_that_it_does_nothing() -> None:
    """As APM under one choice of `every` beside another APM under the other."""
    skipped, nothing, twice = (
        digest(run(fed_of(chain(first, Add(), Blur())), 2)) for first in (Choosy(), Undefended(), Add())
    )
    assert skipped == nothing != twice


def test_a_chain_in_a_chain_is_walked_link_by_link() -> None:
    blur, push, add = Blur(), Push(), Add()
    nested = chain(chain(blur, push), add)
    assert nested.links == (blur, push, add)
    assert blur.links == (blur,)
    number = torch.tensor([3, 1])
    keys = Keys.seed(4)
    device = Device(Batch.by_hand(3), {}, {}, keys, number[0], number[1])
    ((link, own),) = nested.acting("on_upload", device)
    assert link is blur
    assert torch.equal(own.keys.value, keys.fold(0).fold(0).value)
    assert [link for link, _ in nested.acting("penalty", device)] == [push]


@pytest.mark.parametrize("hook", ["helper_loss", "penalty", "after_epoch", "on_upload"])
def test_what_happens_on_devices_is_asked_of_links(hook: str) -> None:
    """A chain that let an upload pass as it is would go unnoticed."""
    both = chain(Add(0.0, 1.0), Add(0.0, 2.0))
    with pytest.raises(TypeError, match="link by link"):
        getattr(both, hook)(None, None)


def test_penalties_add_up() -> None:
    both, one_alone = (
        fed_of(d, lr={"user": LR, "default": 0.0}) for d in (chain(Push(2.0), Push(0.5)), Push(2.5))
    )
    assert largest(held(both, run(both))["user"], held(one_alone, run(one_alone))["user"]) < 1e-6


def test_chains_reach_every_other_place_too() -> None:
    assert len(fed_of(chain(Forget(12), Forget(6))).clients.log) == len(fed_of(Forget(6)).clients.log)
    two = fed_of(chain(Attached(name="a"), Attached(Scope.PRIVATE, "b")))
    state = run(two)
    assert largest(state.server["a"], goals().mean(0)) < 1e-6
    assert largest(held(two, state)["b"], goals()) < 1e-6
    fed = fed_of(chain(StopAfter(5), StopAfter(2)), rounds=9)
    assert [state.round for state, _ in fed.rounds(fed.start())] == [1, 2]
    posts = run(fed_of(chain(Open(), Everywhere()), phones(checkerboard(), 1.0))).posts
    assert set(posts.values) == {"vector", "label", "one"}


@dataclass(frozen=True)
class Slow(Helped):
    """Its probe steps at a rate of its own."""

    helpers: ClassVar[HelperSteps] = HelperSteps(lr=0.01)


def test_helpers_of_two_paces_are_refused() -> None:
    """A chain has one stepper: the second defence's helpers would be trained as the first one's are."""
    for pair in ((Slow(), Helped()), (Helped(), Slow()), (UCFedRec(), PARD()), (PARD(), UCFedRec(lr=0.2))):
        with pytest.raises(BadInput, match=r"^defence: two of them train helpers .* each at another pace; "):
            chain(*pair)
    assert chain(UCFedRec(), UCFedRec(strength=0.5)).helpers == UCFedRec().helpers
    assert chain(Blur(), Slow()).helpers == Slow().helpers
    assert chain(Blur(), Push()).helpers == HelperSteps()


def test_two_of_a_kind_draw_different_noise() -> None:
    """Twice the same noise would be one noise of twice the size: a weaker mixture than the chain promises."""
    once, twice = (uploads_of(fed_of(d, lr=0.0))[1] for d in (Blur(), chain(Blur(), Blur())))
    values = []
    for seen in (once, twice):
        rows = one(seen[0][0].received.values, seen[0][1])["item"]
        assert isinstance(rows, Rows)
        values.append(rows.value[rows.row >= 0])
    assert 1.1 < float(values[1].std() / values[0].std()) < 1.8  # the square root of two, not two


def test_two_of_a_kind_push_in_different_directions() -> None:
    alone, plain, both = (
        fed_of(d, lr={"user": LR, "default": 0.0})
        for d in (NoisyPenalty(), None, chain(NoisyPenalty(), NoisyPenalty()))
    )
    single, free, double = (held(f, run(f))["user"] for f in (alone, plain, both))
    assert largest(double - free, 2 * (single - free)) > 0.1


def test_scrambles_in_a_chain_differ() -> None:
    first = federation(phones(checkerboard()), FedMF(24), None, Scramble()).clients.log.attributes["gender"]
    second = federation(phones(checkerboard()), FedMF(24), None, chain(Scramble(), Scramble())).clients.log
    assert not torch.equal(first, second.attributes["gender"])
