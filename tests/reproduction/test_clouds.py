"""Clouds: every user a dot, of its class's colour, and nothing of a run that holds no vectors."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.cli.commands import call
from tests.reproduction.test_trained import ERASED
from tests.reproduction.tiny import PAPER, write
from veilrec.reproduction.cells import FinishedRuns
from veilrec.reproduction.drawn.clouds import Panel, draw_clouds, drawing_of
from veilrec.reproduction.paper import Paper
from veilrec.reproduction.tables import page_of


def test_every_user_of_a_class_is_a_dot_of_its_colour() -> None:
    place = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    svg = draw_clouds("A < B", [Panel("before", place, np.array([0, 1, 1, -1]))])
    root = ElementTree.fromstring(svg)
    paths = [one for one in root.iter() if one.tag.endswith("path")]
    assert [one.attrib["d"].count("M") for one in paths] == [1, 2]  # the one without a class is not drawn
    assert paths[0].attrib["stroke"] != paths[1].attrib["stroke"]
    assert re.match(r"M28 376h0$", paths[0].attrib["d"])  # the lowest, at the lower left


def test_vectors_of_finished_runs_are_drawn_beside_the_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = ERASED + 'drawn = { synthetic = "gender" }\n'
    write(tmp_path / "tiny", PAPER + drawn)
    asked = ["table3", "--seeds", "1", "--out", tmp_path / "out", "-q"]
    answer = call(capsys, "reproduce", tmp_path / "tiny", *asked, "--results", tmp_path / "RESULTS.md")
    assert answer.code == 0, answer.err
    assert (
        "![table3 on Synthetic: After training](table3-synthetic.svg)"
        in (tmp_path / "RESULTS.md").read_text()
    )
    root = ElementTree.fromstring((tmp_path / "table3-synthetic.svg").read_text())
    dots = [one.attrib["d"].count("M") for one in root.iter() if one.tag.endswith("path")]
    assert len(dots) == 4  # two runs of two classes
    assert dots[0] + dots[1] == dots[2] + dots[3] > 40  # whoever took part, in both
    (tmp_path / "out" / "synthetic" / "erased" / "seed=0" / "users.safetensors").unlink()
    (tmp_path / "out" / "synthetic" / "plain" / "seed=0" / "users.safetensors").unlink()
    paper = Paper.load(str(tmp_path / "tiny"))
    page = page_of(paper, "table3", "synthetic", FinishedRuns(tmp_path / "out", 1))
    assert drawing_of(paper, page, tmp_path / "out") == ""
