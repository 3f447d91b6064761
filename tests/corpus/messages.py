"""Messages that are bad: letters to a device, posts in them, uploads to a server, questions out of turn."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from tests.corpus import NODE, Case, Command
from tests.corpus.stock import Stock
from veilrec import node
from veilrec.wire import codec
from veilrec.wire.codec import Schema, Spec

__all__ = ["CASES", "LETTERS", "POSTS", "UPLOADS", "UPLOAD_SCHEMA"]

Make = Callable[[Stock], bytes]
Table = Mapping[str, tuple[Make, str]]  # what is bad → the bytes, and what the refusal says
ITEMS, DIM, PEOPLE = 40, 4, 60  # of the stock
NOTES = "__metadata__"
NOTHING = b'{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'


def head_of(data: bytes) -> dict[str, Any]:
    """The header of a message."""
    length = int.from_bytes(data[:8], "little")
    found: dict[str, Any] = json.loads(data[8 : 8 + length])
    return found


def raw(head: Any, body: bytes = b"", length: int | None = None) -> bytes:
    """A message put together by hand; the header may be any JSON, or bytes that are none."""
    text = head if isinstance(head, bytes) else json.dumps(head, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def body_of(data: bytes) -> bytes:
    return data[8 + int.from_bytes(data[:8], "little") :]


def with_head(change: Callable[[dict[str, Any]], Any]) -> Make:
    """A letter whose header was changed in place, and whose values were not."""

    def make(stock: Stock) -> bytes:
        data = stock.letter()
        head = head_of(data)
        return raw(change(head) or head, body_of(data))

    return make


def with_tensors(make: Callable[[Stock], bytes], **tensors: Tensor | None) -> Make:
    """A letter with other tensors, with more, or without some; ``__`` stands for the slash of a name."""

    def changed(stock: Stock) -> bytes:
        found = load(make(stock)) | {name.replace("__", "/"): value for name, value in tensors.items()}
        return bytes(save({name: value for name, value in found.items() if value is not None}))

    return changed


def letter(**tensors: Tensor | None) -> Make:
    return with_tensors(Stock.letter, **tensors)


def noted(**notes: str) -> Make:
    """A letter with notes that no server of ours writes."""
    return lambda stock: bytes(save(load(stock.letter()), notes))


def twice(stock: Stock) -> bytes:
    data = stock.letter()
    head = data[8 : 8 + int.from_bytes(data[:8], "little")].strip()
    entry = json.dumps(head_of(data)["item"], separators=(",", ":"))
    return raw(head[:-1] + b',"item":' + entry.encode() + b"}", body_of(data))


def utf_16(stock: Stock) -> bytes:
    data = stock.letter()
    return raw(json.dumps(head_of(data)).encode("utf-16"), body_of(data))


def parts(n: int) -> bytes:
    """A message of many empty parts."""
    return raw(b"{%b}" % b",".join(b'"part %d":%b' % (k, NOTHING) for k in range(n)))


def entry(**told: Any) -> Make:
    """A letter that says something else of its item table."""
    return with_head(lambda head: head["item"].update(told))


def renamed(name: str) -> Make:
    return with_head(lambda head: {name: head.pop("item"), **head})


def table(value: float, row: int = 3) -> Tensor:
    """An item table with one odd value."""
    found = torch.zeros(ITEMS, DIM)
    found[row, 1] = value
    return found


def opposed() -> Tensor:
    found = table(float("inf"))
    found[0, 0] = -float("inf")
    return found


def number(value: int, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.tensor(value, dtype=dtype)


NO_MESSAGE = "not a message"
LETTERS: Table = {
    "empty": (lambda stock: b"", NO_MESSAGE),
    "seven bytes": (lambda stock: bytes(7), NO_MESSAGE),
    "eight zeros": (lambda stock: bytes(8), NO_MESSAGE),
    "plain text": (lambda stock: b"hello, device, what do you like to read?", NO_MESSAGE),
    "a zip": (lambda stock: b"PK\x03\x04" + bytes(100), NO_MESSAGE),
    "a pickle": (lambda stock: b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94\x8c", NO_MESSAGE),
    "cut in the header": (lambda stock: stock.letter()[:60], NO_MESSAGE),
    "cut in the middle": (lambda stock: stock.letter()[: len(stock.letter()) // 2], NO_MESSAGE),
    "cut by a byte": (lambda stock: stock.letter()[:-1], NO_MESSAGE),
    "a byte behind": (lambda stock: stock.letter() + b"x", NO_MESSAGE),
    "20 MB": (lambda stock: bytes(20 << 20), "bytes"),
    "a header longer than all numbers": (lambda stock: raw({}, length=2**63 - 1), NO_MESSAGE),
    "a header longer than the message": (lambda stock: raw({}, length=1 << 16), NO_MESSAGE),
    "a header that is a list": (lambda stock: raw([]), NO_MESSAGE),
    "a header that is a number": (lambda stock: raw(7), NO_MESSAGE),
    "a header that is no JSON": (lambda stock: raw(b"{{{{"), NO_MESSAGE),
    "a header that is no UTF-8": (lambda stock: raw(b'{"\xff\xfe": 1}'), NO_MESSAGE),
    "a header in UTF-16": (utf_16, NO_MESSAGE),
    "a header 2,000 lists deep": (lambda stock: raw(b"[" * 2000), NO_MESSAGE),
    "a header 500,000 lists deep": (lambda stock: raw(b"[" * 500_000), "bytes"),
    "a number of 5,000 digits": (lambda stock: raw(b'{"item":' + b"9" * 5000 + b"}"), NO_MESSAGE),
    "a name twice": (twice, "a name twice"),
    "100,000 parts": (lambda stock: parts(100_000), "bytes"),
    "200 parts": (lambda stock: parts(200), "undeclared|bytes"),
    "5 MB of notes": (noted(run="x" * (5 << 20)), "bytes"),
    "notes that are a list": (with_head(lambda head: {NOTES: [], **head}), "notes"),
    "a note that is a number": (with_head(lambda head: {NOTES: {"run": 1}, **head}), "notes"),
    "a note that nobody knows": (noted(colour="red"), "note 'colour'"),
    "a run of 5,000 letters": (noted(run="x" * 5000), "note 'run'"),
    "a run of half a letter": (with_head(lambda head: {NOTES: {"run": "\ud800"}, **head}), "note 'run'"),
    "a recipe that is no hash": (noted(recipe="my recipe"), "note 'recipe'"),
    "another recipe": (noted(recipe="0" * 64), "another recipe"),
    "attempt 0": (noted(attempt="0"), "note 'attempt'"),
    "attempt -1": (noted(attempt="-1"), "note 'attempt'"),
    "an attempt of 30 digits": (noted(attempt="9" * 30), "note 'attempt'"),
    "answers missed in words": (noted(missed="all of them"), "note 'missed'"),
    "answers missed that are still to come": (noted(missed="1"), "not before it"),
    "a round below zero": (letter(round=number(-1)), "less than nothing"),
    "the last round there can be": (letter(round=number(2**31 - 1)), "of round 2147483648"),
    "a round that the recipe has not": (letter(round=number(3)), "of round 4, and there are 3"),
    "a round in 64 bits": (letter(round=number(0, torch.int64)), "'round' is torch.int64"),
    "a list of rounds": (letter(round=torch.zeros(3, dtype=torch.int32)), "'round' has shape"),
    "no round": (letter(round=None), "lacks 'round'"),
    "a weight that is no number": (letter(item=table(float("nan"))), "not finite"),
    "a weight that is infinite": (letter(item=table(float("inf"))), "not finite"),
    "two infinite weights": (letter(item=opposed()), "not finite"),
    "weights in double": (letter(item=table(1.0).double()), "is torch.float64"),
    "weights in half": (letter(item=table(1.0).half()), "is torch.float16"),
    "weights that are whole numbers": (letter(item=table(1.0).int()), "is torch.int32"),
    "weights that are true or false": (letter(item=table(1.0).bool()), "is torch.bool"),
    "an item too few": (letter(item=table(1.0)[1:]), "has shape"),
    "an item too many": (letter(item=torch.zeros(ITEMS + 1, DIM)), "has shape|bytes"),
    "weights the other way round": (letter(item=table(1.0).T.contiguous()), "has shape"),
    "weights in one row": (letter(item=table(1.0).flatten()), "has shape"),
    "no weights": (letter(item=None), "lacks 'item'"),
    "a part that nobody declared": (letter(attribute=torch.zeros(1)), "undeclared|bytes"),
    "a part for one device, undeclared": (letter(each__items=torch.zeros(1)), "undeclared|bytes"),
    "a post where nobody posts": (letter(post__v=torch.zeros(1)), "undeclared|bytes"),
    "a name of escape sequences": (renamed("\x1b]0;title\x07\x1b[31m"), r"undeclared '\\x1b\]0;title\\x07"),
    "a name that turns the line": (renamed("\u202eitem"), r"undeclared '\\u202eitem'"),
    "a name of 100,000 letters": (renamed("x" * 100_000), "bytes"),
    "a type that is not known": (entry(dtype="OBJ"), "type that is not known"),
    "a type of eight bits": (entry(dtype="F8_E5M2"), "type that is not known"),
    "a type that is a list": (entry(dtype=["F32"]), "type that is not known"),
    "a shape below zero": (entry(shape=[-ITEMS, -DIM]), "no lengths"),
    "a shape beyond all numbers": (entry(shape=[2**40, 2**40]), "not as long"),
    "a shape that is true": (entry(shape=[True, ITEMS * DIM]), "no lengths"),
    "a shape of fractions": (entry(shape=[float(ITEMS), float(DIM)]), "no lengths"),
    "a shape that is text": (entry(shape="40x4"), "no lengths"),
    "a shape of 100 axes": (entry(shape=[1] * 98 + [ITEMS, DIM]), "no lengths"),
    "a place below zero": (entry(data_offsets=[-4, ITEMS * DIM * 4 - 4]), "no lengths"),
    "a place in fractions": (entry(data_offsets=[0.0, ITEMS * DIM * 4.0]), "no lengths"),
    "a place with a third number": (entry(data_offsets=[0, 1, 2]), "no lengths"),
    "bytes of two tensors": (with_head(lambda head: head["item"].update(data_offsets=[4, 644])), NO_MESSAGE),
    "bytes of none": (with_head(lambda head: head["item"].update(data_offsets=[8, 648])), NO_MESSAGE),
    "a place beyond the end": (entry(data_offsets=[2**40, 2**40 + ITEMS * DIM * 4]), NO_MESSAGE),
    "an entry with more to it": (entry(compressed=True), "not described"),
    "an entry that is null": (with_head(lambda head: {**head, "item": None}), "not described"),
}


def posted(n: int = 3, **changed: Tensor | None) -> Make:
    """A letter with so many posts, some of them odd: by the end of the name."""

    def make(stock: Stock) -> bytes:
        data = stock.letter_to_poster()
        posts: dict[str, Tensor | None] = {
            f"post/{name}": torch.zeros(n, *spec.shape, dtype=spec.dtype)
            for name, spec in stock.posts.items()
        }
        for end, value in changed.items():
            (name,) = (one for one in posts if one.endswith(f".{end}"))
            posts[name] = value
        found = {**load(data), **posts}
        return bytes(save({name: value for name, value in found.items() if value is not None}))

    return make


POSTS: Table = {
    "a vector that is no number": (posted(user=torch.full((3, DIM), float("nan"))), "not finite"),
    "a vector that is infinite": (posted(user_re=torch.full((3, DIM), float("inf"))), "not finite"),
    "vectors too wide": (posted(user=torch.zeros(3, DIM + 1)), "has shape"),
    "vectors in double": (posted(user=torch.zeros(3, DIM, dtype=torch.float64)), "is torch.float64"),
    "a post more than labels": (posted(gender=torch.zeros(2, dtype=torch.int64)), "has shape"),
    "no labels": (posted(gender=None), "lacks"),
    "labels in 32 bits": (posted(gender=torch.zeros(3, dtype=torch.int32)), "is torch.int32"),
    "labels as fractions": (posted(gender=torch.zeros(3)), "is torch.float32"),
    "a class that is not there": (posted(gender=torch.tensor([0, 1, 7])), "a number beyond"),
    "a class below zero": (posted(gender=torch.tensor([0, 1, -5])), "a number beyond"),
    "more posts than people": (posted(PEOPLE + 1), "posts of 60 users|bytes"),
    "posts of nobody": (posted(0), "0 posts"),
    "10,000 posts": (posted(10_000), "bytes"),
}

UPLOAD_SCHEMA: Schema = {
    "examples": Spec((), torch.int32, kind="count"),
    "item": Spec((3,), torch.float32, table=50),
    "bias": Spec((), torch.float32, table=50),
    "mask": Spec((5,), torch.bool),
    "latest": Spec((4,), torch.int64, kind="items", below=50),
    "sure": Spec((4,), kind="labels"),
}
ROW = torch.tensor([3, 5, 9], dtype=torch.int32)
UPLOAD = {
    "examples": number(7),
    "item": torch.ones(3, 3),
    "item#rows": ROW,
    "bias": torch.ones(3),
    "bias#rows": ROW.clone(),
    "mask": torch.tensor([True, False, True, True, False]),
    "latest": torch.tensor([3, 5, 9, -1]),
    "sure": torch.tensor([0.1, 0.5, 1.0, 0.0]),
}


def upload(**tensors: Tensor | None) -> Make:
    return with_tensors(lambda stock: bytes(save(UPLOAD)), **tensors)


def rows(*numbers: int, **rest: Any) -> Make:
    given = {"item#rows": torch.tensor(numbers, dtype=torch.int32), "item": torch.ones(len(numbers), 3)}
    return upload(**given, **rest)


def neither(stock: Stock) -> bytes:
    """An upload whose first truth value is a seven."""
    data = bytearray(save(UPLOAD))
    begin, _ = head_of(bytes(data))["mask"]["data_offsets"]
    data[len(data) - len(body_of(bytes(data))) + begin] = 7
    return bytes(data)


def doubled(stock: Stock) -> bytes:
    data = bytes(save(UPLOAD))
    text = data[8 : 8 + int.from_bytes(data[:8], "little")].strip()
    first = json.dumps(head_of(data)["bias"], separators=(",", ":")).encode()
    return raw(text[:-1] + b',"bias":' + first + b"}", body_of(data))


UPLOADS: Table = {
    "a name twice": (doubled, "a name twice|bytes"),
    "5 MB of notes": (lambda stock: bytes(save(UPLOAD, {"note": "x" * (5 << 20)})), "bytes"),
    "a short note": (lambda stock: bytes(save(UPLOAD, {"run": "mine"})), "note 'run'"),
    "100,000 parts": (lambda stock: parts(100_000), "bytes"),
    "a count below zero": (upload(examples=number(-3)), "less than nothing"),
    "a row twice": (rows(3, 3, 9), "ascending"),
    "rows that fall": (rows(9, 5, 3), "ascending"),
    "a row that is not there": (rows(3, 5, 50), "ascending"),
    "a row below zero": (rows(-1, 5, 9), "from 0 upwards"),
    "more rows than the table has": (rows(*range(51)), "shape|bytes"),
    "fewer values than rows": (upload(item=torch.ones(2, 3)), "shape|not ascending|numbers"),
    "a value that is no number": (upload(item=torch.full((3, 3), float("nan"))), "not finite"),
    "an item that is not there": (upload(latest=torch.tensor([3, 5, 9, 50])), "a number beyond"),
    "a soft label above one": (upload(sure=torch.tensor([0.1, 0.5, 1.5, 0.0])), "no shares"),
    "a soft label below zero": (upload(sure=torch.tensor([0.1, 0.5, -0.5, 0.0])), "no shares"),
    "neither true nor false": (neither, "neither true nor false"),
    "a part too many": (upload(gender=number(1)), "undeclared|bytes"),
    "spaces without end": (
        lambda stock: raw(
            json.dumps(head_of(bytes(save(UPLOAD)))).encode() + b" " * 9999, body_of(bytes(save(UPLOAD)))
        ),
        "bytes",
    ),
}


def received(arguments: Sequence[str]) -> int:
    """What a server does with an upload first."""
    codec.decode(sys.stdin.buffer.read(), UPLOAD_SCHEMA, sender="upload")
    return 0


def to_device(make: Make) -> Callable[[Path, Stock], Command]:
    """The bytes to a device that has answered nothing yet."""

    def case(folder: Path, stock: Stock) -> Command:
        stock.store(folder / "store")
        return Command("store", program=NODE, stdin=make(stock))

    return case


def to_poster(make: Make) -> Callable[[Path, Stock], Command]:
    """The bytes to a device whose user may post."""

    def case(folder: Path, stock: Stock) -> Command:
        stock.poster(folder / "store")
        return Command("store", program=NODE, stdin=make(stock))

    return case


def to_server(make: Make) -> Callable[[Path, Stock], Command]:
    return lambda folder, stock: Command(program=received, stdin=make(stock))


def answered(make: Make, *words: str, **notes: Any) -> Callable[[Path, Stock], Command]:
    """The bytes to a device that has answered the second round."""

    def case(folder: Path, stock: Stock) -> Command:
        stock.store(folder / "store")
        node.answer(folder / "store", stock.letter(1, **notes))
        return Command("store", *words, program=NODE, stdin=make(stock))

    return case


def bound(make: Make) -> Callable[[Path, Stock], Command]:
    """The bytes to a device that answers one run alone from the beginning."""

    def case(folder: Path, stock: Stock) -> Command:
        stock.bound(folder / "store", "spring")
        return Command("store", program=NODE, stdin=make(stock))

    return case


def asking(*words: str) -> Callable[[Path, Stock], Command]:
    def case(folder: Path, stock: Stock) -> Command:
        stock.store(folder / "store")
        return Command(*words, program=NODE, stdin=stock.letter())

    return case


OTHER = with_tensors(lambda stock: stock.letter(1), item=table(0.5))
CASES = [
    *(Case(f"message: a letter, {name}", to_device(make), 2, says) for name, (make, says) in LETTERS.items()),
    *(Case(f"message: posts, {name}", to_poster(make), 2, says) for name, (make, says) in POSTS.items()),
    *(
        Case(f"message: an upload, {name}", to_server(make), 2, says)
        for name, (make, says) in UPLOADS.items()
    ),
    Case("message: of a run that the device was not made for", bound(Stock.letter), 2, "one without a name"),
    Case("message: another one for a round", answered(OTHER), 2, "and not this letter"),
    Case(
        "message: of another run",
        answered(lambda stock: stock.letter(1, run="autumn"), run="spring"),
        2,
        'another run, "autumn"',
    ),
    Case(
        "message: of no run", answered(lambda stock: stock.letter(1), run="spring"), 2, "one without a name"
    ),
    Case("message: to a device of secret noise", answered(Stock.letter, "--seeded"), 2, "leave out --seeded"),
    Case("message: a question nobody answers", asking("store", "--ask"), 2, "score for themselves"),
    Case("message: a post nowhere", asking("store", "--post", "no/where"), 2, "no place for a file"),
    Case("message: a post into the store", asking("store", "--post", "store/own.safetensors"), 2, "lies in"),
    Case("message: a post to a device file", asking("store", "--post", "/dev/null"), 2, "is a device"),
    Case("message: to a folder that is no store", asking("."), 2, "no device's store"),
    Case("message: a ledger and a question", asking("store", "--ledger", "--ask"), 2, "only prints"),
]
