"""``veilrec report`` writes whole pages, in the place of files alone, and who writes last has read last."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import call
from tests.devices import device
from tests.results import result
from tests.together import together
from veilrec import report
from veilrec.cli.report import write_report


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    result().save(tmp_path / "run")
    return tmp_path / "run"


def test_a_report_that_began_before_another_does_not_overwrite_it_with_what_was(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, begun, told = tmp_path / "page.html", threading.Event(), threading.Event()

    def render(results: Any, *, title: str, receipts: Any) -> str:
        if title == "slow":
            begun.set()
            told.wait(0.3)  # the other one is through by then, if nothing keeps it
        return f"{title}: {results[0][1].rounds} rounds"

    def later() -> None:
        begun.wait(30)
        replace(result(), rounds=6).save(run)
        write_report([run], out, title="quick")
        told.set()

    monkeypatch.setattr(report, "render", render)
    together(partial(write_report, [run], out, title="slow"), later)
    assert out.read_text(encoding="utf-8") == "quick: 6 rounds"
    assert {path.name for path in tmp_path.iterdir()} == {"run", "page.html"}


@pytest.mark.skipif(os.name != "posix", reason="needs links and pipes")
@pytest.mark.parametrize(
    ("trap", "says"),
    [
        (lambda path: path.symlink_to("precious"), "is a link"),
        (os.mkfifo, "is a pipe"),
        (Path.mkdir, "is a folder"),
        (lambda path: os.link(path.with_name("precious"), path), ""),
    ],
    ids=["link", "pipe", "folder", "hard link"],
)
def test_a_page_takes_the_place_of_a_file_alone(
    run: Path,
    tmp_path: Path,
    trap: Callable[[Path], None],
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, precious = tmp_path / "out", tmp_path / "precious"
    precious.write_text("years of work", encoding="utf-8")
    trap(out)
    kind = os.lstat(out).st_mode
    for option in ("-o", "--csv") if says else ("-o",):
        answer = call(capsys, "report", run, "-o", tmp_path / "page", option, out)
        assert answer.code == (2 if says else 0)
        assert says in answer.err
        assert not (tmp_path / "page").exists() or not says
    assert os.lstat(out).st_mode == kind
    assert precious.read_text(encoding="utf-8") == "years of work"


def test_one_file_cannot_be_page_and_numbers(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = call(capsys, "report", run, "-o", tmp_path / "x", "--csv", tmp_path / "x")
    assert (answer.code, (tmp_path / "x").exists()) == (2, False)
    assert "--csv: names the page itself" in answer.err


@pytest.mark.skipif(os.name != "posix", reason="needs devices")
def test_a_device_is_no_place_for_a_page(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = call(capsys, "report", run, "-o", device(tmp_path / "null"))
    assert answer.code == 2
    assert "is a device, no plain file; remove it, or name another place" in answer.err
