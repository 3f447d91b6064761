"""The embedded world: its shape, its determinism, what can be learnt from it and what leaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from veilrec.base.keys import Keys
from veilrec.datasets import synthetic as module
from veilrec.datasets.synthetic import synthetic
from veilrec.errors import BadInput
from veilrec.interactions import Interactions, Split


def hit_rate(scores: Tensor, log: Interactions, split: Split, negatives: int = 99, k: int = 10) -> float:
    """HR@k among sampled negatives, ties by expectation."""
    touched = torch.zeros(log.n_users, log.n_items, dtype=torch.bool)
    touched[log.user, log.item] = True
    lot = Keys.seed(1).uniform(log.n_users, log.n_items).masked_fill(touched, 2.0)
    rivals = scores.gather(1, lot.topk(negatives, largest=False).indices)
    own = scores.gather(1, split.test[:, None])
    greater, tied = (rivals > own).sum(1), (rivals == own).sum(1)
    return float(((k - greater) / (tied + 1)).clamp(0, 1).mean())


def table(log: Interactions) -> Tensor:
    seen = torch.zeros(log.n_users, log.n_items)
    seen[log.user, log.item] = 1
    return seen


def separation(log: Interactions, attribute: str) -> float:
    """How much better than its shuffle a nearest-centroid guess of an attribute is, on users held back."""
    seen, label = table(log), log.attributes[attribute]
    half = torch.arange(log.n_users) % 2 == 0
    seen = seen - seen[half].mean(0)
    seen = seen / seen.norm(dim=1, keepdim=True)
    classes = len(log.classes[attribute])
    centres = torch.stack([seen[half & (label == c)].sum(0) for c in range(classes)])
    guess = (seen[~half] @ (centres / centres.norm(dim=1, keepdim=True)).T).argmax(1)
    right = torch.stack([(guess[label[~half] == c] == c).float().mean() for c in range(classes)])
    return float(right.mean()) - 1 / classes


@pytest.mark.parametrize(
    ("options", "least"),
    [({}, 20), ({"users": 943, "items": 1682, "events": 100_000}, 20), ({"users": 3, "items": 8}, 2)],
)
def test_shape(options: Mapping[str, Any], least: int) -> None:
    log = synthetic(**options)
    users, items = options.get("users", 300), options.get("items", 200)
    assert (log.n_users, log.n_items) == (users, items)
    assert len(log) == options.get("events", len(log))
    assert int(log.counts.min()) >= least
    assert int(log.counts.max()) <= min(2_000, items // 2)
    assert len(torch.unique(log.user * items + log.item)) == len(log)
    assert {name: len(classes) for name, classes in log.classes.items()} == {
        "gender": 2,
        "age": 3,
        "region": 7,
    }
    assert all(bool((codes >= 0).all()) for codes in log.attributes.values())
    assert log.texts is not None
    assert len(set(log.texts)) > 0.99 * items
    assert log.report == ()


def test_ids_and_titles_are_readable() -> None:
    log = synthetic()
    assert (log.user_ids[0], log.item_ids[41]) == ("u0001", "film-0042")
    assert log.texts is not None
    assert all(title[0].isupper() and title.endswith(")") for title in log.texts)


def test_ages_in_years_are_those_of_the_group() -> None:
    log = synthetic(users=2000)
    years, group = log.values["age in years"], log.attributes["age"]
    assert (years.dtype, years.shape) == (torch.float64, (2000,))
    for number, (least, most) in enumerate(((18, 34), (35, 50), (51, 80))):
        own = years[group == number]
        assert (int(own.min()), int(own.max())) == (least, most)
        assert abs(float(own.mean()) - (least + most) / 2) < 1.5
    assert not torch.equal(years, synthetic(users=2000, seed=1).values["age in years"])


def test_both_sides_have_a_long_tail() -> None:
    log = synthetic(users=943, items=1682, events=100_000)
    fame = torch.bincount(log.item, minlength=log.n_items).sort(descending=True).values
    assert fame[:168].sum() > 0.3 * len(log)
    assert log.counts.max() > 5 * log.counts.median()


def test_same_seed_same_world() -> None:
    one, two, other = synthetic(seed=4), synthetic(seed=4), synthetic(seed=5)
    assert torch.equal(one.item, two.item)
    assert torch.equal(one.time, two.time)  # type: ignore[arg-type]
    assert one.texts == two.texts
    assert not torch.equal(one.item, other.item)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = synthetic(users=50, items=60, least=3)
    monkeypatch.setattr(module, "BLOCK", 7)
    assert torch.equal(whole.item, synthetic(users=50, items=60, least=3).item)


@pytest.mark.parametrize("options", [{}, {"users": 943, "items": 1682, "events": 100_000}])
def test_taste_can_be_learnt_and_popularity_is_no_answer(options: Mapping[str, int]) -> None:
    log = synthetic(**options)
    split = log.leave_one_out()
    seen = table(split.train)
    popularity = seen.sum(0)
    scale = (popularity + 1).pow(0.25)
    left, size, right = torch.linalg.svd(seen / scale, full_matrices=False)
    factors = (left[:, :8] * size[:8]) @ right[:8] * scale
    floor = hit_rate(popularity.expand_as(seen), log, split)
    assert 0.1 < floor < 0.6
    assert hit_rate(factors, log, split) > floor + 0.1


def test_leakage_grows_from_nothing() -> None:
    none, some, most = (synthetic(users=800, leakage=leakage) for leakage in (0.0, 0.5, 1.0))
    for attribute in ("gender", "age", "region"):
        assert abs(separation(none, attribute)) < 0.09
        assert separation(none, attribute) < separation(some, attribute) < separation(most, attribute)
        assert separation(most, attribute) > 0.2


def test_without_leakage_other_people_do_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, leaky = synthetic(leakage=0.0), synthetic(leakage=0.7)
    drawn = module._classes
    monkeypatch.setattr(module, "_classes", lambda *a: drawn(*a).flip(0))
    assert torch.equal(plain.item, synthetic(leakage=0.0).item)
    assert not torch.equal(leaky.item, synthetic(leakage=0.7).item)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"users": 0}, "data.users"),
        ({"items": 2}, "data.items"),
        ({"leakage": 1.5}, "data.leakage"),
        ({"leakage": float("nan")}, "data.leakage"),
        ({"tastes": 0}, "data.tastes"),
        ({"events": 10}, "data.events"),
        ({"events": 10**9}, "data.events"),
        ({"least": 150}, "data.least"),
        ({"least": 0}, "data.least"),
    ],
)
def test_impossible_worlds_are_refused(options: Mapping[str, Any], key: str) -> None:
    with pytest.raises(BadInput, match=key):
        synthetic(**options)


@pytest.mark.slow
def test_a_large_world_has_its_least_and_most() -> None:
    log = synthetic(users=100_000, items=20_000)
    assert len(log) == 4_000_000
    assert int(log.counts.min()) >= 20
    assert int(log.counts.max()) <= 2_000
