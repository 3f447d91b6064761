"""FedNews: one Laplace noise on whole tables, with the settings of APM's comparison."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.worlds import checkerboard, digest, federation, phones, run
from veilrec.defence import secretly
from veilrec.defences.fednews import FedNews
from veilrec.defences.laplace import Laplace
from veilrec.errors import BadInput
from veilrec.models.fedncf import FedNCF
from veilrec.protocols.fedavg import FedAvg


def test_it_is_laplace_with_the_settings_of_the_comparison() -> None:
    ours, theirs = (
        run(federation(phones(checkerboard()), FedNCF(24, dim=4, head=(6,)), None, defence), 2)
        for defence in (FedNews(), Laplace(clip=0.5, scale=0.025, rows="all"))
    )
    assert digest(ours) == digest(theirs)


def test_all_parts_cost_the_same() -> None:
    declared = FedNews().declares(FedNCF(24, dim=4, head=(6,)), FedAvg())
    assert {m.defence for m in declared} == {"fednews"}
    assert {m.ratio for m in declared} == {Fraction(40)}
    assert {m.rows for m in declared} == {"all"}
    assert FedNews(scale=0.0).declares(FedNCF(24, dim=4), FedAvg()) == ()


def test_what_means_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^defence\.scale"):
        FedNews(scale=-1.0)
    with pytest.raises(BadInput, match=r"^defence\.clip"):
        FedNews(clip=0.0)


def test_on_a_device_it_is_the_same_but_for_the_source() -> None:
    real = secretly(FedNews(rows="touched"))
    assert real == FedNews(rows="touched")
    assert isinstance(real, FedNews)
    assert real.secret
    assert not FedNews().secret
    assert not replace(real).secret
