"""The transcript holds what the server saw, all of it that was chosen, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.forking import Showing
from tests.worlds import federation, phones, ragged, silos
from veilrec.base.params import Rows
from veilrec.defence import Defence
from veilrec.errors import BadInput, Corrupted
from veilrec.interactions import Interactions
from veilrec.models.fedmf import FedMF
from veilrec.models.fedncf import FedNCF
from veilrec.models.fedvae import FedVAE
from veilrec.protocols.fedavg import FedAvg
from veilrec.rounds import Federation
from veilrec.runs.recorder import Recorder
from veilrec.wire.transcript import Record, Transcript
from veilrec.wire.uploads import Exchange


def small(defence: Defence | None = None, **plan: Any) -> Federation:
    """Eight ragged clients with an exposed vector, an item table and a shared head, in chunks of three."""
    clients = phones(ragged((1, 2, 3, 5, 9, 17, 33, 70), 100), consent=0.5)
    model = FedNCF(100, 1, dim=4, head=(8,), user="exposed")
    return federation(
        clients, model, plan.pop("protocol", None), defence, **{"rounds": 4, "chunk": 3, **plan}
    )


def recorder(fed: Federation, folder: Path, record: Record) -> Recorder:
    return Recorder(folder / "spool", record, fed.protocol.schema(fed.model))


def listen(fed: Federation, folder: Path, record: Record) -> tuple[Transcript, list[Exchange]]:
    """A transcript of a run, and the exchanges themselves."""
    seen: list[Exchange] = []
    notes = recorder(fed, folder, record)
    for _ in fed.rounds(fed.start(), watch=[notes, seen.append]):
        notes.finish()
    notes.merge(folder / "transcript.safetensors", fed.plan.rounds)
    return Transcript.open(folder / "transcript.safetensors"), seen


def assert_equal(read: Exchange, lived: list[Exchange], names: set[str]) -> None:
    """A round that was read is the round that was lived, for the names that were chosen."""
    names = names | {"examples"} & lived[0].received.values.keys()  # how many there are is always kept
    assert read.received.values.keys() == names
    assert torch.equal(read.received.cohort, torch.cat([e.received.cohort for e in lived]))
    for name in names:
        value = read.received.values[name]
        if isinstance(value, Rows):
            assert triples(value) == [t for e in lived for t in triples(e.received.values[name])]
        else:
            whole = [e.received.values[name] for e in lived]
            assert torch.equal(value, torch.cat(whole))  # type: ignore[arg-type]


def triples(upload: Any) -> list[tuple[list[int], list[list[float]]]]:
    """For each client the rows it sent and their values, without padding."""
    return [(r[r >= 0].tolist(), v[r >= 0].tolist()) for r, v in zip(upload.row, upload.value, strict=True)]


@pytest.mark.parametrize("weigh", ["clients", "examples"])
def test_every_part_comes_back(tmp_path: Path, weigh: Any) -> None:
    fed = small(protocol=FedAvg(weigh=weigh))
    seen, lived = listen(fed, tmp_path, Record(tuple(fed.model.parts), 2))
    assert seen.rounds == [3, 4]
    for number in seen.rounds:
        chunks = [exchange for exchange in lived if exchange.round == number]
        names = set(chunks[0].received.values)
        assert_equal(seen.exchange(number), chunks, names)
        assert {"user", "item"} < names
        for name, value in chunks[0].sent.all.items():
            assert torch.equal(seen.exchange(number).sent.all[name], value)


def test_a_round_in_pieces(tmp_path: Path) -> None:
    seen, lived = listen(small(), tmp_path, Record(("item", "user"), 1))
    pieces = list(seen.chunks(4, 3))
    assert [len(piece.received.cohort) for piece in pieces] == [3, 3, 2]
    for piece, chunk in zip(pieces, lived[-3:], strict=True):
        assert_equal(piece, [chunk], {"item", "user"})
        assert piece.received.values["item"].row.shape == chunk.received.values["item"].row.shape  # type: ignore[union-attr]


def test_without_a_choice_item_tables_are_left_out(tmp_path: Path) -> None:
    fed = small()
    seen, lived = listen(fed, tmp_path, Record(last=1))
    names = set(fed.protocol.schema(fed.model)) - {"item"}
    assert "user" in names
    assert_equal(seen.exchange(4), lived[-3:], names)
    assert "item" not in seen.exchange(4).sent.all


def test_nothing_that_stays_on_devices_is_written(tmp_path: Path, checkerboard: Interactions) -> None:
    fed = federation(phones(checkerboard), FedMF(24, 1, dim=4), rounds=1, optimiser="adam")
    listen(fed, tmp_path, Record(("item",), 1))
    keys = set(load_file(tmp_path / "transcript.safetensors"))
    table = {f"item/{column}" for column in ("client", "row", "value")}
    assert keys == {f"r000001/{name}" for name in {"cohort", "sent/item", *table}}


def test_posts_are_seen(tmp_path: Path) -> None:
    seen, lived = listen(small(Showing()), tmp_path, Record(last=1))
    posts = seen.exchange(4).received.posts
    owners = torch.cat([e.received.posts.owner for e in lived[-3:]])
    assert 0 < len(owners) < 8
    assert torch.equal(posts.owner, owners)
    assert torch.equal(
        posts.values["vector"], torch.cat([e.received.posts.values["vector"] for e in lived[-3:]])
    )
    silent, _ = listen(small(Showing()), tmp_path, Record(("user",), 1))
    assert not silent.exchange(4).received.posts.values


def test_silos(tmp_path: Path, checkerboard: Interactions) -> None:
    fed = federation(silos(checkerboard, 5), FedMF(24, 5, dim=4, user="exposed"), rounds=2, chunk=2)
    seen, lived = listen(fed, tmp_path, Record(("user", "item"), 5))
    assert seen.rounds == [1, 2]
    assert_equal(seen.exchange(1), lived[:3], {"user", "item"})


def test_only_the_last_rounds_are_kept_on_the_way(tmp_path: Path) -> None:
    fed = small(rounds=5)
    notes = recorder(fed, tmp_path, Record(last=2))
    for state, _ in fed.rounds(fed.start(), watch=[notes]):
        notes.finish()
        kept = [folder.name for folder in notes.rounds()]
        assert kept == [f"r{k:06}" for k in range(max(1, state.round - 1), state.round + 1)]


def test_nothing_is_written_where_nothing_is_kept(tmp_path: Path) -> None:
    fed = small()
    notes = recorder(fed, tmp_path, Record(last=0))
    for _ in fed.rounds(fed.start(), watch=[notes]):
        notes.finish()
    assert notes.merge(tmp_path / "transcript.safetensors", fed.plan.rounds) is None
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BadInput, match=r"record\.last"):
        Transcript.open(tmp_path / "transcript.safetensors")


def test_chunks_change_no_byte(tmp_path: Path) -> None:
    for chunk in (2, 8):
        (tmp_path / str(chunk)).mkdir()
        listen(
            small(chunk=chunk, precision="float64", lr=0.0),
            tmp_path / str(chunk),
            Record(("item", "user"), 1),
        )
    files = [(tmp_path / str(chunk) / "transcript.safetensors").read_bytes() for chunk in (2, 8)]
    assert files[0] == files[1]


def test_rounds_after_a_checkpoint_are_forgotten(tmp_path: Path) -> None:
    fed = small()
    notes = recorder(fed, tmp_path, Record(last=4))
    for _ in fed.rounds(fed.start(), watch=[notes]):
        notes.finish()
    (notes.folder / "r000002" / "index.json").unlink()  # as if the process had died in that round
    notes.rewind(3)
    assert [folder.name for folder in notes.rounds()] == ["r000001", "r000003"]
    with pytest.raises(Corrupted, match="round 2"):
        notes.merge(tmp_path / "transcript.safetensors", 3)


@pytest.mark.parametrize("part", ["usr", "examples", "private"])
def test_unknown_parts_are_refused(tmp_path: Path, part: str) -> None:
    with pytest.raises(BadInput, match=r"record\.parts"):
        recorder(small(), tmp_path, Record((part,)))


def test_a_private_part_cannot_be_recorded(tmp_path: Path, checkerboard: Interactions) -> None:
    fed = federation(phones(checkerboard), FedMF(24, 1, dim=4))
    with pytest.raises(BadInput, match='"user" is uploaded'):
        recorder(fed, tmp_path, Record(("user",), 1))


def test_a_number_below_zero_is_refused() -> None:
    with pytest.raises(BadInput, match=r"record\.last"):
        Record(last=-1)


def test_a_damaged_file_is_noticed(tmp_path: Path) -> None:
    listen(small(), tmp_path, Record(last=1))
    path = tmp_path / "transcript.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(Corrupted):
        Transcript.open(path)
    shutil.copy(Path(__file__), path)
    with pytest.raises(Corrupted):
        Transcript.open(path)


def test_a_round_that_was_not_kept(tmp_path: Path) -> None:
    seen, _ = listen(small(), tmp_path, Record(last=1))
    with pytest.raises(BadInput, match="was not kept"):
        seen.exchange(1)


def test_large_weights_are_kept_only_by_name() -> None:
    fed = federation(phones(ragged((3, 4), 200)), FedNCF(200, 1, dim=256, head=(200,)))
    schema = fed.protocol.schema(fed.model)
    assert Record(last=1).chosen(schema) == {"mlp1.bias", "mlp2.weight", "mlp2.bias"}
    assert Record(("mlp1",), last=1).chosen(schema) == {"mlp1.weight", "mlp1.bias"}


def test_of_a_dense_model_it_holds_what_each_device_sent(tmp_path: Path) -> None:
    """The rest is summed over devices on the way, and nobody kept it anyway."""
    protocol = FedAvg(sends="gradients", server="adam", server_lr=0.01)
    clients, seen = phones(ragged((3, 4, 6, 9), 100)), list[Exchange]()
    fed = federation(clients, FedVAE(100, hidden=7, dim=2), protocol, rounds=2, batch=64, negatives=0)
    notes = recorder(fed, tmp_path, Record(("latent",), last=2))
    for _ in fed.rounds(fed.start(), watch=[notes]):
        notes.finish()
    notes.merge(tmp_path / "transcript.safetensors", 2)
    for _ in fed.rounds(fed.start(), watch=[seen.append]):
        pass
    names, kept = {"latent.weight", "latent.bias"}, Transcript.open(tmp_path / "transcript.safetensors")
    for read, lived in zip(map(kept.exchange, kept.rounds), seen, strict=True):
        assert read.received.values.keys() == names
        for name in names:
            one, other = read.received.values[name], lived.received.values[name]
            assert isinstance(one, torch.Tensor)
            assert isinstance(other, torch.Tensor)
            assert torch.allclose(one, other, atol=1e-6)
            assert float(other.abs().max()) > 1e-4
