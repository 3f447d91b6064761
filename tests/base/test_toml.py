"""TOML out and back in, and lines for errors."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilrec.base.toml import read, value_of, write
from veilrec.errors import BadInput

NAMES = st.text(max_size=8)
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_what_is_written_reads_back(values: dict[str, Any]) -> None:
    found = tomllib.loads(write(values))
    assert found == values
    # and in the same kinds: 1, 1.0 and true are equal in Python
    assert json.dumps(found, sort_keys=True) == json.dumps(values, sort_keys=True)


@given(VALUES)
def test_a_value_on_the_command_line_is_a_toml_value(value: Any) -> None:
    text = write({"x": [value]}).removeprefix("x = ").strip() if not isinstance(value, dict) else None
    if text is not None:
        assert value_of(text) == [value]


def test_comments_stand_beside_their_values() -> None:
    values = {
        "seed": 1,
        "plan": {"rounds": 5, "lr": {"user": 0.1}},
        "defence": [{"name": "a"}, {"name": "b"}],
    }
    text = write(values, {"seed": "x.toml", "plan.lr": "default", "defence.1.name": "--set"})
    assert "seed = 1 # x.toml" in text
    assert "lr = {user = 0.1} # default" in text
    assert 'name = "b" # --set' in text
    assert tomllib.loads(text) == values


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, b"x", {1}])
def test_what_toml_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(BadInput, match=r"^a\.b: "):
        write({"a": {"b": value}})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("0.5", 0.5),
        ("true", True),
        ('"5"', "5"),
        ("FedNCF", "FedNCF"),
        ("[1, 2]", [1, 2]),
        ("", ""),
    ],
)
def test_quotes_may_be_left_out(text: str, value: Any) -> None:
    assert value_of(text) == value


def test_a_value_cannot_smuggle_in_a_second_key() -> None:
    assert value_of("1\nother = 2") == "1\nother = 2"


def test_lines_of_keys(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(
        "seed = 1\n\n[plan]\n# rounds = 3\nrounds = 2\nlr.user = 1\n"
        '[[defence]]\nname = "a"\n[[defence]]\nname = "b"\n'
    )
    lines = read(path).lines
    assert lines["seed"] == 1
    assert lines["plan"] == 3
    assert lines["plan.rounds"] == 5
    assert lines["plan.lr.user"] == 6
    assert (lines["defence.0.name"], lines["defence.1"], lines["defence.1.name"]) == (8, 9, 10)


def test_a_byte_order_mark_and_windows_lines_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"\xef\xbb\xbfseed = 1\r\n[plan]\r\nrounds = 2\r\n")
    assert read(path).values == {"seed": 1, "plan": {"rounds": 2}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a = 1\na = 2\n", "a.toml:2: not TOML: the same key twice; correct that line"),
        (b"a = 1\nb = \xff\n", "a.toml:2: not UTF-8; save it in that encoding"),
        (b"a = 1\n\nb = [1,\n", "a.toml:4: not TOML: "),
        (b"a == 1\n", "a.toml:1: not TOML: "),
        (b"a = 1\nb = \x00\n", "a.toml:2: not TOML: "),
        (b"a = " + b"[" * 5000, "a.toml: not TOML: nested too deeply; flatten it"),
        (b"a = {x" + b".b" * 5000 + b" = 1}", "a.toml: not TOML: nested too deeply; flatten it"),
        (b"[a" + b".b" * 5000 + b"]\nx = 1\n", "a.toml: not TOML: nested too deeply; flatten it"),
        (b"a = " + b"1" * 5000, "a.toml: a number of thousands of digits; correct it"),
        (b"#" * (1 << 20) + b"\n", "a.toml: too large for a recipe; name a TOML file"),
    ],
)
def test_what_is_not_toml_is_told_with_its_line(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(data)
    with pytest.raises(BadInput) as caught:
        read(path)
    assert message in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_recipe_without_an_end_is_not_read(tmp_path: Path) -> None:
    """A pipe would be waited for, and a device read until memory runs out."""
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(BadInput, match="is not a plain file"):
        read(tmp_path / "pipe.toml")
    (tmp_path / "plain.toml").write_text("seed = 1")
    (tmp_path / "link.toml").symlink_to("plain.toml")
    assert read(tmp_path / "link.toml").values == {"seed": 1}


@pytest.mark.parametrize("text", ["1" * 5000, "{a" + ".b" * 5000 + " = 1}", "[" * 50 + "]" * 50])
def test_a_value_that_nobody_writes_is_text(text: str) -> None:
    assert value_of(text) == text
