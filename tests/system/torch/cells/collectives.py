"""Every collective, with every type and every operation, against a plain computation."""

from __future__ import annotations

import functools

import torch
import torch.distributed as dist

from cell import Theme
from cells.reference import (ALL, COMPLEX, COUNTS, FLOAT8, FLOATS, INTEGERS, WIDE_UNSIGNED, contribution, name_of,
                             op, ops_of, payload, reduced, same_bits)
from cells.tally import Tally

CELLS = Theme("Collectives")

COMMON = FLOATS + INTEGERS[:2] + INTEGERS[3:]  # Where gloo knows them too.
RARE = (torch.bool, torch.int16) + WIDE_UNSIGNED


def _every(check, dtypes, rank: int, size: int) -> None:
    """The check with each type and its operations."""
    with Tally() as tally:
        for dtype in dtypes:
            for name in ops_of(dtype):
                for count in COUNTS:
                    tally.attempt(f"{name_of(dtype)} {name}",
                                  functools.partial(check, rank, size, dtype, name, count))
        tally.failed = list(dict(tally.failed).items())


def _contributions(size: int, count: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return [contribution(rank, size, count, dtype) for rank in range(size)]


def _all_reduce(rank: int, size: int, dtype: torch.dtype, name: str, count: int) -> None:
    parts = _contributions(size, count, dtype)
    mine = parts[rank].clone()
    dist.all_reduce(mine, op(name))
    same_bits(mine, reduced(name, parts), name)


def _reduce(rank: int, size: int, dtype: torch.dtype, name: str, count: int) -> None:
    parts = _contributions(size, count, dtype)
    mine = parts[rank].clone()
    dist.reduce(mine, size - 1, op(name))
    if rank == size - 1:
        same_bits(mine, reduced(name, parts), name)


def _reduce_scatter(rank: int, size: int, dtype: torch.dtype, name: str, count: int) -> None:
    parts = _contributions(size, count * size, dtype)
    mine = torch.empty(count, dtype=dtype)
    dist.reduce_scatter(mine, list(parts[rank].clone().chunk(size)), op(name))
    expected = reduced(name, parts).chunk(size)[rank]
    same_bits(mine, expected, f"{name} of a list")


def _reduce_scatter_tensor(rank: int, size: int, dtype: torch.dtype, name: str, count: int) -> None:
    parts = _contributions(size, count * size, dtype)
    mine = torch.empty(count, dtype=dtype)
    dist.reduce_scatter_tensor(mine, parts[rank].clone(), op(name))
    same_bits(mine, reduced(name, parts).chunk(size)[rank], name)


REDUCTIONS = {"all_reduce": _all_reduce, "reduce": _reduce, "reduce_scatter": _reduce_scatter,
              "reduce_scatter_tensor": _reduce_scatter_tensor}


@CELLS.cell("all_reduce: SUM AVG PRODUCT MIN MAX BAND BOR BXOR of f16 bf16 f32 f64 u8 i8 i32 i64")
def all_reduce(rank: int, size: int) -> None:
    _every(_all_reduce, COMMON, rank, size)


@CELLS.cell("reduce: the same")
def reduce(rank: int, size: int) -> None:
    _every(_reduce, COMMON, rank, size)


@CELLS.cell("reduce_scatter: the same")
def reduce_scatter(rank: int, size: int) -> None:
    _every(_reduce_scatter, COMMON, rank, size)


@CELLS.cell("reduce_scatter_tensor: the same")
def reduce_scatter_tensor(rank: int, size: int) -> None:
    _every(_reduce_scatter_tensor, COMMON, rank, size)


def _all_four(rank: int, size: int, dtypes, names: tuple[str, ...] | None = None) -> None:
    """Every reducing collective with each type."""
    with Tally() as tally:
        for title, check in REDUCTIONS.items():
            for dtype in dtypes:
                for name in names or ops_of(dtype):
                    tally.attempt(f"{title} {name_of(dtype)} {name}",
                                  functools.partial(check, rank, size, dtype, name, 1000))


@CELLS.cell("all four, PREMUL_SUM of f16 bf16 f32 f64")
def premultiplied(rank: int, size: int) -> None:
    _all_four(rank, size, FLOATS, ("PREMUL_SUM",))


@CELLS.cell("all four, bool i16 u16 u32 u64")
def rare_types(rank: int, size: int) -> None:
    _all_four(rank, size, RARE)


@CELLS.cell("all four, SUM MAX of float8_e4m3fn float8_e5m2")
def float8(rank: int, size: int) -> None:
    _all_four(rank, size, FLOAT8, ("SUM", "MAX"))


@CELLS.cell("all four, SUM AVG of complex64 complex128")
def complex_numbers(rank: int, size: int) -> None:
    _all_four(rank, size, COMPLEX)


@CELLS.cell("all four, PRODUCT MIN MAX of complex64 complex128 are refused on every rank")
def undefined_on_complex(rank: int, size: int) -> None:
    """Reduced as pairs of reals they would be wrong, and nobody would be told."""
    for title, check in REDUCTIONS.items():
        for dtype in COMPLEX:
            for name in ("PRODUCT", "MIN", "MAX"):
                try:
                    check(rank, size, dtype, name, 10)
                except (RuntimeError, ValueError) as error:
                    assert "complex" in str(error), f"{title} {name} is refused for another reason: {error}"
                else:
                    raise AssertionError(f"{title} {name} of {name_of(dtype)} was taken")


def _moves(check, rank: int, size: int, dtypes=ALL) -> None:
    """The check with each type, and each type's bits."""
    with Tally() as tally:
        for dtype in dtypes:
            for count in COUNTS:
                parts = [payload(other, count, dtype) for other in range(size)]
                tally.attempt(name_of(dtype), functools.partial(check, rank, size, parts))
        tally.failed = list(dict(tally.failed).items())


def _broadcast(rank: int, size: int, parts: list[torch.Tensor]) -> None:
    mine = parts[rank].clone()
    dist.broadcast(mine, size - 1)
    same_bits(mine, parts[size - 1], "broadcast")


def _all_gather(rank: int, size: int, parts: list[torch.Tensor]) -> None:
    outputs = [torch.empty_like(part) for part in parts]
    dist.all_gather(outputs, parts[rank])
    for other in range(size):
        same_bits(outputs[other], parts[other], f"output {other}")


def _all_gather_into_tensor(rank: int, size: int, parts: list[torch.Tensor]) -> None:
    output = torch.empty(size * len(parts[0]), dtype=parts[0].dtype)
    dist.all_gather_into_tensor(output, parts[rank])
    for other, part in enumerate(output.chunk(size)):
        same_bits(part, parts[other], f"part {other}")


def _gather(rank: int, size: int, parts: list[torch.Tensor]) -> None:
    outputs = [torch.empty_like(part) for part in parts] if rank == size - 1 else None
    dist.gather(parts[rank], outputs, size - 1)
    for other, output in enumerate(outputs or []):
        same_bits(output, parts[other], f"output {other}")


def _scatter(rank: int, size: int, parts: list[torch.Tensor]) -> None:
    output = torch.empty_like(parts[rank])
    dist.scatter(output, parts if rank == size - 1 else None, size - 1)
    same_bits(output, parts[rank], "output")


def _piece(source: int, destination: int, part: torch.Tensor) -> torch.Tensor:
    """What one rank sends to another: the source's data, rotated by the destination."""
    return part.view(torch.uint8).roll(part.dtype.itemsize * destination).view(part.dtype)


def _all_to_all(rank: int, size: int, parts: list[torch.Tensor]) -> None:
    outputs = [torch.empty_like(part) for part in parts]
    dist.all_to_all(outputs, [_piece(rank, other, parts[rank]) for other in range(size)])
    for other in range(size):
        same_bits(outputs[other], _piece(other, rank, parts[other]), f"output {other}")


def _all_to_all_single(rank: int, size: int, parts: list[torch.Tensor]) -> None:
    sent = torch.cat([_piece(rank, other, parts[rank]).view(torch.uint8) for other in range(size)])
    output = torch.empty(size * len(parts[0]), dtype=parts[0].dtype)
    dist.all_to_all_single(output, sent.view(parts[0].dtype))
    for other, piece in enumerate(output.chunk(size)):
        same_bits(piece, _piece(other, rank, parts[other]), f"piece {other}")


def _send_recv(rank: int, size: int, parts: list[torch.Tensor]) -> None:
    """Around the ring: rank 0 sends first, so that the blocking calls meet."""
    received = torch.empty_like(parts[rank])
    if rank == 0:
        dist.send(parts[0], 1)
        dist.recv(received, size - 1)
    else:
        dist.recv(received, rank - 1)
        dist.send(parts[rank], (rank + 1) % size)
    same_bits(received, parts[rank - 1], "message")


MOVES = {"broadcast": _broadcast, "all_gather": _all_gather, "all_gather_into_tensor": _all_gather_into_tensor,
         "gather": _gather, "scatter": _scatter, "all_to_all": _all_to_all,
         "all_to_all_single": _all_to_all_single, "send, recv": _send_recv}


def _add_moves() -> None:
    """Two cells for each: the types that most backends know, and the others."""
    for name, check in MOVES.items():
        for title, dtypes in (("f16 bf16 f32 f64 u8 i8 i32 i64", COMMON), ("every other type", None)):
            CELLS.cell(f"{name}: {title}")(Moves(name, dtypes))


class Moves:
    """A cell of one moving collective; a class, for functions made in a loop cannot be sent to a rank."""

    def __init__(self, name: str, dtypes: tuple[torch.dtype, ...] | None):
        self.name, self.dtypes = name, dtypes

    def __call__(self, rank: int, size: int) -> None:
        others = tuple(dtype for dtype in ALL if dtype not in COMMON)
        _moves(MOVES[self.name], rank, size, self.dtypes or others)


_add_moves()


@CELLS.cell("all_to_all_single with splits, some of them empty")
def splits(rank: int, size: int) -> None:
    """Rank r sends r x d rows to rank d."""
    sends, receives = [rank * d for d in range(size)], [s * rank for s in range(size)]
    sent = torch.arange(sum(sends) * 3, dtype=torch.float64).reshape(-1, 3) + 1000 * rank
    received = torch.empty(sum(receives), 3, dtype=torch.float64)
    dist.all_to_all_single(received, sent, receives, sends)
    for source, piece in enumerate(received.split(receives)):
        before = sum(source * d for d in range(rank))
        whole = torch.arange((before + len(piece)) * 3, dtype=torch.float64).reshape(-1, 3) + 1000 * source
        same_bits(piece, whole[before:], f"from {source}")


@CELLS.cell("all_to_all of uneven lists")
def uneven_all_to_all(rank: int, size: int) -> None:
    outputs = [torch.empty(source + 2 * rank + 1) for source in range(size)]
    dist.all_to_all(outputs, [torch.full((rank + 2 * d + 1,), 10.0 * rank + d) for d in range(size)])
    for source, output in enumerate(outputs):
        same_bits(output, torch.full((source + 2 * rank + 1,), 10.0 * source + rank), f"from {source}")
    sent = [torch.arange(8.0 * size) + 100 * source for source in range(size)]
    outputs = [torch.empty(4 if rank > 0 else 0) for _ in range(size)]
    dist.all_to_all(outputs, _behind_an_empty_one(sent[rank], size))
    for source, output in enumerate(outputs):
        same_bits(output, sent[source][4 * (rank - 1):4 * rank], f"from {source}, which sends nothing to rank 0")
    received = torch.full((8 * size,), -1.0)
    dist.all_to_all(_behind_an_empty_one(received, size), [torch.full((4 if rank > 0 else 0,), float(rank))] * size)
    whole = torch.cat([torch.arange(1.0, size).repeat_interleave(4), torch.full((4 * size + 4,), -1.0)])
    same_bits(received, whole, "received, with nothing from rank 0")


def _behind_an_empty_one(buffer: torch.Tensor, size: int) -> list[torch.Tensor]:
    """A part for each rank: rank 0's is empty, and lies behind the others, which are the buffer's first."""
    end = 4 * (size - 1)
    return [buffer[end:end], *buffer[:end].split(4)]


@CELLS.cell("all_gather of uneven lists")
def uneven_all_gather(rank: int, size: int) -> None:
    outputs = [torch.empty(3 * other + 1) for other in range(size)]
    dist.all_gather(outputs, torch.full((3 * rank + 1,), float(rank)))
    for other, output in enumerate(outputs):
        same_bits(output, torch.full((3 * other + 1,), float(other)), f"output {other}")


@CELLS.cell("reduce_scatter of uneven lists")
def uneven_reduce_scatter(rank: int, size: int) -> None:
    output = torch.empty(2 * rank + 1)
    dist.reduce_scatter(output, [torch.full((2 * other + 1,), float(rank + other)) for other in range(size)])
    same_bits(output, torch.full((2 * rank + 1,), float(sum(r + rank for r in range(size)))), "output")


@CELLS.cell("all_reduce_coalesced, all_gather_coalesced")
def coalesced(rank: int, size: int) -> None:
    tensors = [torch.full((n,), float(rank + n)) for n in (1, 7, 300)]
    dist.all_reduce_coalesced(tensors)
    for n, tensor in zip((1, 7, 300), tensors, strict=True):
        same_bits(tensor, torch.full((n,), float(sum(r + n for r in range(size)))), f"sum of {n}")
    outputs = [[torch.empty(2), torch.empty(3, 2)] for _ in range(size)]
    dist.all_gather_coalesced(outputs, [torch.full((2,), float(rank)), torch.full((3, 2), 10.0 * rank)])
    for other in range(size):
        same_bits(outputs[other][0], torch.full((2,), float(other)), "first")
        same_bits(outputs[other][1], torch.full((3, 2), 10.0 * other), "second")


@CELLS.cell("coalescing manager: all_reduce, all_gather_into_tensor, reduce_scatter_tensor")
def coalescing_manager(rank: int, size: int) -> None:
    for asynchronous in (False, True):
        tensors = [torch.full((n,), float(rank + n)) for n in (5, 9)]
        outputs = [torch.empty(size * n) for n in (5, 9)]
        parts = [torch.empty(n) for n in (5, 9)]
        calls = [lambda i: dist.all_reduce(tensors[i]),
                 lambda i: dist.all_gather_into_tensor(outputs[i], torch.full((5 + 4 * i,), float(rank))),
                 lambda i: dist.reduce_scatter_tensor(parts[i], torch.full((size * (5 + 4 * i),), float(rank)))]
        for call in calls:
            with dist.distributed_c10d._coalescing_manager(async_ops=asynchronous) as manager:
                call(0)
                call(1)
            if asynchronous:
                manager.wait()
        for i, n in enumerate((5, 9)):
            same_bits(tensors[i], torch.full((n,), float(sum(r + n for r in range(size)))), "sum")
            gathered = torch.cat([torch.full((n,), float(r)) for r in range(size)])
            same_bits(outputs[i], gathered, "gathered")
            same_bits(parts[i], torch.full((n,), float(sum(range(size)))), "part of the sum")


@CELLS.cell("coalescing manager of a device (start and end in the backend)")
def device_coalescing(rank: int, size: int) -> None:
    first, second = torch.full((5,), float(rank)), torch.full((9,), float(rank + 1))
    gathered = torch.empty(size * 5)
    with dist.distributed_c10d._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        dist.broadcast(first, 0)
        dist.broadcast(second, 1)
    manager.wait()
    same_bits(first, torch.zeros(5), "first")
    same_bits(second, torch.full((9,), 2.0), "second")
    with dist.distributed_c10d._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        dist.all_gather_into_tensor(gathered, torch.full((5,), float(rank)))
    manager.wait()
    same_bits(gathered, torch.arange(float(size)).repeat_interleave(5), "gathered")


@CELLS.cell("async_op: wait, is_completed, futures in any order")
def asynchronous(rank: int, size: int) -> None:
    tensors = [torch.full((1000 * (n + 1),), float(rank + n)) for n in range(8)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    seen = []
    futures = [work.get_future().then(lambda done, n=n: seen.append(n) or done.value()[0].sum())
               for n, work in enumerate(works)]
    for n in reversed(range(8)):
        works[n].wait()
        assert works[n].is_completed(), f"operation {n} is not complete after wait()"
        total = float(sum(r + n for r in range(size)))
        same_bits(tensors[n], torch.full_like(tensors[n], total), f"operation {n}")
        assert futures[n].wait().item() == total * len(tensors[n]), f"the future of {n} holds another value"
    assert sorted(seen) == list(range(8)), f"callbacks ran for {seen}"


@CELLS.cell("async_op: the buffer may be dropped before the end")
def dropped(rank: int, size: int) -> None:
    """The backend keeps what an unfinished operation needs, as nobody else does."""
    kept = torch.empty(size, 200_000)
    works = []
    for _ in range(20):
        works.append(dist.all_gather_into_tensor(torch.empty(size * 200_000), torch.full((200_000,), 3.0),
                                                 async_op=True))
    last = dist.all_gather_into_tensor(kept.view(-1), torch.full((200_000,), float(rank)), async_op=True)
    del works
    last.wait()
    same_bits(kept, torch.arange(float(size)).repeat_interleave(200_000).view(size, -1), "last")


@CELLS.cell("no elements, scalars, and 64 MiB")
def sizes(rank: int, size: int) -> None:
    empty = torch.empty(0)
    dist.all_reduce(empty)
    dist.broadcast(empty, 0)
    dist.all_gather_into_tensor(torch.empty(0), empty)
    scalar = torch.tensor(float(rank))
    dist.all_reduce(scalar)
    same_bits(scalar, torch.tensor(float(sum(range(size)))), "scalar")
    large = torch.full((16 << 20,), float(rank))
    dist.all_reduce(large)
    same_bits(large, torch.full((16 << 20,), float(sum(range(size)))), "64 MiB")


@CELLS.cell("all_gather_into_tensor, stacked")
def stacked(rank: int, size: int) -> None:
    """The output has a dimension more than the input."""
    output = torch.zeros(size, 10)
    dist.all_gather_into_tensor(output, torch.full((10,), float(rank)))
    same_bits(output, torch.arange(float(size)).repeat_interleave(10).view(size, 10), "stacked")


@CELLS.cell("in place: the input is a part of the output, or the output of the input")
def in_place(rank: int, size: int) -> None:
    whole = torch.zeros(size * 10)
    mine = whole[rank * 10:rank * 10 + 10]
    mine.fill_(float(rank))
    dist.all_gather_into_tensor(whole, mine)
    same_bits(whole, torch.arange(float(size)).repeat_interleave(10), "gathered")
    share = torch.arange(size * 4.0)
    mine = share[rank * 4:rank * 4 + 4]
    dist.reduce_scatter_tensor(mine, share)
    same_bits(mine, torch.arange(size * 4.0)[rank * 4:rank * 4 + 4] * size, "reduced")


@CELLS.cell("views: slices, and outputs that are parts of a tensor")
def views(rank: int, size: int) -> None:
    outputs = torch.zeros(size, 3, 5)
    dist.all_gather(list(outputs), torch.full((3, 5), float(rank)))
    same_bits(outputs, torch.arange(float(size)).repeat_interleave(15).view(size, 3, 5), "parts")
    row = torch.zeros(7, 11)
    row[3].fill_(float(rank))
    dist.all_reduce(row[3])
    assert row.sum().item() == 11 * sum(range(size)), "a slice changed what lies beside it"


@CELLS.cell("tensors that are not contiguous are served or refused, never wrong")
def not_contiguous(rank: int, size: int) -> None:
    """Of transposed tensors every element must be right, unless each rank is told that they are not served."""
    def transposed() -> torch.Tensor:
        return (torch.arange(12.0).reshape(3, 4) * (rank + 1)).t()

    total = sum(r + 1 for r in range(size))
    for title, call, expected in (
            ("all_reduce", lambda t: dist.all_reduce(t), torch.arange(12.0).reshape(3, 4).t() * total),
            ("broadcast", lambda t: dist.broadcast(t, 0), torch.arange(12.0).reshape(3, 4).t())):
        tensor = transposed()
        try:
            call(tensor)
        except (RuntimeError, ValueError) as error:
            assert "contiguous" in str(error), f"{title} is refused, but not for its strides: {error}"
            continue
        same_bits(tensor, expected, title)


@CELLS.cell("tensors that are not contiguous, async, in inference mode")
def inference_mode(rank: int, size: int) -> None:
    """What ends on another thread than the caller's writes to tensors of this mode too."""
    with torch.inference_mode():
        for future in (False, True):
            column = torch.full((3, 4), float(rank)).t()
            outputs = [torch.empty(3, 4).t() for _ in range(size)]
            works = [dist.all_reduce(column, async_op=True)]
            works.append(dist.all_gather(outputs, torch.full((3, 4), float(rank)).t(), async_op=True))
            for work in works:
                work.get_future().wait() if future else work.wait()
            same_bits(column, torch.full((4, 3), float(sum(range(size)))), "sum")
            for other, output in enumerate(outputs):
                same_bits(output, torch.full((4, 3), float(other)), f"output {other}")


@CELLS.cell("all_to_all_single refuses tensors that are not contiguous, as PyTorch's contract has it")
def not_contiguous_all_to_all(rank: int, size: int) -> None:
    square, other = torch.ones(size, size), torch.ones(size, size).t()
    for output, given in ((square, other), (other, square)):
        try:
            dist.all_to_all_single(output, given)
        except ValueError as error:
            assert "Tensors must be contiguous" in str(error), str(error)
        else:
            raise AssertionError("it was taken")


@CELLS.cell("roots and lists that do not fit: RuntimeError on every rank, and the group goes on")
def bad_roots_and_lists(rank: int, size: int) -> None:
    group, one = dist.group.WORLD, torch.ones(1)

    def with_root(options: object, root: int) -> object:
        options.rootRank = root
        return options

    bad_list = [[torch.ones(0)]] + [[torch.ones(1)] for _ in range(size - 1)]
    calls = {
        "all_reduce of nothing": lambda: group.allreduce([], dist.AllreduceOptions()),
        "all_reduce_coalesced of nothing": lambda: group.allreduce_coalesced([], dist.AllreduceCoalescedOptions()),
        "all_gather with a short list": lambda: group.allgather([[torch.ones(1)] * (size - 1)], [one]),
        "all_gather of nothing": lambda: group.allgather([], []),
        "all_gather of two types": lambda: group.allgather([[torch.ones(1, dtype=torch.float64)] * size], [one]),
        "all_gather_coalesced with an output of another length":
            lambda: dist.all_gather_coalesced(bad_list, [torch.ones(1)]),
        "all_gather_coalesced with too many lists":
            lambda: dist.all_gather_coalesced([[torch.ones(1)] for _ in range(size + 1)], [torch.ones(1)]),
    }
    for root in (-1, size):
        calls[f"broadcast from {root}"] = lambda r=root: group.broadcast([one], with_root(dist.BroadcastOptions(), r))
        calls[f"reduce to {root}"] = lambda r=root: group.reduce([one], with_root(dist.ReduceOptions(), r))
        calls[f"gather to {root}"] = lambda r=root: group.gather([], [one], with_root(dist.GatherOptions(), r))
        calls[f"scatter from {root}"] = lambda r=root: group.scatter([one], [], with_root(dist.ScatterOptions(), r))
    with Tally() as tally:
        for name, call in calls.items():
            tally.attempt(name, functools.partial(_refused, name, call))
    total = torch.ones(1)
    dist.all_reduce(total)
    same_bits(total, torch.full((1,), float(size)), "the sum after them")


def _refused(name: str, call) -> None:
    try:
        call()
    except RuntimeError:
        return
    raise AssertionError(f"{name} was taken")


@CELLS.cell("sparse all_reduce")
def sparse(rank: int, size: int) -> None:
    tensor = torch.sparse_coo_tensor([[rank, size]], [1.0, float(rank)], (size + 1,))
    dist.all_reduce(tensor)
    expected = torch.ones(size + 1)
    expected[size] = sum(range(size))
    same_bits(tensor.to_dense(), expected, "sum")


@CELLS.cell("barrier, and async")
def barrier(rank: int, size: int) -> None:
    """Nobody leaves before everybody has come: each adds to a counter in the store before it enters."""
    store = dist.distributed_c10d._get_default_store()
    for turn in range(5):
        store.add(f"barrier {turn}", 1)
        if turn % 2:
            dist.barrier()
        else:
            dist.barrier(async_op=True).wait()
        assert store.add(f"barrier {turn}", 0) == size, "a rank left before all had come"
    dist.barrier()
    if rank == 0:
        for turn in range(5):
            store.delete_key(f"barrier {turn}")


@CELLS.cell("a thousand operations in flight", quick=False)
def in_flight(rank: int, size: int) -> None:
    tensors = [torch.full((17,), float(rank + n)) for n in range(1000)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for n, work in enumerate(works):
        work.wait()
        same_bits(tensors[n], torch.full((17,), float(sum(r + n for r in range(size)))), f"operation {n}")
