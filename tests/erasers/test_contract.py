"""What every eraser of attributes must do, whoever wrote it: tests of all that the catalogue lists."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.contract import Case, cases
from tests.erasers.worlds import by_silos, keyed, told
from veilrec.eraser import AttributeEraser, Request
from veilrec.erasers.common.arrays import forget
from veilrec.erasers.common.rounds import Present, RoundEraser
from veilrec.erasers.common.sums import SumEraser
from veilrec.errors import BadInput
from veilrec.models.fedgcn import FedGCN
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.models.fedrap import FedRAP
from veilrec.models.fedvae import FedVAE
from veilrec.models.pfedrec import PFedRec

EVERY = cases("erasers")
OF_ROUNDS = [case for case in EVERY if isinstance(case.build(), RoundEraser)]
CASES = [c for c in EVERY if isinstance(c.build(), AttributeEraser) and c not in OF_ROUNDS]
WIDTH = 4
SOME = torch.arange(90) % 3 > 0


@pytest.fixture(params=CASES, ids=str)
def eraser(request: pytest.FixtureRequest) -> AttributeEraser:
    return request.param.build()  # type: ignore[no-any-return]


@pytest.mark.parametrize("case", EVERY, ids=str)
def test_it_names_its_source(case: Case) -> None:
    assert "Paper: " in (sys.modules[case.entry.__module__].__doc__ or "")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_who_does_not_ask_stays_to_the_bit_and_who_asks_is_changed(
    eraser: AttributeEraser, dtype: torch.dtype
) -> None:
    vectors, label = told((40, 50), WIDTH)
    vectors, before = vectors.to(dtype), vectors.to(dtype).clone()
    after = eraser.forget(vectors, Request({"gender": label}, asks=SOME), keyed())
    assert (after.shape, after.dtype) == (vectors.shape, dtype)
    assert bool(after.isfinite().all())
    assert torch.equal(after[~SOME], vectors[~SOME])
    assert bool((after[SOME] != vectors[SOME]).any(1).all())
    assert torch.equal(vectors, before)  # what was given is not touched


def test_without_a_label_a_user_is_left_alone_or_moved_as_all_others(eraser: AttributeEraser) -> None:
    vectors, label = told((40, 50), WIDTH)
    silent = torch.arange(90) % 10 == 0
    after = eraser.forget(vectors, Request({"gender": torch.where(silent, -1, label)}), keyed())
    changed = (after != vectors).any(1)
    assert bool(after.isfinite().all())
    assert bool(changed[~silent].all())
    assert bool((changed[silent] == (not eraser.needs_labels)).all())
    assert torch.equal(eraser.moved(Request({"gender": torch.where(silent, -1, label)})), changed)


def test_labels_of_those_who_ask_are_not_needed_where_it_says_so(eraser: AttributeEraser) -> None:
    vectors, label = told((40, 50), WIDTH)
    hidden = torch.where(SOME, -1, label)
    one = eraser.forget(vectors, Request({"gender": label}, asks=SOME, lends=~SOME), keyed())
    other = eraser.forget(vectors, Request({"gender": hidden}, asks=SOME, lends=~SOME), keyed())
    assert torch.equal(one, other) != eraser.needs_labels


def test_the_order_of_the_rows_says_nothing(eraser: AttributeEraser) -> None:
    vectors, label = told((40, 50), WIDTH)
    tags, order = torch.arange(90) + 1000, torch.arange(89, -1, -1)
    one = eraser.forget(vectors, Request({"gender": label}, tags=tags), keyed())
    other = eraser.forget(vectors[order], Request({"gender": label[order]}, tags=tags[order]), keyed())
    assert torch.allclose(one[order], other, atol=1e-6 if isinstance(eraser, SumEraser) else 1e-2)


def test_draws_are_its_only_chance(eraser: AttributeEraser) -> None:
    vectors, label = told((40, 50), WIDTH)
    request = Request({"gender": label})
    one, again, other = (eraser.forget(vectors, request, keyed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    if eraser.secret:
        assert not torch.equal(one, other)


def test_what_is_made_equal_is_equal_the_second_time(eraser: AttributeEraser) -> None:
    if not eraser.exact:
        pytest.skip("does not promise to make anything equal")
    vectors, label = told((40, 50), WIDTH)
    once = eraser.forget(vectors, Request({"gender": label}), keyed())
    twice = eraser.forget(once, Request({"gender": label}), keyed(7))
    assert torch.allclose(once, twice, atol=1e-8)


def test_an_attribute_of_one_class_changes_nothing(eraser: AttributeEraser) -> None:
    vectors, label = told((90,), WIDTH)
    after = eraser.forget(vectors, Request({"gender": label}), keyed())
    assert float((after - vectors).abs().max()) < 1e-12


def test_odd_classes_and_columns_leave_everything_finite(eraser: AttributeEraser) -> None:
    """Classes of nobody, of one, of seven and of many; a constant column, a twin, a tiny and a far one."""
    vectors, label = told((0, 1, 7, 12, 30), WIDTH)
    more = [vectors, vectors[:, :1], 1e-7 * vectors[:, 1:2], 1e5 + vectors[:, 2:3], 0 * vectors[:, :1] + 3]
    wide = torch.cat(more, 1)
    after = eraser.forget(wide, Request({"gender": label}, {"gender": 6}), keyed())
    assert bool(after.isfinite().all())
    assert float(after[:, :WIDTH].abs().max()) < 100


def test_several_attributes_are_forgotten_or_those_it_is_set_to(eraser: AttributeEraser) -> None:
    vectors, label = told((40, 50), WIDTH)
    both = {"gender": label, "age": torch.arange(90) % 3}
    assert bool((eraser.forget(vectors, Request(both), keyed()) != vectors).any(1).all())
    chosen = replace(eraser, attributes=("gender",))
    alone = chosen.forget(vectors, Request({"gender": label}), keyed())
    assert torch.equal(chosen.forget(vectors, Request(both), keyed()), alone)
    with pytest.raises(BadInput, match="genre"):
        replace(eraser, attributes=("genre",)).forget(vectors, Request(both), keyed())


def test_sums_of_silos_do_what_all_vectors_together_do(eraser: AttributeEraser) -> None:
    if not isinstance(eraser, SumEraser):
        pytest.skip("needs vectors in one place")
    vectors, label = told((100, 150, 60), WIDTH)
    request = Request({"gender": torch.where(torch.arange(310) % 10 == 0, -1, label)})
    pooled = eraser.forget(vectors, request, keyed())
    assert torch.allclose(by_silos(eraser, vectors, request, silos=10), pooled, atol=1e-6)


def test_what_is_not_one_finite_row_a_user_is_refused(eraser: AttributeEraser) -> None:
    vectors, label = told((40, 50), WIDTH)
    for wrong in (vectors[:80], vectors[None]):
        with pytest.raises(BadInput, match="one row a user"):
            eraser.forget(wrong, Request({"gender": label}))
    with pytest.raises(BadInput, match="not finite"):
        eraser.forget(vectors / 0.0, Request({"gender": label}))


@pytest.mark.parametrize("model", [FedVAE(12), FedGCN(12), FedRAP(12)], ids=lambda m: type(m).__name__)
def test_a_model_without_user_vectors_is_refused_in_one_line(eraser: AttributeEraser, model: object) -> None:
    with pytest.raises(BadInput, match=type(model).__name__) as error:
        eraser.check(model)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_all_that_is_a_users_own_is_changed(eraser: AttributeEraser) -> None:
    assert eraser.weights(FedMF(12)) == ["user"]
    assert eraser.weights(FedNCF(12, kind="neumf")) == ["user", "mlp_user"]
    assert eraser.weights(PFedRec(12)) == ["score.weight", "score.bias"]
    with pytest.raises(BadInput, match="item"):
        replace(eraser, parts=("item",)).check(FedMF(12))


@pytest.mark.parametrize("case", EVERY, ids=str)
def test_it_takes_arrays_of_any_library(case: Case) -> None:
    vectors, label = told((40, 50), WIDTH)
    table, names = vectors.float().numpy(), ["", "female", "male"]
    if case in OF_ROUNDS:
        with pytest.raises(BadInput, match="vectors alone"):
            forget(case.build(), table, {"gender": label.numpy()})
        return
    if len(case.build().changes) > 1:
        pytest.skip("changes several parts")
    asks = SOME.numpy()
    given = {"gender": [names[int(one) + 1] for one in torch.where(SOME, label, -1)]}
    after = forget(case.build(), table, given, asks=asks, draws=keyed())
    assert isinstance(after, np.ndarray)
    assert (after.dtype, after.shape) == (np.float32, (90, WIDTH))
    assert np.array_equal(after[~asks], table[~asks])
    assert (after[asks] != table[asks]).any(1).all()
    with pytest.raises(BadInput, match="labels gender"):
        forget(case.build(), table, {"gender": np.zeros(90)})


@pytest.fixture(params=OF_ROUNDS, ids=str)
def in_rounds(request: pytest.FixtureRequest) -> RoundEraser:
    return request.param.build()  # type: ignore[no-any-return]


def silos(vectors: Tensor, request: Request, count: int) -> list[Present]:
    """Users dealt to silos, before any round."""
    dealt = [torch.arange(k, len(vectors), count) for k in range(count)]
    return [Present(vectors[own], vectors[own], request.of(own)) for own in dealt]


def test_between_rounds_all_who_ask_and_tell_are_changed(in_rounds: RoundEraser) -> None:
    vectors, label = told((40, 50), WIDTH)
    request = Request({"gender": torch.where(torch.arange(90) % 10 == 0, -1, label)}, asks=SOME)
    clients = silos(vectors, request, 4)
    after = in_rounds.between(clients, keyed()).vectors
    for one, changed in zip(clients, after, strict=True):
        moved = in_rounds.moved(one.request)
        assert bool(changed.isfinite().all())
        assert bool((changed[moved] != one.vectors[moved]).any(1).all())
        assert 0 < int(moved.sum()) < len(moved)


def test_between_rounds_one_class_changes_nothing(in_rounds: RoundEraser) -> None:
    vectors, label = told((90,), WIDTH)
    clients = silos(vectors, Request({"gender": label}), 3)
    for one, after in zip(clients, in_rounds.between(clients, keyed()).vectors, strict=True):
        assert float((after - one.vectors).abs().max()) < 1e-12


def test_between_rounds_odd_classes_leave_everything_finite(in_rounds: RoundEraser) -> None:
    vectors, label = told((0, 1, 7, 12, 30), 9)
    clients = silos(vectors, Request({"gender": label, "age": torch.arange(50) % 21}), 2)
    after = torch.cat(in_rounds.between(clients, keyed()).vectors)
    assert bool(after.isfinite().all())
    assert float(after.abs().max()) < 100


def test_between_rounds_a_repetition_has_the_same_bits(in_rounds: RoundEraser) -> None:
    vectors, label = told((40, 50), WIDTH)
    clients = silos(vectors, Request({"gender": label}), 3)
    one, again = (in_rounds.between(clients, keyed(1)).vectors for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
