# SPDX-License-Identifier: Apache-2.0
"""The small expressions of the tables: sizes such as ``heads / kv_heads``, conditions such as ``tied and not first``.

They are a subset of Python's expressions over named quantities. ``/`` divides without a remainder or refuses, ``up(n,
m)`` rounds ``n`` up to a multiple of ``m``, ``len(items)`` counts. Names are looked up only when they are needed, so
that a model without experts need not have a number of experts.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from functools import cache
from typing import Any

from ..errors import LayoutError

Lookup = Callable[[str], Any]


def _exact(whole: int, parts: int) -> int:
    if parts == 0 or whole % parts:
        raise LayoutError(f"{whole} does not divide into {parts} equal parts")
    return whole // parts


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _exact,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


def evaluate(text: str, lookup: Lookup) -> Any:
    """The value of an expression, its names given by ``lookup``.

    Raises
    ------
    LayoutError
        Where the text is no such expression, or a division leaves a remainder; the message shows the expression.
    """
    try:
        return _value(_parse(text), lookup)
    except LayoutError as error:
        if text.isidentifier():
            raise
        raise LayoutError(f"{error}, in {text!r}") from None
    except (TypeError, IndexError, KeyError) as error:
        raise LayoutError(f"{text!r} cannot be computed: {error}") from error


@cache
def _parse(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise LayoutError(f"{text!r} is no expression: {error.msg}") from None


def _value(node: ast.expr, lookup: Lookup) -> Any:
    match node:
        case ast.Constant(value):
            return value
        case ast.Tuple(items):
            return tuple(_value(item, lookup) for item in items)
        case ast.Name(name):
            return lookup(name)
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, lookup), _value(right, lookup))
        case ast.Compare(left, [op], [right]) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, lookup), _value(right, lookup))
        case ast.BoolOp(ast.And(), values):
            return all(_value(value, lookup) for value in values)
        case ast.BoolOp(ast.Or(), values):
            return any(_value(value, lookup) for value in values)
        case ast.UnaryOp(ast.Not(), operand):
            return not _value(operand, lookup)
        case ast.IfExp(test, body, orelse):
            return _value(body if _value(test, lookup) else orelse, lookup)
        case ast.Subscript(value, index):
            return _value(value, lookup)[_value(index, lookup)]
        case ast.Call(ast.Name("up"), [number, multiple], []):
            return _up(_value(number, lookup), _value(multiple, lookup))
        case ast.Call(ast.Name("len"), [items], []):
            return len(_value(items, lookup))
    raise LayoutError(f"{ast.unparse(node)!r} is no part of an expression")
