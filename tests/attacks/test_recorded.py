"""DLG and iDLG on the uploads of training that were kept: the newest one, and the votes of all, by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from tests.attacks.heads import share_right, task_of, world
from tests.worlds import federation, phones
from veilrec.attack import Seen
from veilrec.attacks.dlg import DLG
from veilrec.attacks.idlg import iDLG
from veilrec.base.plan import Plan
from veilrec.cli import app
from veilrec.defences.fedau2 import FedAU2
from veilrec.engine.probe import see
from veilrec.errors import BadInput
from veilrec.experiment import Experiment
from veilrec.lab.threat import Threat
from veilrec.models.fedmf import FedMF
from veilrec.protocols.fedavg import FedAvg
from veilrec.runs.integrity.changes import change
from veilrec.runs.recorder import Recorder
from veilrec.wire.transcript import Record, Transcript
from veilrec.wire.uploads import Exchange

USERS = 60
LAST = "adversary_gender.last.weight"


def seen_of(
    folder: Path, record: Record, protocol: FedAvg | None = None, head: Any = "dsvae", **plan: Any
) -> tuple[Seen, list[Exchange]]:
    """What a server has that kept some rounds, and those rounds themselves."""
    data, lived = world(USERS), list[Exchange]()
    protocol = protocol or FedAvg(sends="gradients", server="sgd", server_lr=0.1)
    defence = FedAU2(hidden=16, attributes=("gender",), head=head)
    fed = federation(phones(data), FedMF(data.n_items, 1, dim=8), protocol, defence, chunk=25, **plan)
    notes = Recorder(folder / "spool", record, fed.protocol.schema(fed.model))
    states = []
    for state, _ in fed.rounds(fed.start(), watch=[notes, lived.append]):
        notes.finish()
        states.append(state)
    notes.merge(folder / "transcript.safetensors", fed.plan.rounds)
    return see(fed, states[-1], (), Transcript.open(folder / "transcript.safetensors")), lived


def votes_of(lived: list[Exchange], name: str = LAST) -> torch.Tensor:
    """``[users, classes]`` for the class whose row or bias has the least sum, and against the other."""
    votes = torch.zeros(USERS, 2, dtype=torch.float64)
    for exchange in lived:
        value = exchange.received.values[name]
        assert isinstance(value, torch.Tensor)  # [n, 16, 4]: of the four columns two are means, two spreads
        sums = value.sum(1) if value.dim() == 3 else value
        for client, one in zip(exchange.received.cohort.tolist(), sums, strict=True):
            votes[client, int(one[1] < one[0])] += 1
            votes[client, int(one[1] >= one[0])] -= 1
    return votes


def test_a_plain_head_votes_by_its_bias(tmp_path: Path) -> None:
    bias = "adversary_gender.last.bias"
    seen, lived = seen_of(tmp_path, Record((bias,), 4), head="plain", rounds=4, cohort=0.5)
    assert iDLG(kept=True).keeps(seen, task_of(USERS)) == [bias]
    assert torch.allclose(iDLG(kept=True).infer(seen, task_of(USERS)), votes_of(lived, bias), atol=1e-6)


def test_the_votes_by_hand(tmp_path: Path) -> None:
    seen, lived = seen_of(tmp_path, Record((LAST,), 6), rounds=6, cohort=0.5)
    told = iDLG(kept=True).infer(seen, task_of(USERS))
    assert torch.allclose(told, votes_of(lived), atol=1e-6)
    never = set(range(USERS)) - {k for e in lived for k in e.received.cohort.tolist()}
    assert all(told[user].tolist() == [0, 0] for user in never)
    told_beside = {"gradient": "as uploaded", "rounds": 6, **({"unseen": len(never)} if never else {})}
    assert iDLG(kept=True).notes(seen) == told_beside


@pytest.mark.parametrize("sends", ["gradients", pytest.param("weights", marks=pytest.mark.slow)])
def test_training_tells_what_one_upload_hides(tmp_path: Path, sends: Any) -> None:
    protocol = FedAvg("gradients", server="sgd", server_lr=0.1) if sends == "gradients" else FedAvg()
    seen, _ = seen_of(tmp_path, Record((LAST,), 30), protocol, rounds=30, batch=4096, lr=0.1)
    truth = world(USERS).attributes["gender"]
    right = [share_right(one.infer(seen, task_of(USERS)), truth) for one in (iDLG(), iDLG(kept=True))]
    assert right[0] < 0.95 < 0.98 < right[1]


def test_only_the_rounds_that_were_kept_are_read(tmp_path: Path) -> None:
    seen, lived = seen_of(tmp_path, Record((LAST,), 3), rounds=8)
    told = iDLG(kept=True).infer(seen, task_of(USERS))
    assert torch.allclose(told, votes_of([e for e in lived if e.round > 5]), atol=1e-6)
    assert not torch.allclose(told, votes_of(lived), atol=0.5)


def test_dlg_matches_the_last_upload_that_was_kept(tmp_path: Path) -> None:
    """Each user's newest one, against the weights of its round: as a probe of that round is matched."""
    attack = DLG(starts=(0.3,), steps=20, kept=True)
    seen, lived = seen_of(tmp_path, Record(("adversary_gender",), 5), rounds=5, cohort=0.5)
    found = attack.reconstruct(seen, task_of(USERS))
    newest = {k: e for e in lived for k in e.received.cohort.tolist()}
    assert 0 < len(newest) <= USERS
    for client in (next(iter(newest)), next(reversed(newest))):
        one = newest[client]
        alone = Seen(seen.public, lambda *_, one=one: iter([one]))
        again = replace(attack, kept=False).reconstruct(alone, task_of(USERS))
        assert torch.allclose(found.label[client], again.label[client], atol=1e-5)
        assert torch.allclose(found.mismatch[client], again.mismatch[client], rtol=1e-4)
    never = [user for user in range(USERS) if user not in newest]
    assert all(found.mismatch[user] == torch.inf for user in never)
    assert len({e.round for e in newest.values()}) > 1


def test_dlg_asks_for_the_whole_head(tmp_path: Path) -> None:
    seen, _ = seen_of(tmp_path, Record((LAST,), 2), rounds=2)
    wanted = DLG(kept=True).keeps(seen, task_of(USERS))
    assert LAST in wanted
    assert len(wanted) > 1
    with pytest.raises(BadInput, match="no round of training was kept"):
        DLG(kept=True).infer(seen, task_of(USERS))


def test_users_who_are_in_no_round_are_counted(tmp_path: Path) -> None:
    seen, lived = seen_of(tmp_path, Record((LAST,), 1), rounds=1, cohort=0.25)
    unseen = USERS - sum(len(exchange.received.cohort) for exchange in lived)
    assert iDLG(kept=True).notes(seen)["unseen"] == unseen == 45


def test_nothing_is_said_where_the_head_was_not_kept(tmp_path: Path) -> None:
    seen, _ = seen_of(tmp_path, Record(("item",), 2), rounds=2)
    assert iDLG(kept=True).keeps(seen, task_of(USERS)) == [LAST]
    assert iDLG().keeps(seen, task_of(USERS)) == []
    for one in (seen, Seen(seen.public, lambda *_: iter(()))):
        with pytest.raises(BadInput, match="no round of training was kept"):
            iDLG(kept=True).infer(one, task_of(USERS))


@pytest.mark.parametrize("record", [Record(("item",), 3), Record((LAST,), 0), Record()])
def test_a_run_that_will_not_keep_the_head_is_refused_before_training(tmp_path: Path, record: Record) -> None:
    """Nor is one that keeps no rounds: the last one, which is always there, shows few of the users."""
    with pytest.raises(
        BadInput, match=f'record: no round is kept with "{LAST}", which attack iDLG-kept reads'
    ):
        experiment(record).run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_rounds_that_are_kept_are_not_there_while_it_trains(tmp_path: Path) -> None:
    made = experiment(Record((LAST,), 12))
    made = replace(made, threat=Threat(("gender",), own=False, also=("fedau2",), along="fedau2-recorded"))
    with pytest.raises(BadInput, match=r"threat\.along: .fedau2-recorded. reads rounds that were kept"):
        made.run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_finished_run_without_its_transcript_is_not_attacked(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    experiment(Record((LAST,), 3)).run(folder)
    again = ["attack", str(folder), "--preset", "fedau2-recorded", "--no-save"]
    assert CliRunner().invoke(app, again).exit_code == 0
    with change(folder) as new:
        new.drop("transcript.safetensors")
    with pytest.raises(BadInput, match="no round of training was kept"):
        CliRunner().invoke(app, again, catch_exceptions=False)


def test_kept_uploads_cannot_be_numbered() -> None:
    with pytest.raises(BadInput, match=r"attack\.uploads"):
        iDLG(kept=True, uploads=5)


def experiment(record: Record) -> Experiment:
    return Experiment(
        world(USERS),
        partial(FedMF, dim=8),
        FedAvg(sends="gradients", server="sgd", server_lr=0.1),
        FedAU2(hidden=16, attributes=("gender",)),
        plan=Plan(rounds=12, workers=1, batch=4096),
        record=record,
        threat=Threat(("gender",), own=False, also=("fedau2-recorded",)),
    )


def test_a_run_that_keeps_its_rounds_is_read(tmp_path: Path) -> None:
    found = experiment(Record((LAST,), 12)).run(tmp_path / "run").privacy["fedau2-recorded"]
    kept = "the uploads of 12 rounds of training, in which 60 of 60 users took part"
    assert found["sees"].endswith(f"after every defence; and {kept}")
    attackers = found["attributes"]["gender"]["attackers"]
    scores = {one["name"]: one["scores"]["micro_f1"]["value"] for one in attackers}
    assert scores["iDLG-kept"] > 0.95 > scores["iDLG"]
