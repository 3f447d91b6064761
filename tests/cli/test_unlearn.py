"""``veilrec unlearn`` on bare vectors: who asks is moved, all else stays to the byte, and in its form."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pyarrow import parquet

from tests.cli.commands import Answer, call, tree
from veilrec.base import tensors
from veilrec.lab.forgetting import receipt
from veilrec.lab.forgetting.case import Effort

USERS, WIDTH, SOME = 120, 4, 40
RANDOM = np.random.default_rng(7)
IDS = [f"user-{k:03}" for k in RANDOM.permutation(USERS)]
SEX = np.arange(USERS) % 2
VECTORS = RANDOM.normal(size=(USERS, WIDTH)).astype(np.float32)
VECTORS[:, 1] += 4.0 * SEX
ASKS = np.arange(USERS) < SOME
PEOPLE = pd.DataFrame({"user_id": IDS, "sex": np.where(SEX, "male", "female"), "one": "same"})
LIST = "one column of lists"


def slow(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    PEOPLE.sort_values("user_id").to_csv("users.csv", index=False)
    PEOPLE.to_csv("in_order.csv", index=False)
    Path("asks.txt").write_text("\n".join(IDS[:SOME]))
    Path("ids.txt").write_text("\n".join(IDS))
    return tmp_path


def frame() -> pd.DataFrame:
    found = pd.DataFrame(VECTORS, columns=[f"e{k}" for k in range(WIDTH)])
    found.insert(2, "user_id", IDS)  # not the first column
    return found


def unlearn(capsys: pytest.CaptureFixture[str], *arguments: str) -> Answer:
    known = () if "--attributes" in arguments else ("--attributes", "users.csv")
    named = () if "--attribute" in arguments else ("--attribute", "sex")
    return call(capsys, "unlearn", *arguments, *known, *named, "--quiet")


def apart(vectors: np.ndarray, who: np.ndarray) -> float:
    """How far apart the two classes of some users are."""
    some = np.asarray(vectors, dtype=np.float64)
    return float(np.abs(some[who & (SEX == 1)].mean(0) - some[who & (SEX == 0)].mean(0)).max())


def check(before: np.ndarray, after: np.ndarray) -> None:
    """Who asks is moved to where chance would be; nobody else moves by a bit."""
    assert after.dtype == before.dtype
    assert after[~ASKS].tobytes() == before[~ASKS].tobytes()
    assert (after[ASKS] != before[ASKS]).any(1).all()
    assert apart(before, ASKS) > 3 > 1.5 > apart(after, ASKS)


@pytest.mark.parametrize("kind", ["float32", *(slow(kind) for kind in (">f8", "float16", "by column"))])
def test_an_array_keeps_its_type_and_order(
    place: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    before = np.asfortranarray(VECTORS) if kind == "by column" else VECTORS.astype(kind)
    np.save("v.npy", before)
    ids = ("--by-position", "--attributes", "in_order.csv") if kind == "float32" else ("--ids", "ids.txt")
    answer = unlearn(capsys, "v.npy", "-o", "new.npy", "--users", "asks.txt", *ids)
    assert answer.code == 0, answer.err
    assert "40 vectors were changed to forget sex, 80 are as they were" in answer.out
    after = np.load("new.npy")
    check(before, after)
    assert after.flags.f_contiguous == before.flags.f_contiguous


@pytest.mark.parametrize("suffix", ["csv", slow("tsv"), slow("quoted.csv")])
def test_lines_of_others_stay_to_the_byte(
    place: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    path, end = Path(f"v.{suffix}"), "\r\n" if suffix == "csv" else "\n"
    separator = "\t" if suffix == "tsv" else ","
    table = frame() if suffix != "quoted.csv" else frame().assign(user_id=[f'"{name}"' for name in IDS])
    if suffix == "quoted.csv":
        PEOPLE.assign(user_id=[f'"{name}"' for name in IDS]).to_csv("users.csv", index=False)
        Path("asks.txt").write_text("\n".join(f'"{name}"' for name in IDS[:SOME]))
    table.to_csv(path, index=False, sep=separator, float_format="%.5f", lineterminator=end)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    answer = unlearn(capsys, str(path), "-o", f"new.{suffix}", "--users", "asks.txt")
    assert answer.code == 0, answer.err
    before, after = (
        path.read_bytes().split(end.encode()),
        Path(f"new.{suffix}").read_bytes().split(end.encode()),
    )
    assert len(after) == len(before)
    assert [a == b for a, b in zip(after, before, strict=True)] == [True, *~ASKS, True]
    found = pd.read_csv(f"new.{suffix}", sep=separator, encoding="utf-8-sig")
    assert list(found.columns) == list(table.columns)
    assert list(found.user_id) == list(table.user_id)
    assert apart(found.drop(columns="user_id").to_numpy(), ASKS) < 1.5
    words = [word for word in after[1].decode().split(separator) if "user" not in word]
    assert max(len(word.lstrip("-0.").replace(".", "")) for word in words) <= 6  # as many digits as others


@pytest.mark.parametrize("kind", [slow("columns"), LIST])
def test_a_parquet_file_keeps_its_schema(place: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    table = frame() if kind != LIST else pd.DataFrame({"user_id": IDS, "vector": list(VECTORS)})
    table.to_parquet("v.parquet")
    answer = unlearn(capsys, "v.parquet", "-o", "new.parquet", "--users", "asks.txt")
    assert answer.code == 0, answer.err
    before, after = parquet.read_table("v.parquet"), parquet.read_table("new.parquet")
    assert after.schema.equals(before.schema, check_metadata=True)
    assert after.column("user_id").equals(before.column("user_id"))
    found = after.to_pandas().drop(columns="user_id")
    check(VECTORS, np.stack(found["vector"].to_list()) if kind == LIST else found.to_numpy())


@pytest.mark.parametrize("dtype", [slow(torch.float64), torch.bfloat16])
def test_a_tensor_of_several_is_changed_alone(
    place: Path, capsys: pytest.CaptureFixture[str], dtype: torch.dtype
) -> None:
    held = {"item": torch.ones(3, WIDTH), "user": torch.from_numpy(VECTORS).to(dtype), "n": torch.arange(3)}
    tensors.write(Path("v.safetensors"), held)
    options = ("--tensor", "user", "--ids", "ids.txt", "--users", "asks.txt", "-o", "new.safetensors")
    answer = unlearn(capsys, "v.safetensors", *options)
    assert answer.code == 0, answer.err
    after = tensors.read(Path("new.safetensors"))
    assert list(after) == list(held)
    assert all(torch.equal(after[name], held[name]) for name in ("item", "n"))
    mark = torch.from_numpy(ASKS)
    assert after["user"].dtype == dtype
    assert torch.equal(after["user"][~mark], held["user"][~mark])
    assert bool((after["user"][mark] != held["user"][mark]).any(1).all())


def test_everybody_asks_and_nobody_is_drawn_sorted_or_left_out(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    people = PEOPLE.iloc[: USERS - 10].copy()  # ten without a row, and a class of three
    people.loc[people.index[:3], "sex"] = "other"
    people.to_csv("users.csv", index=False)
    frame().to_csv("v.csv", index=False)
    answer = unlearn(capsys, "v.csv", "-o", "new.csv", "--json")
    assert answer.code == 0, answer.err
    told = json.loads(answer.out)
    assert (told["done"]["changed"], told["done"]["unchanged"]) == (USERS - 10, 10)
    assert told["done"]["eraser"]["name"] == "Lethe"
    assert any("of 10 who ask no sex is known" in note for note in told["notes"])
    assert not list(place.glob("*.lots"))  # what was drawn is gone


def test_one_request_is_served_by_what_others_lend_and_asks_for_no_label(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same map whatever the class of the one who asks, and nobody else moves."""
    np.save("v.npy", VECTORS)
    answer = unlearn(capsys, "v.npy", "--ids", "ids.txt", "-o", "new.npy", "--user", IDS[0], "--json")
    assert answer.code == 0, answer.err
    told = json.loads(answer.out)
    assert told["done"]["eraser"]["name"] == "LeaceNull"
    assert "too few, or too much alike, for lethe" in told["done"]["why"]
    assert (told["asked"]["users"], told["done"]["changed"]) == (1, 1)
    assert not told["done"]["difference_tells"]
    PEOPLE.iloc[1:].to_csv("users.csv", index=False)  # nothing is known of who asks
    assert unlearn(capsys, "v.npy", "--ids", "ids.txt", "-o", "too.npy", "--user", IDS[0]).code == 0
    after = [np.load("new.npy"), np.load("too.npy")]
    assert all((np.flatnonzero((one != VECTORS).any(1)) == [0]).all() for one in after)


@pytest.mark.slow
def test_the_receipt_has_what_attackers_find_on_both_sides(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    effort = Effort(("logistic",), ("logistic",), permutations=99)
    monkeypatch.setattr(receipt, "usual", lambda users: effort)
    frame().to_csv("v.csv", index=False)
    answer = unlearn(capsys, "v.csv", "-o", "new.csv", "--receipt", "r.json")
    assert answer.code == 0, answer.err
    told = json.loads(Path("r.json").read_text(encoding="utf-8"))
    first = told["attributes"]["sex"]["vectors"][0]
    assert first["before"]["auc"]["value"] > 0.9 > first["after"]["auc"]["value"]
    assert told["attributes"]["sex"]["difference"]["both"]["auc"]["value"] > 0.9
    assert told["files"]["before"]["file"] == "v.csv"
    assert told["done"]["eraser"]["name"] == "Lethe"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--user", "nobody"), '--user: nobody is called "nobody"'),
        slow(("--attribute", "gender"), "gender"),
        (("--attribute", "one"), "2 to 50 classes are needed"),
        (("--user", IDS[0], "--method", "lethe"), "take --method leace_null"),
        slow(("--method", "lethee"), 'did you mean "Lethe"'),
        slow(("--method", "GaussianPosthoc"), "forgets no attribute"),
        (("-o", "v.npy"), "v.npy: is there already"),
        slow(("-o", "new.csv"), 'give it a name that ends in ".npy"'),
        slow(("-o", "none/new.npy"), "no such folder"),
        slow(("--receipt", "ids.txt"), "ids.txt: is there already"),
    ],
)
def test_what_cannot_be_is_told_in_a_line_and_nothing_is_written(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    np.save("v.npy", VECTORS)
    before = tree(place)
    given = (*arguments, *(() if "-o" in arguments else ("-o", "new.npy")))
    answer = unlearn(capsys, "v.npy", "--ids", "ids.txt", *given)
    assert answer.code == 2
    assert answer.err.startswith("veilrec: error: ")
    assert answer.err.count("\n") == 1
    assert said in answer.err
    assert tree(place) == before


@pytest.mark.slow
def test_whole_numbers_are_not_rounded(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("v.npy", VECTORS.astype(np.int64))
    answer = unlearn(capsys, "v.npy", "--ids", "ids.txt", "-o", "new.npy")
    assert (answer.code, "save it as float32" in answer.err) == (2, True)


def test_where_copies_are_out_auto_takes_what_needs_no_label(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("v.npy", VECTORS)
    answer = unlearn(capsys, "v.npy", "--ids", "ids.txt", "-o", "new.npy", "--copies-out")
    assert (answer.code, "Method: LeaceNull" in answer.out) == (0, True)
    assert apart(np.load("new.npy"), np.ones(USERS, dtype=bool)) < 1.5
