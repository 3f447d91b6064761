"""The benchmark of the attackers runs from end to end."""

from __future__ import annotations

import json

import pytest

from benchmarks.attackers import folded, main, work


def test_a_quick_run_prints_both_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--json", "--only", "lda", "majority"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"speed", "strength"}
    assert found["speed"]["lda"]["seconds"] > 0
    assert found["strength"]["lda"]["share 2"] > 0.4
    assert found["strength"]["majority"]["share 2"] == 0


def test_a_row_for_every_attacker_and_their_sum(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "--part", "speed", "--only", "lda", "majority"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["lda", "majority", "all"]


def test_folds_leave_every_row_out_once() -> None:
    _, jobs = work(300, 2)
    assert len(jobs) == 6
    assert len(folded(jobs)) == 24
    left = [set(jobs[0].rows.tolist()) - set(fold.rows.tolist()) for fold in folded(jobs)[6:9]]
    assert sorted(row for part in left for row in part) == sorted(jobs[0].rows.tolist())
