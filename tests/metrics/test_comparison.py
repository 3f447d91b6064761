"""Runs side by side: groups, intervals by hand, claims only where pairs bear them out, refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.results import attribute, audit, ends, result, spread
from veilrec.errors import BadInput, Corrupted
from veilrec.metrics.comparison import compare
from veilrec.metrics.groups import grouped
from veilrec.metrics.leaks import NamedRun
from veilrec.metrics.measures import _student, interval
from veilrec.result import Result

LAPLACE = {"name": "laplace", "scale": 0.1}


def named(*results: Result) -> list[NamedRun]:
    return [NamedRun(f"runs/{place}", one) for place, one in enumerate(results)]


def said(*results: Result, **options: Any) -> list[str]:
    return [statement.sentence for statement in compare(named(*results), **options).statements]


# ---- intervals


def test_one_seed_has_the_interval_of_its_users() -> None:
    replicates = np.linspace(0, 1, 1001).tolist()
    assert ends(interval([0.4], [replicates])) == pytest.approx((0.4, 0.025, 0.975))


def test_several_seeds_by_hand() -> None:
    """Users: ±0.1 around each; seeds: 0.2, 0.3, 0.4, so sd 0.1, and t(2) = 4.303."""
    values, replicates = (
        [0.2, 0.3, 0.4],
        [np.linspace(v - 0.1, v + 0.1, 1001).tolist() for v in (0.2, 0.3, 0.4)],
    )
    found = ends(interval(values, replicates))
    half = math.hypot(0.095, 4.303 * 0.1 / math.sqrt(3))
    assert found == pytest.approx((0.3, 0.3 - half, 0.3 + half))


def test_nothing_resampled_is_no_interval() -> None:
    found = interval([0.2, 0.4], [[], []])
    assert not found.sure
    assert found.plain() == {"value": pytest.approx(0.3), "low": None, "high": None}


@pytest.mark.parametrize("freedom", [*range(1, 40), 200])
def test_student_is_students(freedom: int) -> None:
    assert _student(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), abs=0.0005001)


# ---- groups


def test_runs_that_differ_by_seed_are_one_group() -> None:
    groups = grouped(named(*(result(defence, seed) for defence in (None, LAPLACE) for seed in (0, 1, 2))))
    assert [group.label for group in groups] == ["no defence", "laplace"]
    assert [list(group.runs) for group in groups] == [[0, 1, 2]] * 2


def test_a_label_names_what_differs_and_nothing_else() -> None:
    small, large = (
        replace(result(), settings={**result().settings, "model": {"name": "FedMF", "dim": dim}})
        for dim in (8, 16)
    )
    assert [group.label for group in grouped(named(small, large))] == [
        "no defence (dim 8)",
        "no defence (dim 16)",
    ]
    chained = replace(result(), settings={**result().settings, "defence": [{"name": "early_stop"}, LAPLACE]})
    assert grouped(named(chained))[0].label == "early stop + laplace"


def test_attacks_and_workers_do_not_split_a_group() -> None:
    other = result(seed=1)
    other = replace(other, settings={**other.settings, "threat": {"known": 0.5}, "record": {"last": 3}})
    assert len(grouped(named(result(), other))) == 1


# ---- statements


def test_a_difference_is_claimed_with_its_numbers_and_from_the_better_side() -> None:
    low = [result(LAPLACE, seed, ndcg=0.25, auc=0.61) for seed in (0, 1, 2)]
    high = [result(None, seed, ndcg=0.3, auc=0.78) for seed in (0, 1, 2)]
    leak, useful = said(*high, *low)
    assert leak.startswith(
        "laplace leaks less gender than no defence: AUC 0.610 against 0.780, difference −0.170 [−0.170,"
    )
    assert useful.startswith("no defence recommends better than laplace: ndcg@10 0.300 against 0.250")
    assert "one seed" not in leak


def test_pairs_cancel_the_luck_of_the_users() -> None:
    """Each interval alone is ten times as wide as the difference."""
    one = [result(None, seed, auc=0.70, replicates=((), spread(0.70, 0.05, seed=9))) for seed in (0, 1, 2)]
    other = [
        result(LAPLACE, seed, auc=0.68, replicates=((), spread(0.68, 0.05, seed=9))) for seed in (0, 1, 2)
    ]
    assert "leaks less gender" in said(*one, *other)[0]
    apart = [result(LAPLACE, s, auc=0.68, replicates=((), spread(0.68, 0.05, seed=8))) for s in (0, 1, 2)]
    assert "no difference shown" in said(*one, *apart)[0]


def test_seeds_that_disagree_show_nothing() -> None:
    one = [result(None, seed, auc=value) for seed, value in enumerate((0.70, 0.78, 0.74))]
    other = [result(LAPLACE, seed, auc=value) for seed, value in enumerate((0.69, 0.70, 0.735))]
    assert said(*one, *other)[0].startswith("gender: no difference shown between no defence and laplace")


def test_one_seed_claims_only_about_two_runs() -> None:
    found = said(result(auc=0.8), result(LAPLACE, auc=0.6))
    assert "one seed: true of these two runs, another training may differ" in found[0]


def test_only_equal_seeds_are_paired() -> None:
    one, other = [result(None, s, auc=0.8) for s in (0, 1)], [result(LAPLACE, s, auc=0.6) for s in (1, 2)]
    found = compare(named(*one, *other))
    assert found.statements[0].seeds == 1
    assert "cannot be paired" in said(result(None, 0), result(LAPLACE, 1))[0]


def test_below_chance_is_leakage_too() -> None:
    """AUC 0.2 is as bad as 0.8, and worse than 0.6."""
    turned = [result(LAPLACE, seed, auc=0.2) for seed in (0, 1, 2)]
    found = compare(named(*(result(None, seed, auc=0.6) for seed in (0, 1, 2)), *turned))
    assert found.groups[1].leaks(found.audit)["gender"].turned
    assert found.groups[1].leaks(found.audit)["gender"].measure.value == pytest.approx(0.8)
    assert found.statements[0].sentence.startswith("no defence leaks less gender than laplace")
    assert any("turned round" in note for note in found.notes)


def test_what_is_below_chance_by_luck_is_as_far_from_it_as_what_is_above() -> None:
    """AUC 0.44 leaks no less than 0.56, whether it is surely below chance or not."""
    wide = [spread(0.44, 0.04, seed=1), spread(0.56, 0.04, seed=1)]
    sides = [
        [result(one, k, auc=auc, replicates=(spread(0.3), again)) for k in range(3)]
        for one, auc, again in ((None, 0.44, wide[0]), (LAPLACE, 0.56, wide[1]))
    ]
    found = compare(named(*sides[0], *sides[1]))
    assert [group.leaks(found.audit)["gender"].turned for group in found.groups] == [False, False]
    gender = found.statements[0]
    assert not gender.shown
    assert gender.difference is not None
    assert gender.difference.value == pytest.approx(0)
    assert "below chance turned round" in gender.sentence


def test_a_seed_that_is_surely_below_chance_and_one_that_is_not_do_not_cancel_out() -> None:
    luck = (spread(0.3), spread(0.46, 0.05, seed=1))
    group = compare(named(result(auc=0.3), result(seed=1, auc=0.46, replicates=luck))).groups[0]
    leak = group.leaks("veilrec")["gender"]
    assert leak.measure.value == pytest.approx((0.7 + 0.54) / 2)
    assert leak.turned


def test_a_collapsed_run_is_not_ranked() -> None:
    broken = [result(LAPLACE, seed, ndcg=0.05, auc=0.5) for seed in (0, 1, 2)]
    broken = [replace(one, utility=replace(one.utility, collapsed=True)) for one in broken]
    found = compare(named(*(result(None, seed) for seed in (0, 1, 2)), *broken))
    assert found.statements[0].sentence.startswith(
        "gender: not ranked: below the popularity floor, so not learned: laplace (3 of 3"
    )
    assert not found.statements[0].shown
    assert found.statements[1].shown, "that it is less useful may be said"
    assert any("low leakage is not ranked" in note for note in found.notes)


def test_many_groups_are_held_against_the_undefended_one() -> None:
    runs = [
        result({"name": "laplace", "scale": scale}, seed) for scale in (0.1, 0.2, 0.3) for seed in (0, 1, 2)
    ]
    found = compare(named(*runs, *(result(None, seed) for seed in (0, 1, 2))))
    assert {frozenset((s.first, s.second)) for s in found.statements} == {
        frozenset(("no defence", f"laplace (scale {scale})")) for scale in (0.1, 0.2, 0.3)
    }


def test_a_run_with_an_eraser_is_not_the_undefended_one() -> None:
    eraser = [{"name": "GaussianPosthoc", "parts": {"user": 1.0}}]
    runs = [result(None, seed) for seed in (0, 1)]
    erased = [replace(one, settings={**one.settings, "eraser": eraser}) for one in runs]
    both = [replace(result(LAPLACE), settings={**result(LAPLACE).settings, "eraser": eraser})]
    groups = compare(named(*runs, *erased, *both)).groups
    told = {group.label: group.defended for group in groups}
    assert told == {"no defence": False, "GaussianPosthoc": True, "laplace + GaussianPosthoc": True}


def test_epsilon_is_the_largest_that_is_guaranteed() -> None:
    ledger = {"guarantee": True, "composed": {"epsilon": {"max": 12.5, "mean": 3.0}}}
    runs = [replace(result(LAPLACE, seed), ledger=ledger) for seed in (0, 1)]
    assert compare(named(*runs)).groups[0].epsilon.spent == 12.5
    mixed = compare(named(runs[0], result(LAPLACE, 1))).groups[0]
    assert mixed.epsilon.spent is None, "one run guarantees nothing"


def test_an_audit_that_a_run_lacks_is_said() -> None:
    found = compare(named(result(), replace(result(LAPLACE), privacy={})))
    assert found.groups[1].leaks(found.audit) == {}
    assert "Without audit veilrec: runs/1." in found.notes
    assert [statement.about for statement in found.statements] == ["ndcg@10"]
    bare = compare(named(replace(result(), privacy={})))
    assert bare.audit == ""
    assert any("veilrec attack RUN" in note for note in bare.notes)


def test_grants_and_oracles_are_said() -> None:
    privacy = {
        "pard": audit(
            {"gender": attribute(0.8, spread(0.8))}, grants=["which items each user touched"], oracle=True
        )
    }
    notes = compare(named(replace(result(), privacy=privacy))).notes
    assert any(
        "grants the attacker which items each user touched" in note and "oracle" in note for note in notes
    )


def test_other_metrics_have_no_interval_and_no_claim() -> None:
    found = compare(named(result(), result(LAPLACE)), metric="hr@10")
    useful = found.groups[0].mean(found.metric)
    assert useful is not None
    assert useful.plain() == {"value": 0.5, "low": None, "high": None}
    assert found.statements[-1].difference is None
    assert any("No resamples of hr@10" in note for note in found.notes)


# ---- the null twin


def twin(random: np.random.Generator, seed: int, doubt: float, label: str) -> Result:
    """One training of one defence: the luck of the users is shared, that of the training is its own."""
    users = np.random.default_rng(7).poisson(1.0, (200, 150))  # the same resamples of users in every run
    common = np.random.default_rng(seed + 1000).normal(0.3, 0.3, 150)
    score = common + random.normal(0, 0.2, 150) + random.normal(0, doubt)
    replicates = (users @ score / users.sum(1)).tolist()
    value = float(score.mean())
    leak = [0.4 + one for one in replicates]
    return result(
        {"name": label},
        seed,
        value,
        0.4 + value,
        replicates=(replicates, leak),
        privacy={"veilrec": audit({"gender": attribute(0.4 + value, leak, "above")})},
    )


def resampled(one: list[Result], other: list[Result], random: np.random.Generator) -> bool:
    """The planted bug: seeds drawn again with replacement, and nothing else done about how few they are."""
    table = np.array(
        [
            np.subtract(a.utility_replicates["ndcg@10"], b.utility_replicates["ndcg@10"])
            for a, b in zip(one, other, strict=True)
        ]
    )
    drawn = random.integers(len(table), size=(table.shape[1], len(table)))
    low, high = np.percentile(table[drawn, np.arange(table.shape[1])[:, None]].mean(1), [2.5, 97.5])
    return bool(low > 0 or high < 0)


@pytest.mark.parametrize("doubt", [pytest.param(0.0, marks=pytest.mark.slow), 0.05])
def test_the_same_defence_twice_is_hardly_ever_a_finding(doubt: float) -> None:
    random = np.random.default_rng(11)
    claims, naive = np.zeros(2), 0
    for _ in range(100):
        one, other = ([twin(random, seed, doubt, label) for seed in (0, 1, 2)] for label in "ab")
        claims += [statement.shown for statement in compare(named(*one, *other)).statements]
        naive += resampled(one, other, random)
    assert (claims <= 8).all(), f"{claims} claims about nothing in 100 trials"
    if doubt:
        assert naive > 12, "the planted bug must be caught"


def test_a_real_difference_is_found_in_spite_of_it() -> None:
    random = np.random.default_rng(12)
    found = 0
    for _ in range(20):
        one = [twin(random, seed, 0.01, "a") for seed in (0, 1, 2)]
        other = [twin(random, seed, 0.01, "b") for seed in (0, 1, 2)]
        worse = [
            replace(
                r,
                utility=replace(r.utility, test={"ndcg@10": r.utility.test["ndcg@10"] - 0.2}),
                utility_replicates={"ndcg@10": [v - 0.2 for v in r.utility_replicates["ndcg@10"]]},
            )
            for r in other
        ]
        found += compare(named(*one, *worse)).statements[1].shown
    assert found == 20


# ---- refusals


def test_what_was_measured_differently_is_not_merged() -> None:
    base = result()
    sampled = replace(base.utility, protocol="candidates: 99 untouched items drawn once")
    cases = {
        r"runs/1: another data than runs/0: both are ml-100k": replace(base, data_fingerprint="e"),
        r"runs/1: another data than runs/0: ml-1m, not ml-100k": replace(
            base, data_fingerprint="e", data={"name": "ml-1m"}
        ),
        r"another utility protocol than runs/0: candidates: 99": replace(base, utility=sampled),
        r"another data split \(data.split_seed\) than runs/0: 1; not 0": replace(
            base, settings={**base.settings, "data": {"split_seed": 1}}
        ),
        r"another set of tested users than runs/0: 12; not 943": replace(
            base, utility=replace(base.utility, users=12)
        ),
        r"audit veilrec was not made as in runs/0: another known: 0.5; not 0.2": replace(
            result(LAPLACE), privacy={"veilrec": {**base.privacy["veilrec"], "threat": {"known": 0.5}}}
        ),
        r"runs/1: audit veilrec was not made as in runs/0: another grants: everything; not nothing": replace(
            result(LAPLACE), privacy={"veilrec": {**base.privacy["veilrec"], "grants": ["everything"]}}
        ),
        r"another classes of gender: f, m; not female, male": replace(
            result(LAPLACE), privacy={"veilrec": audit({"gender": attribute(0.8, [], classes=["f", "m"])})}
        ),
        r"the same settings and seed as runs/0; name each run once": base,
    }
    for expected, other in cases.items():
        with pytest.raises(BadInput, match=expected):
            compare(named(base, other))


def reattacked(**changes: Any) -> Result:
    """A defended run whose audit has the usual name and was made in another way."""
    made = result(LAPLACE, auc=0.6)
    return replace(made, privacy={"veilrec": {**made.privacy["veilrec"], **changes}})


def attacked_by(**changes: Any) -> dict[str, Any]:
    entry = attribute(0.6, spread(0.6, seed=1))
    entry["attackers"] = [{**entry["attackers"][0], **changes}]
    return {"attributes": {"gender": entry}}


UNLIKE = {
    "another known: 0.05; not 0.2": {"threat": {"known": 0.05, "repeats": 1, "selection": "last"}},
    "another selection: oracle; not last": {"threat": {"known": 0.2, "repeats": 1, "selection": "oracle"}},
    "another seed of the audit: 7; not 0": {"seed": 7},
    r"other attackers on gender: with parameters/logistic \(linear\), without updates/logistic \(linear\)": (
        attacked_by(reads="parameters")
    ),
    r"with updates\[item\]/logistic \(linear\), without": attacked_by(parts=["item"]),
    r"with updates/knn \(linear\)": attacked_by(classifier="knn"),
    r"with updates/logistic \(neural\)": attacked_by(family="neural"),
    "another number of attacked users of gender: 12; not 754": {
        "attributes": {"gender": attribute(0.6, spread(0.6, seed=1), targets=12)}
    },
}


@pytest.mark.parametrize("expected", UNLIKE)
def test_audits_of_one_name_that_were_not_made_alike_are_no_claim(expected: str) -> None:
    assert "leaks less" in said(result(), reattacked())[0], "made alike, they are one"
    with pytest.raises(BadInput, match=f"runs/1: audit veilrec was not made as in runs/0: .*{expected}"):
        compare(named(result(), reattacked(**UNLIKE[expected])))


def test_what_changes_no_score_may_differ() -> None:
    threat = {"known": 0.2, "repeats": 1, "selection": "last", "resamples": 900, "also": ["pard"]}
    assert "leaks less" in said(result(), reattacked(threat=threat))[0]


def test_seeds_of_audits_are_held_against_each_other_in_pairs() -> None:
    """The audit of seed 1 has seed 1 in one group and 0 in the other: other known users."""
    one = [result(None, seed) for seed in (0, 1)]
    other = [reattacked(seed=0), replace(result(LAPLACE, 1), privacy=reattacked(seed=0).privacy)]
    with pytest.raises(BadInput, match=r"runs/3: .* as in runs/1: another seed of the audit: 0; not 1"):
        compare(named(*one, *other))
    own = replace(result(LAPLACE, 1), privacy=reattacked(seed=1).privacy)
    assert compare(named(*one, other[0], own)).statements[0].seeds == 2


def test_one_run_with_several_audits_is_a_table() -> None:
    one = audit({"gender": attribute(0.8, spread(0.8))})
    found = compare(named(replace(result(), privacy={"apm": one, "pard": one})))
    assert found.audit == "apm"
    assert "Also audited by pard: see them with --audit NAME." in found.notes
    assert compare(named(replace(result(), privacy={"pard": one, "veilrec": one}))).audit == "veilrec"


def test_a_label_is_short() -> None:
    """Of two defences nothing but their names; of namesakes what differs, three settings at most."""
    options = [{"name": "laplace", "scale": k, "clip": k, "rows": k, "parts": k} for k in (1, 2)]
    groups = grouped(named(result(), *map(result, options)))
    assert [group.label for group in groups] == [
        "no defence",
        "laplace (scale 1, clip 1, rows 1, and 1 more)",
        "laplace (scale 2, clip 2, rows 2, and 1 more)",
    ]


def test_what_only_a_defence_uploads_can_be_read_there_alone() -> None:
    def read_off(defence: Any, *classifiers: str) -> Result:
        entry = attribute(0.6, spread(0.6, seed=1))
        more = [{**entry["attackers"][0], "reads": "recovered", "classifier": name} for name in classifiers]
        entry["attackers"] = [*entry["attackers"], *more]
        return replace(result(defence), privacy={"veilrec": audit({"gender": entry})})

    assert said(result(), read_off(LAPLACE, "knn"))  # the undefended run has nothing of that kind
    with pytest.raises(BadInput, match=r"without recovered/svc"):
        compare(named(read_off(LAPLACE, "knn", "svc"), read_off(LAPLACE, "knn")))


def test_fewer_attackers_do_not_make_a_safer_defence() -> None:
    alone = attribute(0.6, spread(0.6))
    alone["verdict"] = {**alone["verdict"], "families": ["neural"]}
    with pytest.raises(
        BadInput,
        match=r"other attackers on gender: without family boosting, family linear, family neighbours",
    ):
        compare(named(result(), replace(result(LAPLACE), privacy={"veilrec": audit({"gender": alone})})))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"metric": "ndgc@10"}, r'--metric: runs/0 has no "ndgc@10"; did you mean "ndcg@10"'),
        ({"audit": "veil"}, r'--audit: no run has an audit "veil"; did you mean "veilrec"'),
    ],
)
def test_unknown_names(options: dict[str, str], expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        compare(named(result()), **options)


def test_several_audits_must_be_chosen_from() -> None:
    one = audit({"gender": attribute(0.8, spread(0.8))})
    runs = named(*(replace(result(seed=seed), privacy={"apm": one, "pard": one}) for seed in (0, 1)))
    with pytest.raises(BadInput, match=r"--audit: several audits: apm, pard"):
        compare(runs)
    assert compare(runs, audit="apm").audit == "apm"
    with pytest.raises(BadInput, match="veilrec attack RUN"):
        compare(named(replace(result(), privacy={})), audit="apm")


def test_no_runs() -> None:
    with pytest.raises(BadInput, match="no runs"):
        compare([])


def test_a_torn_verdict_is_corruption() -> None:
    torn = attribute(0.8, spread(0.8))
    torn["verdict"] = {"score": "auc"}
    with pytest.raises(Corrupted, match=r"runs/0: the verdict on gender cannot be read"):
        compare(named(replace(result(), privacy={"veilrec": audit({"gender": torn})})))
