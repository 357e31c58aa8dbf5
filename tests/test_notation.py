# SPDX-License-Identifier: Apache-2.0
"""The grammar: what a text says, what it is equal to, and where it is refused."""

from __future__ import annotations

import pickle
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import layout_kernels as lk
from layout_kernels.notation import Concat, Count, Name, Node, Product, Select

some = settings(derandomize=True, deadline=None, max_examples=150, phases=(Phase.generate, Phase.shrink))

PUBLISHED = {
    "Megatron qkv": "(g [q:r k v] d)/tp h",
    "Megatron fc1": "([gate up] i/tp) h",
    "fc1 interleaved in blocks": "(ib/tp [gate up] is) h",
    "grouped experts, bytes": "e/ep h ([gate up] i/etp)",
    "grouped experts, declared": "h (e/ep [gate up] i/etp)",
    "one expert": "([gate] i) h",
    "vLLM qkv": "([q:(g r)/tp k:g/kv v:g/kv] d) h",
    "GPT-OSS": "e h (i [gate up])",
    "GatedDeltaNet": "[q:(nk/tp dk) k:(nk/tp dk) v:(nv/tp dv) z:(nv/tp dv) b:nv/tp a:nv/tp] h",
    "padded embedding": "[token:v pad:p]/tp h",
    "MTP": "o [embed:h hidden:h]",
    "MLA W_UV": "n c [val:dv]",
    "padded width": "e ([gate up] [_:i pad:p]) h",
    "flat slice": "(o h)/fsdp",
    "scales": "(n 128) k",
}


@pytest.mark.parametrize("text", PUBLISHED.values(), ids=list(PUBLISHED))
def test_text_comes_back(text: str) -> None:
    layout = lk.Layout(text)
    assert str(layout) == text
    assert layout.canonical == text
    assert lk.Layout(layout.canonical) == layout


def test_the_tree_is_what_the_grammar_says() -> None:
    assert lk.Layout("(g [q:r k _:1] d)/tp 1").dimensions == (
        Select(Product((Name("g"), Concat((("q", Name("r")), ("k", Count(1)), ("_", Count(1)))), Name("d"))), "tp"),
        Count(1),
    )
    assert lk.Layout("((x)/a)/b").dimensions == (Select(Product((Select(Product((Name("x"),)), "a"),)), "b"),)
    assert lk.Layout("").dimensions == ()
    assert lk.Layout("12 x1").dimensions == (Count(12), Name("x1"))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("(g [q:r k v] d)/tp h", " ( g[q : r k v]d ) / tp\n\th "),
        ("[k v]", "[k:1 v:1]"),
        ("", "   "),
        ("a[b]c", "a [b] c"),
    ],
)
def test_white_space_only_separates(one: str, two: str) -> None:
    assert lk.Layout(one) == lk.Layout(two)
    assert hash(lk.Layout(one)) == hash(lk.Layout(two))
    assert lk.Layout(one).canonical == lk.Layout(two).canonical
    assert str(lk.Layout(two)) == two


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("a b", "b a"),
        ("(a b)", "a b"),
        ("a", "(a)"),
        ("[a b]", "[b a]"),
        ("a/m", "a/n"),
        ("a/m", "(a)/m"),
        ("[_:a]", "a"),
        ("1", "2"),
        ("A", "a"),
    ],
)
def test_different_layouts_are_unequal(one: str, two: str) -> None:
    assert lk.Layout(one) != lk.Layout(two)
    assert lk.Spec(one) != lk.Spec(two)


def test_names_live_in_separate_namespaces() -> None:
    layout = lk.Layout("[x:x/x y] (z 4)/m [_:w]")
    assert layout.axes == {"x", "z", "w"}
    assert layout.tags == {"x", "y"}
    assert layout.meshes == {"x", "m"}


def test_a_layout_never_changes() -> None:
    layout = lk.Layout("a b")
    with pytest.raises(AttributeError):
        layout.text = "b a"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(layout)) == layout


REFUSED = {
    "empty product": ("a () b", 2, "'()' is empty"),
    "empty concatenation": ("a []", 2, "'[]' is empty"),
    "product never closed": ("(a b", 0, "never closed"),
    "concatenation never closed": ("x [q:r k", 2, "never closed"),
    "closed too often": ("a b) c", 3, "an axis must begin here"),
    "closed by the wrong mark": ("(a [b) c]", 5, "segment begins with its tag"),
    "no mesh": ("a/ (b)", 3, "mesh name must follow"),
    "a number for a mesh": ("a/4", 2, "mesh name must follow"),
    "two selections": ("x/a/b", 3, "(x/a)/b"),
    "zero": ("a 0", 2, "at least 1"),
    "the reserved name as an axis": ("a _ b", 2, "reserved"),
    "the reserved name below a tag": ("[q:_]", 3, "reserved"),
    "a tag that is no name": ("[4:a]", 1, "tag"),
    "a tag without its axis": ("[q:]", 3, "an axis must begin here"),
    "a colon outside": ("q:r", 1, "an axis must begin here"),
    "a stray mark": ("a, b", 1, "','"),
    "a letter of another script": ("a β", 2, "'β'"),
    "a sign": ("(a -1)", 3, "'-'"),
    "a decimal point": ("1.5", 1, "'.'"),
    "a selection of nothing": ("/tp", 0, "an axis must begin here"),
}


@pytest.mark.parametrize(("text", "position", "why"), REFUSED.values(), ids=list(REFUSED))
def test_refusal_names_the_position(text: str, position: int, why: str) -> None:
    with pytest.raises(lk.LayoutError) as error:
        lk.Layout(text)
    message = str(error.value)
    assert why in message
    assert f"at position {position}\n" in message
    shown, arrow = message.splitlines()[-2:]
    assert shown.strip() == text.strip()
    assert arrow.index("^") - (len(shown) - len(shown.lstrip())) == position


@pytest.mark.parametrize("text", [None, 4, b"a b", ["a"], ("a", "b")], ids=repr)
def test_only_a_text_is_a_layout(text: object) -> None:
    with pytest.raises(lk.LayoutError, match="text"):
        lk.Layout(text)  # type: ignore[arg-type]
    with pytest.raises(lk.LayoutError):
        lk.Spec(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["(" * 5000, "(" * 5000 + "a" + ")" * 5000, "[q:" * 5000 + "a" + "]" * 5000, "9" * 5000, "a " + "1" * 40],
    ids=len,
)
def test_a_hostile_text_is_refused_in_time(text: str) -> None:
    """Not a RecursionError, not a ValueError of int(): a text may come from another process."""
    with pytest.raises(lk.LayoutError):
        lk.compile({"a": lk.Spec(text, dims={"a": 2})}, {"b": lk.Spec(text, dims={"a": 2})})


def tree(r: Random, depth: int = 3) -> Node:
    kind = r.randrange(7) if depth else r.randrange(2)
    if kind == 0:
        return Count(r.randrange(1, 200))
    if kind in (1, 2):
        return Name(r.choice(["a", "B_2", "i0", "_x", "h"]))
    if kind in (3, 4):
        return Product(tuple(tree(r, depth - 1) for _ in range(r.randrange(1, 4))))
    if kind == 5:
        return Concat(tuple((r.choice(["q", "k", "_", "a"]), tree(r, depth - 1)) for _ in range(r.randrange(1, 4))))
    inner = tree(r, depth - 1)
    return Select(Product((inner,)) if isinstance(inner, Select) else inner, r.choice(["tp", "a"]))


@some
@given(r=st.randoms(use_true_random=False))
def test_every_tree_has_a_text_and_every_text_its_tree(r: Random) -> None:
    dimensions = tuple(tree(r) for _ in range(r.randrange(4)))
    text = " ".join(map(str, dimensions))
    assert lk.Layout(text).dimensions == dimensions
    spread = "".join(f" {c} " if c in "()[]:/" else c for c in text)
    assert lk.Layout(spread) == lk.Layout(text)


@some
@given(text=st.text(alphabet="ab1_ ()[]:/\n?", max_size=14))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        layout = lk.Layout(text)
    except lk.LayoutError as error:
        said = str(error)
    else:
        said = "position"
        assert str(layout) == text
        assert lk.Layout(layout.canonical) == layout
    assert "position" in said
