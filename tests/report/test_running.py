"""Learning curves: the metric that selects, the loss, and attacks that were run along."""

from __future__ import annotations

from dataclasses import replace

from tests.report.results import results
from veilrec.metrics.arms import families
from veilrec.report.running import learning


def test_an_attack_along_is_a_curve_beside_the_others() -> None:
    plain = learning(families(results(("none",)))[0][0])
    assert [one.name for one in plain.variants] == ["ndcg@10 on validation items", "training loss"]
    attacked = [
        (name, replace(run, curves={**run.curves, "bacc@gender": run.curves["ndcg@10"]}))
        for name, run in results(("none",))
    ]
    chart = learning(families(attacked)[0][0])
    assert [one.name for one in chart.variants][2:] == ["balanced accuracy of the attack on gender"]
    last = chart.variants[2].figure["data"][0]
    assert last["x"] == [r for r in attacked[0][1].curves["round"] if r % 5 == 0]
    assert len(chart.tables) == 3
