"""Every attacker: finds what is there, finds nothing where nothing is, and never looks at whom it attacks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from statistics import mean

import pytest
import torch
from torch import Tensor

from tests.leaks import Leak, graded, planted
from veilrec.attacks.common import classifiers, jobs
from veilrec.attacks.common.classifiers import CLASSIFIERS, FAMILIES, Job, Sizes, fit_predict, staged
from veilrec.attacks.common.estimators import Scale
from veilrec.base.keys import Keys
from veilrec.errors import BadInput

FLOORS = [name for name, entry in CLASSIFIERS.items() if entry.family == "floor"]
LEARNERS = [name for name in CLASSIFIERS if name not in FLOORS]
OURS = ["mlp", "logistic", "lda", "tree", "svc", "knn", "forest", "boosting", "xgboost"]
VALUED = [name for name, entry in CLASSIFIERS.items() if entry.values]
EVERY = pytest.mark.parametrize("name", CLASSIFIERS)


def quick_first(names: Iterable[str]) -> pytest.MarkDecorator:
    """Those of the papers are ours with other settings, and a forest is one more of scikit-learn's."""
    dear = [name for name in CLASSIFIERS if "-" in name or name == "forest"]
    given = [pytest.param(name, marks=pytest.mark.slow if name in dear else ()) for name in names]
    return pytest.mark.parametrize("name", given)


EVERY_LEARNER, EVERY_QUICK = quick_first(LEARNERS), quick_first(CLASSIFIERS)
Fit = Callable[[str, Tensor, Sequence[Job]], list[Tensor]]


@pytest.fixture(autouse=True)
def _boosters(request: pytest.FixtureRequest) -> None:
    """There are platforms without the small xgboost."""
    if "xgboost" in str(getattr(request.node, "callspec", None) and request.node.callspec.params.get("name")):
        pytest.importorskip("xgboost")


def small(classes: int = 3, users: int = 150) -> Leak:
    return planted(classes, users, width=6)


def told(name: str, leak: Leak, seed: int = 0) -> Tensor:
    return fit_predict(name, leak.features, [leak.job(seed)])[0]


# What an attacker is


def test_the_eight_of_the_list_the_floors_and_the_papers_are_there() -> None:
    assert set(OURS) < set(CLASSIFIERS)
    assert {"majority", "random", "uniform"} == set(FLOORS)
    assert {"mlp-pard", "mlp-apm", "mlp-aegis", "xgboost-aegis", "mlp-fedau2"} < set(CLASSIFIERS)
    assert {"tree-apm", "svc-apm", "knn-apm"} < set(CLASSIFIERS)
    for kind in ("mlp", "tree", "svc", "knn"):
        assert CLASSIFIERS[f"{kind}-apm"].family == CLASSIFIERS[kind].family
    assert {entry.family for entry in CLASSIFIERS.values()} == set(FAMILIES)
    assert set(VALUED) == {*OURS, "majority"} - {"lda"}


@EVERY
def test_it_is_scikit_learn_shaped(name: str) -> None:
    leak = small()
    made = CLASSIFIERS[name].classes(Sizes(leak.known, 6, 3, 5))
    assert not [learned for learned in vars(made) if learned.endswith("_") and not learned.startswith("_")]
    x, y = leak.features[: leak.known].numpy(), leak.label[: leak.known].numpy()
    made.fit(x, y)
    assert made.predict_proba(x).shape == (leak.known, 3)
    assert [learned for learned in vars(made) if learned.endswith("_")] or name.startswith("xgboost")


@EVERY
def test_says_a_probability_for_every_class_of_everyone_and_changes_nothing(name: str) -> None:
    leak, threads = small(), torch.get_num_threads()
    features, label = leak.features.clone(), leak.label.clone()
    scores = told(name, leak)
    assert scores.shape == (150, 3)
    assert scores.dtype == torch.float64
    assert torch.allclose(scores.sum(1), torch.ones(150, dtype=torch.float64), atol=1e-5)
    assert bool((scores >= 0).all())
    assert torch.equal(leak.features, features)
    assert torch.equal(leak.label, label)
    assert torch.get_num_threads() == threads


@EVERY_QUICK
def test_the_same_seed_gives_the_same_bits_with_any_number_of_threads(name: str) -> None:
    leak = small()
    jobs = [leak.job(seed) for seed in (3, 4)]
    alone, both = (fit_predict(name, leak.features, jobs, threads=threads) for threads in (1, 2))
    assert all(torch.equal(one, other) for one, other in zip(alone, both, strict=True))


@EVERY_QUICK
def test_jobs_together_are_the_jobs_one_by_one(name: str) -> None:
    leak, other = small(), small(2)
    jobs = [leak.job(1), Job(torch.arange(100, 127), other.label[100:127], 2, 2)]
    together = fit_predict(name, leak.features, jobs)
    for job, scores in zip(jobs, together, strict=True):
        assert float((fit_predict(name, leak.features, [job])[0] - scores).abs().max()) < 1e-4


@pytest.mark.parametrize("name", ["mlp", "mlp-pard", "mlp-apm", "mlp-aegis"])
def test_stages_end_in_the_answer(name: str) -> None:
    leak = small()
    stages = staged(name, leak.features, leak.job())
    assert len(stages) >= 100
    assert stages.shape[1:] == (150, 3)
    assert float((stages[-1] - told(name, leak)).abs().max()) < 1e-6
    assert not torch.equal(stages[0], stages[-1])


def test_one_stage_where_there_are_none() -> None:
    leak = small()
    assert torch.equal(staged("lda", leak.features, leak.job()), told("lda", leak)[None])
    same = Job(torch.arange(4), torch.ones(4).long(), 3)
    assert staged("mlp", leak.features, same).shape == (1, 150, 3)


# Awkward problems


@EVERY_QUICK
def test_a_class_that_nobody_is_known_to_have_gets_nothing(name: str) -> None:
    leak = small()
    scores = fit_predict(name, leak.features, [Job(torch.arange(30), 2 * (leak.label[:30] > 0), 4)])[0]
    assert scores.shape == (150, 4)
    assert float(scores[:, [1, 3]].abs().max()) == 0
    assert float(scores[:, 2].max()) > 0


@EVERY
def test_one_class_alone_is_the_answer(name: str) -> None:
    scores = fit_predict(name, small().features, [Job(torch.arange(9), torch.full((9,), 2), 3)])[0]
    assert torch.equal(scores, torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).expand(150, 3))


@EVERY_QUICK
@pytest.mark.parametrize("rows", [2, 8])
def test_few_users_and_a_class_of_one(name: str, rows: int) -> None:
    label = torch.zeros(rows).long()
    label[-1] = 1
    assert bool(fit_predict(name, small().features, [Job(torch.arange(rows), label, 2)])[0].isfinite().all())


@EVERY_QUICK
def test_constant_columns_huge_ones_and_a_single_one(name: str) -> None:
    leak = small(2)
    odd = torch.cat(
        [torch.full((150, 2), 3.0), leak.features, leak.features * 1e20, leak.features * 1e-20], 1
    )
    for features in (odd, odd[:, :1], leak.label[:, None].float()):
        scores = fit_predict(name, features, [leak.job()])[0]
        assert bool(scores.isfinite().all())
    if name in LEARNERS and name != "mlp-fedau2":  # of one column, the label: everybody finds it
        assert leak.auc(scores) > 0.99


def test_a_column_that_the_known_users_do_not_vary_in_says_nothing_of_the_others() -> None:
    scale = Scale(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    assert torch.equal(
        scale(torch.tensor([[1.0, 5.0], [4.0, 9.0]])), torch.tensor([[-1.0, 0.0], [2.0, 0.0]]).double()
    )
    assert scale(torch.tensor([[1e9, 0.0]]))[0, 0] == 10


@pytest.mark.parametrize(
    ("job", "change", "where"),
    [
        (Job(torch.arange(9), torch.arange(9) % 2, 2), torch.nan, "attack.reads"),
        (Job(torch.arange(9), torch.arange(9) % 2, 2), torch.inf, "attack.reads"),
        (Job(torch.arange(0), torch.arange(0), 2), 0.0, "threat.known"),
        (Job(torch.arange(9), torch.arange(9) / 2, 0), 0.0, "attack.classifiers"),
    ],
)
def test_what_cannot_be_learned_is_refused(job: Job, change: float, where: str) -> None:
    features = small().features
    features[140, 2] = change
    with pytest.raises(BadInput, match=where):
        fit_predict("lda", features, [job])


def test_a_wrong_name_gets_the_nearest() -> None:
    with pytest.raises(BadInput, match='did you mean "logistic"'):
        fit_predict("logistics", small().features, [small().job()])


def test_without_xgboost_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(BadInput, match=r"pip install 'veilrec\[boost\]'"):
        fit_predict("xgboost", small().features, [small().job()])


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3])
def test_those_of_apm_are_scikit_learns_defaults(classes: int, scale: float) -> None:
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    leak = graded(2, 300, 12) if classes == 2 else planted(classes, 300, width=12)
    leak = leak._replace(features=leak.features * scale + scale)
    x, y = leak.features.numpy(), leak.label[: leak.known].numpy()
    theirs = SVC(decision_function_shape="ovr").fit(x[: leak.known].astype("float64"), y)
    made = CLASSIFIERS["svc-apm"].classes(Sizes(leak.known, 12, classes, 0)).fit(x[: leak.known], y)
    mine = made.estimator_.decision_function(made._shown(x))
    assert torch.allclose(
        torch.as_tensor(mine), torch.as_tensor(theirs.decision_function(x.astype("float64"))), atol=1e-5
    )
    assert (told("svc-apm", leak).argmax(1).numpy() == theirs.predict(x.astype("float64"))).mean() > 0.99
    for name, other in (
        ("tree-apm", DecisionTreeClassifier(random_state=0)),
        ("knn-apm", KNeighborsClassifier()),
    ):
        assert torch.equal(told(name, leak), torch.as_tensor(other.fit(x[: leak.known], y).predict_proba(x)))


def test_wide_rows_are_asked_about_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    leak = small(2)
    before = {name: told(name, leak) for name in ("mlp-apm", "svc-apm", "knn-apm", "tree-apm")}
    monkeypatch.setattr(jobs, "BLOCK", 6 * 7)  # seven users at a time
    for name, scores in before.items():
        assert torch.allclose(told(name, leak), scores, atol=1e-6)


# Floors and values


def test_floors_know_the_labels_and_nothing_else() -> None:
    label = torch.cat([torch.zeros(60), torch.ones(30), torch.full((10,), 2)]).long()
    features = Keys.seed(0).normal(20000, 2)
    said = {n: fit_predict(n, features, [Job(torch.arange(100), label, 3, 1)])[0] for n in FLOORS}
    assert torch.allclose(said["majority"], torch.tensor([0.6, 0.3, 0.1]).double().expand(20000, 3))
    assert torch.allclose(said["random"].mean(0), torch.tensor([0.6, 0.3, 0.1]).double(), atol=0.02)
    assert torch.allclose(said["uniform"].mean(0), torch.full((3,), 1 / 3).double(), atol=0.02)
    assert not torch.equal(
        said["random"], fit_predict("random", features, [Job(torch.arange(100), label, 3, 2)])[0]
    )


@pytest.mark.parametrize("name", VALUED)
def test_a_value_comes_back_in_its_own_units(name: str) -> None:
    features = Keys.seed(0).normal(1200, 8)
    age = 35 + 10 * features[:, 2].double()
    said = fit_predict(name, features, [Job(torch.arange(400), age[:400], 0)])[0]
    assert said.shape == (1200, 1)
    error = float((said[400:, 0] - age[400:]).square().mean()) / float(age[400:].var())
    assert error < {"majority": 1.02, "knn": 0.7, "forest": 0.4, "svc": 0.3}.get(name, 0.2)
    same = fit_predict(name, features, [Job(torch.arange(9), torch.full((9,), 41.0), 0)])[0]
    assert torch.equal(same, torch.full((1200, 1), 41.0).double())


# Validity: nothing where there is nothing, all where all is there, and nothing from those attacked


def shuffled_auc(fit: Fit, name: str, leak: Leak, shuffles: int) -> float:
    worlds = [leak.shuffled(seed) for seed in range(shuffles)]
    found = fit(name, leak.features, [world.job(seed) for seed, world in enumerate(worlds)])
    return mean(world.auc(scores) for world, scores in zip(worlds, found, strict=True))


@EVERY_LEARNER
def test_shuffled_labels_give_nothing(name: str) -> None:
    assert abs(shuffled_auc(fit_predict, name, graded(2, 1000, 16), 3) - 0.5) < 0.06


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("classes", [2, 3])
def test_twenty_shuffles_of_four_thousand_users_give_nothing(name: str, classes: int) -> None:
    assert abs(shuffled_auc(fit_predict, name, planted(classes), 20) - 0.5) < 0.02


@EVERY_LEARNER
@pytest.mark.parametrize("classes", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_a_label_planted_in_one_of_64_columns_is_found(name: str, classes: int) -> None:
    leak = planted(classes)
    scores = told(name, leak)
    if name not in ("knn", "knn-apm"):  # to neighbours one column is as good as any other
        assert leak.auc(scores) >= 0.99
        assert leak.balanced(scores) >= (0.97 if name == "svc-apm" else 0.99)  # on columns as they are
    assert leak.auc(scores) > (0.6 if name == "knn-apm" else 0.75)  # five neighbours, and no scales


@EVERY_LEARNER
def test_a_relation_turned_round_is_found_as_well(name: str) -> None:
    """An attacker learns which way it goes: neither a sign nor a swap of the labels hides anything."""
    leak = graded(3, 800, 16)
    turned = leak._replace(features=-leak.features)
    swapped = leak._replace(label=1 - leak.label)
    plain = leak.auc(told(name, leak))
    assert plain > 0.75
    assert abs(turned.auc(told(name, turned)) - plain) < 0.08
    assert abs(swapped.auc(told(name, swapped)) - plain) < 0.08


def others_count(fit: Fit, name: str) -> bool:
    """Whether the score of one user depends on the features of a user whose label is not known."""
    leak = graded(1, 300, 8)
    changed = leak.features.clone()
    changed[200:] = 50 * changed[200:] + 3
    before, after = (fit(name, features, [leak.job()])[0][:200] for features in (leak.features, changed))
    return not torch.equal(before, after)


@EVERY_QUICK
def test_nothing_is_fitted_to_those_who_are_attacked(name: str) -> None:
    assert not others_count(fit_predict, name)


def scaled_by_all(name: str, features: Tensor, jobs: Sequence[Job]) -> list[Tensor]:
    """A planted bug: the scales are those of everybody."""
    return fit_predict(name, Scale(features)(features).float(), jobs)


@pytest.mark.parametrize("name", ["mlp-pard", "mlp-fedau2", "logistic", "knn"])
def test_a_scaler_fitted_to_targets_is_caught(name: str) -> None:
    assert others_count(scaled_by_all, name)


@pytest.mark.parametrize("name", ["knn", "tree", "xgboost", "mlp"])
def test_targets_in_training_are_caught(name: str) -> None:
    """A planted bug: everybody's label is learned from. Then even shuffled labels seem to leak."""
    leak = graded(2, 1000, 16)
    worlds = [leak.shuffled(seed) for seed in range(4)]

    def fit(name: str, features: Tensor, jobs: Sequence[Job]) -> list[Tensor]:
        everyone = [
            Job(torch.arange(1000), world.label, 2, job.seed) for world, job in zip(worlds, jobs, strict=True)
        ]
        return fit_predict(name, features, everyone)

    assert shuffled_auc(fit, name, leak, 4) > 0.56


@pytest.mark.parametrize(
    ("name", "shares"), [("mlp", (0.78, 0.92)), ("logistic", (0.80, 0.92)), ("lda", (0.83, 0.94))]
)
def test_the_attackers_for_few_users_find_most_of_it_alone(name: str, shares: tuple[float, float]) -> None:
    for separation, share in zip((1, 2), shares, strict=True):
        leaks = [graded(separation, seed=seed) for seed in range(3)]
        assert mean((leak.auc(told(name, leak)) - 0.5) / leak.ideal for leak in leaks) >= share


def test_a_new_attacker_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    from veilrec.attacks.common.estimators import Discriminant

    entry = classifiers.Classifier("linear", lambda shape: Discriminant(0.1))
    monkeypatch.setitem(CLASSIFIERS, "mine", entry)
    leak = planted(2)
    assert leak.auc(told("mine", leak)) > 0.99
