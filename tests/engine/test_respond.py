"""Every body of `respond` answers as the reference does: with the same uploads, or with their fold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.worlds import SHORT, changed, federation, held, largest, phones, ragged, run, silos
from veilrec.base.params import Params, Rows
from veilrec.clients import Clients
from veilrec.engine.local import LocalTask
from veilrec.engine.respond import Answer, Chunk, Respond, respond
from veilrec.errors import ClientFailed
from veilrec.models.fedncf import FedNCF
from veilrec.privacy.ledger import Ledger
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.wire.codec import Schema
from veilrec.wire.traffic import Traffic


def alone(task: LocalTask, chunk: Chunk, schema: Schema, announced: Schema) -> Answer:
    """One device after the other, put together at the end: as slow as can be, with single uploads."""
    answers = [respond(task, one_of(chunk, k), schema, announced) for k in range(len(chunk.cohort))]
    uploads, kept = answers[0].uploads, stacked([answer.kept for answer in answers])
    values: dict[str, Any] = {}
    for name, value in uploads.values.items():
        each = [answer.uploads.values[name] for answer in answers]
        if isinstance(value, Rows):
            values[name] = Rows(padded([e.row[0] for e in each], -1), padded([e.value[0] for e in each], 0))  # type: ignore[union-attr]
        else:
            values[name] = torch.cat(each)  # type: ignore[arg-type]
    loss = torch.cat([answer.uploads.loss for answer in answers])  # type: ignore[misc]
    return Answer(replace(uploads, cohort=chunk.clients.number[chunk.cohort], values=values, loss=loss), kept)


def folding(task: LocalTask, chunk: Chunk, schema: Schema, announced: Schema) -> Answer:
    """What a compiled lane would give: the fold alone, and how many rows each device sent."""
    answer = respond(task, chunk, schema, announced)
    tables = [name for name, spec in schema.items() if spec.table is not None]
    rows = {name: answer.uploads.row_counts(name) for name in tables}
    folded = task.protocol.fold(task.model, chunk.letter, {}, answer.uploads)
    return replace(answer, uploads=replace(answer.uploads, values={}, sums={}, folded=folded, rows=rows))


def one_of(chunk: Chunk, k: int) -> Chunk:
    place = torch.tensor([k])
    kept = {name: value[place] for name, value in chunk.kept.items()}
    keys, first = chunk.keys.pick(place), chunk.first.pick(place)
    return Chunk(chunk.clients, chunk.cohort[place], chunk.letter.only(place), kept, keys, first)


def padded(values: list[torch.Tensor], blank: int) -> torch.Tensor:
    wide = values[0].new_full((len(values), max(map(len, values)), *values[0].shape[1:]), blank)
    for k, value in enumerate(values):
        wide[k, : len(value)] = value
    return wide


def stacked(held: list[Params]) -> Params:
    return {name: torch.cat([one[name] for one in held]) for name in held[0]}


BODIES: dict[str, Respond] = {"alone": alone, "folding": folding}
PROTOCOLS = [
    FedAvg(),
    FedAvg(weigh="touched"),
    FedAvg(weigh="examples"),
    FedAvg(sends="gradients", server="adam", server_lr=0.05),
]


def fed_of(protocol: FedAvg, clients: Clients | None = None) -> Federation:
    clients = clients or phones(ragged(SHORT, 120))
    model = FedNCF(120, clients.n_seats, dim=4, head=(6,), user="exposed")
    settings = {"lr": 0.5, "batch": 16, "chunk": 3, "precision": "float64", "cohort": 0.8}
    return federation(clients, model, protocol, optimiser="adam", **settings)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=["mean", "touched", "examples", "gradients"])
def test_every_body_ends_where_the_reference_does(body: str, protocol: FedAvg) -> None:
    fed = fed_of(protocol)
    other = changed(fed, body=BODIES[body])
    one, two = run(fed, 3), run(other, 3)
    assert all(largest(one.server[name], two.server[name]) < 1e-12 for name in one.server)
    ours, theirs = held(fed, one), held(other, two)
    assert all(largest(ours[name], theirs[name]) < 1e-12 for name in ours)


@pytest.mark.parametrize("body", BODIES)
def test_silos_too(body: str) -> None:
    fed = fed_of(PROTOCOLS[0], silos(ragged(SHORT, 120), 3))
    one, two = run(fed, 2), run(changed(fed, body=BODIES[body]), 2)
    assert all(largest(one.server[name], two.server[name]) < 1e-12 for name in one.server)


@pytest.mark.parametrize("body", BODIES)
def test_bytes_and_rows_are_counted_alike(body: str) -> None:
    """Also where only a fold comes back: who sent how many rows is known all the same."""
    fed = fed_of(PROTOCOLS[1])
    letter = fed.protocol.letter(fed.model, fed.plan.dtype)
    counted = []
    for federated in (fed, changed(fed, body=BODIES[body])):
        traffic, ledger = Traffic(letter, len(fed.clients)), Ledger.of(fed)
        run(federated, 2, watch=[traffic, ledger])
        counted.append((traffic.summary(), ledger.uploads.tolist()))
    assert counted[0] == counted[1]


def test_planted_a_body_that_forgets_a_device_is_found() -> None:
    def forgets(task: LocalTask, chunk: Chunk, schema: Schema, announced: Schema) -> Answer:
        answer = respond(task, chunk, schema, announced)
        return replace(answer, kept={name: value * 0 for name, value in answer.kept.items()})

    fed = fed_of(PROTOCOLS[0])
    one, two = run(fed, 3), run(changed(fed, body=forgets), 3)
    assert any(largest(one.server[name], two.server[name]) > 1e-6 for name in one.server)


def test_a_body_that_fails_is_traced_to_a_client() -> None:
    def fails(task: LocalTask, chunk: Chunk, schema: Schema, announced: Schema) -> Answer:
        poisoned = chunk.letter._replace(all={n: v * float("nan") for n, v in chunk.letter.all.items()})
        return respond(task, replace(chunk, letter=poisoned), schema, announced)

    with pytest.raises(ClientFailed, match="the training loss is not finite"):
        run(changed(fed_of(PROTOCOLS[0]), body=fails))
