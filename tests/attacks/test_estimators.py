"""What stands around scikit-learn's estimators: known answers, and choices that held-out rows make."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.covariance import ledoit_wolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.svm import SVC, SVR

from tests.leaks import graded, planted
from veilrec.attacks.common.estimators import Discriminant, Quadratic, Scaled, Tuned, _rounded
from veilrec.base.keys import Keys


def two_groups() -> tuple[np.ndarray, np.ndarray]:
    """Means (−1, 0) and (1, 0), variance 1 within each, in every direction."""
    square = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    return np.concatenate([square - (1, 0), square - (-1, 0)]), np.repeat([0, 1], 4)


def test_the_discriminant_of_two_groups_by_hand() -> None:
    x, y = two_groups()
    one = Discriminant(0.3).fit(x, y)
    odds = one.predict_proba(np.array([[0.0, 5.0], [0.5, 0.0]]))
    assert np.allclose(odds[0], 0.5)
    assert np.allclose(odds[1, 1], 1 / (1 + np.exp(-1)))  # 2 · 0.5 apart in log odds


def test_the_discriminant_is_that_of_scikit_learn_without_shrinkage() -> None:
    leak = graded(1, 400, 5)
    x, y = leak.features.double().numpy(), leak.label.numpy()
    ours = Discriminant(1e-12).fit(x, y).predict_proba(x)
    theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(x, y).predict_proba(x)
    assert np.abs(ours - theirs).max() < 1e-6


def spread_apart(users: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes with one mean, of which the second is half as wide again."""
    keys = Keys.seed(2).fold("spread")
    y = keys.fold("class").integers(2, users)
    return (keys.normal(users, width, dtype=torch.float64) * (1 + 0.5 * y[:, None])).numpy(), y.numpy()


def test_the_quadratic_one_sees_spreads_where_the_linear_one_sees_nothing() -> None:
    x, y = spread_apart(600, 6)
    said = Quadratic().fit(x[:300], y[:300]).predict_proba(x[300:])
    assert np.allclose(said.sum(1), 1)
    assert 0.7 < np.mean(said.argmax(1) == y[300:]) < 0.95
    blind = Discriminant().fit(x[:300], y[:300]).predict_proba(x[300:])
    assert np.mean(blind.argmax(1) == y[300:]) < 0.6


def test_the_quadratic_one_is_half_way_from_its_own_to_the_pooled_covariance() -> None:
    x, y = spread_apart(40_000, 2)
    own = [np.cov(x[y == k].T, bias=True) for k in (0, 1)]
    pooled = sum(np.mean(y == k) * cov for k, cov in enumerate(own))
    exact = QuadraticDiscriminantAnalysis(store_covariance=False).fit(x, y)
    roots = [np.linalg.eigh(0.5 * cov + 0.5 * pooled) for cov in own]
    exact.scalings_, exact.rotations_ = [values for values, _ in roots], [vectors for _, vectors in roots]
    ours = Quadratic().fit(x, y).predict_proba(x[:500])
    theirs = exact.predict_log_proba(x[:500])
    log_odds = 2**0.5 * (
        np.log(ours[:, 1]) - np.log(ours[:, 0])
    )  # which are divided by the root of two columns
    assert np.abs(log_odds - (theirs[:, 1] - theirs[:, 0])).max() < 0.02


def test_a_covariance_is_drawn_to_the_sphere_as_far_as_ledoit_and_wolf_say() -> None:
    x = Keys.seed(1).normal(50, 30, dtype=torch.float64) * torch.arange(1, 31) ** 0.2
    centred = x - x.mean(0)
    theirs, _ = ledoit_wolf(centred.numpy(), assume_centered=True)
    assert np.abs(_rounded(centred, 30, 1.0).numpy() - theirs).max() < 1e-12


def test_columns_beyond_the_rows_cost_nothing_and_change_nothing() -> None:
    x, y = spread_apart(40, 90)
    turn = torch.linalg.qr(Keys.seed(4).normal(90, 90, dtype=torch.float64))[0].numpy()
    model = Quadratic().fit(x, y)
    assert model.basis_.shape == (90, 40)
    assert np.allclose(model.predict_proba(x), Quadratic().fit(x @ turn, y).predict_proba(x @ turn))
    wide = np.concatenate([x, np.zeros((40, 3)), x[:, :2]], 1)  # constant and doubled columns
    lonely = np.append(y[:-1], 2)  # a class of one row
    assert np.isfinite(Quadratic().fit(wide, lonely).predict_proba(wide)).all()


def test_held_out_rows_choose_who_does_not_learn_by_heart() -> None:
    """With more columns than rows a free covariance fits noise; a sphere does not."""
    leak = graded(2, 600, 80)
    x, y = leak.features.numpy()[:100].astype(float), leak.label.numpy()[:100]
    candidates = [Discriminant(1e-9), Discriminant(0.9)]
    assert Tuned(candidates).fit(x, y).chosen_ == 1
    assert Tuned(candidates[::-1]).fit(x, y).chosen_ == 0


def test_every_row_is_held_out_once_and_every_class_spread() -> None:
    y = np.repeat([0, 1, 2], [30, 9, 3])
    parts = list(Tuned([Discriminant()], random_state=4)._parts(y))
    held = np.concatenate([part for _, part in parts])
    assert sorted(held) == list(range(42))
    assert all(not set(taught) & set(part) for taught, part in parts)
    assert all(np.bincount(y[part]).tolist() == [10, 3, 1] for _, part in parts)
    other = list(Tuned([Discriminant()], random_state=5)._parts(y))
    assert not np.array_equal(parts[0][1], other[0][1])


def test_a_part_that_leaves_one_class_is_passed_over() -> None:
    y = np.array([0, 0, 0, 0, 1])
    assert len(list(Tuned([Discriminant()])._parts(y))) == 2
    assert Tuned([Discriminant(), Discriminant(0.1)]).fit(np.arange(10.0).reshape(5, 2), y).predict_proba(
        np.zeros((3, 2))
    ).shape == (3, 2)


@pytest.mark.parametrize("classes", [2, 3])
def test_margins_keep_their_order_and_their_winner(classes: int) -> None:
    leak = planted(classes, 200, 5)
    x, y = leak.features.numpy(), leak.label.numpy()
    one = Scaled(SVC()).fit(x[:60], y[:60])
    said = one.predict_proba(x)
    assert np.allclose(said.sum(1), 1)
    assert np.mean(said.argmax(1) == one.estimator_.predict(one._shown(x))) > 0.99
    margin = one.estimator_.decision_function(one._shown(x))
    column = margin if classes == 2 else margin[:, 1] - margin[:, 0]
    odds = said[:, 1] / said[:, 0]
    assert np.array_equal(
        np.argsort(column, kind="stable"), np.argsort(np.log(odds).round(12), kind="stable")
    )


def test_the_unit_of_a_value_does_not_matter() -> None:
    x = Keys.seed(0).normal(200, 4).numpy()
    y = x[:, 0].astype(float)
    plain, wide = (Scaled(SVR(), values=True).fit(x, unit * y + 7).predict(x) for unit in (1, 1000))
    assert np.allclose((wide - 7) / 1000, plain - 7, atol=0.01)  # libsvm stops at a tolerance


def test_the_estimator_given_stays_as_it_was() -> None:
    given = SVC()
    Scaled(given).fit(*two_groups())
    assert not hasattr(given, "support_")
