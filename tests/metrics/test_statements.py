"""Claims that one leaks less than another are corrected for how many there are; verdicts are not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tests.results import attribute, audit, result, spread
from veilrec.metrics.comparison import compare
from veilrec.metrics.groups import grouped
from veilrec.metrics.leaks import NamedRun
from veilrec.metrics.measures import Measure, interval, surprise
from veilrec.metrics.statements import Statement, holm, resamples_for, statements_of
from veilrec.result import Result

LAPLACE = {"name": "laplace", "scale": 0.1}
SD = 0.02  # of the replicates of a difference


def pair(apart: dict[str, float], resamples: int = 500) -> list[Result]:
    """Two runs of one seed whose AUCs differ by so much, attribute by attribute."""
    luck = {name: spread(0.0, SD, resamples, seed=k) for k, name in enumerate(apart)}
    same = spread(0.0, 0.03, resamples, seed=99)
    plain = {name: attribute(0.7, [0.7 + s for s in same]) for name in apart}
    moved = {
        name: attribute(0.7 - less, [0.7 - less + s + one for s, one in zip(same, luck[name], strict=True)])
        for name, less in apart.items()
    }
    runs = [(None, plain), (LAPLACE, moved)]
    return [result(defence, privacy={"veilrec": audit(found)}) for defence, found in runs]


def stated(*results: Result) -> dict[str, Statement]:
    runs = [NamedRun(f"runs/{place}", one) for place, one in enumerate(results)]
    return {one.about: one for one in compare(runs).statements}


def test_the_p_value_is_that_of_an_interval_which_just_leaves_out_zero() -> None:
    again = np.array(spread(0.0, SD, 2000))
    apart = {0: Measure(0.05, replicates=0.05 + again - again.mean())}
    p = surprise(apart, {0: Measure(0.0, replicates=np.zeros(2000))})
    assert p == pytest.approx(2 * stats.norm.sf(0.05 / SD), rel=0.3)
    low = interval([0.05], [apart[0].replicates], p).low
    assert low == pytest.approx(0, abs=1e-4)
    assert surprise(apart, {1: apart[0]}) == 1


def test_beyond_what_resamples_show_the_law_is_taken_to_be_normal() -> None:
    again = stats.norm.ppf((np.arange(200) + 0.5) / 200)
    found = interval([0.0], [again], 0.0005)
    assert found.high == pytest.approx(stats.norm.ppf(1 - 0.00025), rel=0.05)
    assert interval([0.0], [again]).high == pytest.approx(np.percentile(again, 97.5))
    apart = {0: Measure(1.0, replicates=np.full(200, 1.0))}
    assert surprise(apart, {0: Measure(0.0, replicates=np.zeros(200))}) == 1e-6


def test_one_of_ten_claims_must_be_surer_than_one_alone() -> None:
    weak = 2.4 * SD  # 1.6 % alone
    others = {f"noise {k}": 0.0 for k in range(9)}
    alone, among = (
        stated(*pair({"gender": weak}))["gender"],
        stated(*pair({"gender": weak, **others}))["gender"],
    )
    assert alone.shown
    assert alone.sentence.startswith("laplace leaks less gender than no defence")
    assert not among.shown
    assert "which is not sure enough among 10 claims (Holm)" in among.sentence
    assert among.p == alone.p
    assert stated(*pair({"gender": 5 * SD, **others}))["gender"].shown


def test_holm_lets_the_next_pass_once_the_surest_has() -> None:
    assert holm([0.02, 0.01]) == 0.02
    assert holm([0.04, 0.02]) == 0.04  # the surest of two must be below 2.5 %, the next below 5 %
    assert holm([0.02, 0.06]) == 0.02
    assert holm([0.03, 0.04]) == 0
    assert holm([]) == 0


def test_of_many_tables_of_claims_about_nothing_few_hold_one() -> None:
    random = np.random.default_rng(3)
    false = sum(holm(random.uniform(size=12).tolist()) > 0 for _ in range(2000))
    assert false < 2000 * (0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000))


def test_too_few_resamples_for_so_many_claims_are_named() -> None:
    assert resamples_for(12) == 240
    others = {f"noise {k}": 0.0 for k in range(11)}
    found = stated(*pair({"gender": 6 * SD, **others}, resamples=200))["gender"]
    assert not found.shown
    assert "12 claims ask for 240 resamples (threat.resamples), and there are 200" in found.sentence
    assert stated(*pair({"gender": 6 * SD, **others}, resamples=240))["gender"].shown
    assert stated(*pair({"gender": 6 * SD}, resamples=15))["gender"].shown, (
        "one claim is corrected for nothing"
    )


def test_usefulness_and_verdicts_are_not_corrected() -> None:
    weak, others = 2.4 * SD, {f"noise {k}": 0.0 for k in range(9)}
    one, other = pair({"gender": weak, **others})
    useful = stated(one, result(LAPLACE, ndcg=0.29, privacy=other.privacy))["ndcg@10"]
    assert useful.shown
    groups = grouped([NamedRun("a", one), NamedRun("b", other)])
    assert all(found.measure.leaning(0.5) == "above" for found in groups[0].leaks("veilrec").values())


def test_claims_of_all_audits_are_counted_together() -> None:
    one, other = pair({"gender": 2 * SD})  # about 4 % alone
    runs = [
        result(run.settings["defence"][0], privacy={"a": run.privacy["veilrec"], "b": run.privacy["veilrec"]})
        for run in (one, other)
    ]
    groups = grouped([NamedRun(str(k), run) for k, run in enumerate(runs)])
    assert statements_of(groups, "ndcg@10", ["a"])["a"][0].shown
    assert not statements_of(groups, "ndcg@10", ["a", "b"])["a"][0].shown
