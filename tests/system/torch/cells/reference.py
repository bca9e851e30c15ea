"""What reductions mean, computed plainly, and contributions whose results are exact."""

from __future__ import annotations

import functools
import operator
from typing import Callable

import torch
from torch.distributed import ReduceOp

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
WIDE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
COMPLEX = (torch.complex64, torch.complex128)
# What only travels: every other type that a CPU tensor can have.
OTHERS = (torch.complex32, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu)
ALL = (torch.bool,) + INTEGERS + WIDE_UNSIGNED + FLOATS + FLOAT8 + COMPLEX + OTHERS

FLOAT_OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX")
INTEGER_OPS = ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
COMPLEX_OPS = ("SUM", "AVG")
FACTOR = 0.5

COUNTS = (1, 37, 5000)  # A scalar's worth, an odd one, and more than a small message.


def op(name: str) -> ReduceOp:
    """PREMUL_SUM carries its factor."""
    if name == "PREMUL_SUM":
        return torch.distributed._make_nccl_premul_sum(FACTOR)
    return getattr(ReduceOp, name)


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def ops_of(dtype: torch.dtype) -> tuple[str, ...]:
    if dtype.is_complex:
        return COMPLEX_OPS
    return FLOAT_OPS if dtype.is_floating_point else INTEGER_OPS


def contribution(rank: int, size: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Integers take all their values (sums wrap); floats few enough that no result of any order is rounded."""
    generator = torch.Generator().manual_seed(1000 * rank + count)
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).to(torch.bool)
    if dtype.is_complex:
        parts = torch.randint(-2, 3, (count, 2), generator=generator) * size
        return torch.view_as_complex(parts.to(torch.float64)).to(dtype)
    if dtype.is_floating_point:
        return (torch.randint(-1, 2, (count,), generator=generator) * size).to(dtype)
    return payload(rank, count, dtype)


def payload(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Random bits."""
    generator = torch.Generator().manual_seed(7000 * rank + count)
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).to(torch.bool)
    raw = torch.randint(0, 256, (count * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    return raw.view(dtype)


def reduced(name: str, parts: list[torch.Tensor]) -> torch.Tensor:
    """The reduction of the parts, in a type that holds every intermediate, then as the parts' type."""
    dtype = parts[0].dtype
    if dtype == torch.bool:
        return _reduced_bools(name, parts)
    if dtype.is_complex:
        total = functools.reduce(operator.add, (part.to(torch.complex128) for part in parts))
        return (total / len(parts) if name == "AVG" else total).to(dtype)
    if dtype.is_floating_point:
        return _reduced_floats(name, [part.to(torch.float64) for part in parts]).to(dtype)
    # 64 bits wrap as fewer do, and uint64 lies in int64 as it is except for its order.
    signed = [_as_int64(part) for part in parts]
    return _from_int64(functools.reduce(_on_integers(name, dtype), signed), dtype)


def _reduced_bools(name: str, parts: list[torch.Tensor]) -> torch.Tensor:
    combine = {"SUM": operator.or_, "MAX": operator.or_, "BOR": operator.or_, "PRODUCT": operator.and_,
               "MIN": operator.and_, "BAND": operator.and_, "BXOR": operator.xor}[name]
    return functools.reduce(combine, parts)


def _reduced_floats(name: str, parts: list[torch.Tensor]) -> torch.Tensor:
    combine: dict[str, Callable] = {"PRODUCT": operator.mul, "MIN": torch.minimum, "MAX": torch.maximum}
    if name == "PREMUL_SUM":
        parts = [part * FACTOR for part in parts]
    total = functools.reduce(combine.get(name, operator.add), parts)
    return total / len(parts) if name == "AVG" else total


def _as_int64(part: torch.Tensor) -> torch.Tensor:
    return part.view(torch.int64) if part.dtype == torch.uint64 else part.to(torch.int64)


def _from_int64(total: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The low bits."""
    lowest = total.view(torch.uint8).reshape(-1, 8)[:, :dtype.itemsize].contiguous()
    return lowest.view(dtype).reshape(-1)


def _on_integers(name: str, dtype: torch.dtype) -> Callable:
    if name in ("MIN", "MAX"):
        choose = torch.minimum if name == "MIN" else torch.maximum
        if dtype != torch.uint64:
            return choose
        flip = torch.tensor(-2**63)
        return lambda a, b: choose(a ^ flip, b ^ flip) ^ flip
    return {"SUM": operator.add, "PRODUCT": operator.mul, "BAND": operator.and_, "BOR": operator.or_,
            "BXOR": operator.xor}[name]


def same_bits(actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Raises unless shape, type and every byte agree (-0 is 0: no order of a sum keeps its sign)."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape, \
        f"{what} is {actual.dtype}{list(actual.shape)}, not {expected.dtype}{list(expected.shape)}"
    if not actual.numel():
        return
    ours, theirs = (t.contiguous().reshape(-1).view(torch.uint8).reshape(t.numel(), -1) for t in (actual, expected))
    wrong = (ours != theirs).any(1)
    if actual.dtype.is_floating_point and actual.dtype.itemsize > 1:
        wrong &= (actual != expected).reshape(-1)
    if wrong.any():
        first = int(wrong.nonzero()[0])
        ours, theirs = actual.reshape(-1)[first].item(), expected.reshape(-1)[first].item()
        raise AssertionError(f"{what}: {int(wrong.sum())} of {len(wrong)} wrong, "
                             f"element {first} is {ours}, not {theirs}")
