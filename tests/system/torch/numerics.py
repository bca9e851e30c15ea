"""Trains a small GPT on real text over ranks and in one process, and compares losses and parameters."""

from __future__ import annotations

import functools
import gzip
import hashlib
import sys
from typing import NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from launch import Ranks

TEXT = "/usr/share/doc/jargon-text/jargon.txt.gz"  # Debian's package jargon-text.
STEPS, ROWS, LENGTH = 20, 8, 32
WIDTH, HEAD, LAYERS = 32, 8, 2

# The bounds of relative error by type: at the first step, and at the last (None: not compared, for training
# multiplies what rounding began).
BOUNDS = {torch.float64: (1e-12, 1e-8), torch.float32: (1e-5, None)}


class Attention(nn.Module):
    """Causal attention over as many heads as the layers' outputs hold."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [layer(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for layer in (self.query, self.key, self.value)]
        return self.out(F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a layer of 4 x WIDTH, each after a norm."""

    def __init__(self):
        super().__init__()
        self.attention, self.norm, self.norm2 = Attention(), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Predicts the next byte."""

    def __init__(self):
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.bytes(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


@functools.lru_cache
def text() -> torch.Tensor:
    """Bytes of English, or of a seeded source where the package is absent."""
    try:
        with gzip.open(TEXT) as file:
            return torch.tensor(list(file.read(100_000)))
    except OSError:
        return torch.randint(32, 127, (100_000,), generator=torch.Generator().manual_seed(1))


def batch(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    starts = torch.randint(0, len(text()) - LENGTH - 1, (ROWS,), generator=generator)
    return torch.stack([text()[start:start + LENGTH + 1] for start in starts])


def plain_model(dtype: torch.dtype) -> Gpt:
    torch.manual_seed(42)
    return Gpt().to(dtype)


def ddp(dtype: torch.dtype, size: int) -> nn.Module:
    return DistributedDataParallel(plain_model(dtype))


def _shard(dtype: torch.dtype, mesh) -> nn.Module:
    model = plain_model(dtype)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def fsdp2(dtype: torch.dtype, size: int) -> nn.Module:
    return _shard(dtype, init_device_mesh("cpu", (size,)))


def fsdp2_overlap(dtype: torch.dtype, size: int) -> nn.Module:
    import sprat.torch

    model = fsdp2(dtype, size)
    sprat.torch.overlap(model)
    return model


def hsdp(dtype: torch.dtype, size: int) -> nn.Module:
    return _shard(dtype, init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard")))


def tensor_parallel(dtype: torch.dtype, size: int) -> nn.Module:
    model, mesh = plain_model(dtype), init_device_mesh("cpu", (size,))
    for block in model.blocks:
        parallelize_module(block, mesh, {
            "attention.query": ColwiseParallel(), "attention.key": ColwiseParallel(),
            "attention.value": ColwiseParallel(), "attention.out": RowwiseParallel(),
            "up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


class Mode(NamedTuple):
    """A way to train over ranks."""

    name: str
    build: object  # (dtype, ranks) -> module
    splits_rows: bool = True  # Whether each rank has its share of a batch, or all of it.
    sizes: tuple[int, ...] = (2, 4)
    backends: tuple[str, ...] = ("gloo", "sprat")


MODES = (Mode("DDP", ddp), Mode("FSDP2", fsdp2), Mode("FSDP2, overlap", fsdp2_overlap, backends=("sprat",)),
         Mode("HSDP", hsdp, sizes=(4,)), Mode("tensor parallel", tensor_parallel, splits_rows=False))


class Trace(NamedTuple):
    """What a training leaves: losses, parameters after the first step and after the last."""

    losses: list[float]
    first: list[torch.Tensor]
    last: list[torch.Tensor]


def train(model: nn.Module, steps: int, rank: int = 0, size: int = 1) -> Trace:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, first = [], []
    for step in range(steps):
        rows = batch(step).chunk(size)[rank]
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        if size > 1:
            dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(mean.item())
        first = first or _whole(model)
    return Trace(losses, first, _whole(model))


def _whole(model: nn.Module) -> list[torch.Tensor]:
    return [(p.full_tensor() if hasattr(p, "full_tensor") else p).detach().clone() for p in model.parameters()]


def _distance(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """Of the two vectors of all parameters, relative to the length of theirs."""
    a, b = (torch.cat([t.flatten().double() for t in tensors]) for tensors in (ours, theirs))
    return ((a - b).norm() / b.norm()).item()


class Errors(NamedTuple):
    """Relative errors against one process, and a digest of every bit of losses and parameters."""

    first: float
    last: float
    digest: str


def compare(mode_name: str, dtype: torch.dtype, steps: int, rank: int, size: int) -> Errors:
    """Runs on every rank; rank 0 also trains alone."""
    mode = next(mode for mode in MODES if mode.name == mode_name)
    parts = size if mode.splits_rows else 1
    ours = train(mode.build(dtype, size), steps, rank % parts, parts)
    raw = b"".join(t.contiguous().view(torch.uint8).numpy().tobytes() for t in ours.last)
    digest = hashlib.sha256(repr(ours.losses).encode() + raw).hexdigest()
    if rank:
        return Errors(0, 0, digest)
    theirs = train(plain_model(dtype), steps)
    loss_errors = [abs(a - b) / b for a, b in zip(ours.losses, theirs.losses, strict=True)]
    return Errors(max(loss_errors[0], _distance(ours.first, theirs.first)),
                  max(loss_errors[-1], _distance(ours.last, theirs.last)), digest)


class Line(NamedTuple):
    """One line of the printed table."""

    mode: str
    dtype: str
    ranks: int
    first: float
    last: float
    identical: bool
    failure: str


def _judge(mode: str, dtype: torch.dtype, ranks: int, runs: list[list[Errors]]) -> Line:
    first, last = runs[0][0].first, runs[0][0].last
    digests = {errors.digest for run in runs for errors in run}
    bound_first, bound_last = BOUNDS[dtype]
    failures = []
    if not first <= bound_first:
        failures.append(f"step 1 is off by {first:.1e}, more than {bound_first:.0e}")
    if bound_last is not None and not last <= bound_last:
        failures.append(f"the last step is off by {last:.1e}, more than {bound_last:.0e}")
    if len(digests) > 1:
        failures.append("ranks or runs differ in bits")
    name = str(dtype).removeprefix("torch.")
    return Line(mode, name, ranks, first, last, len(digests) == 1, "; ".join(failures))


def run(backend: str, sizes: list[int], steps: int = STEPS) -> list[Line]:
    """Every mode with every type, in two launches each."""
    lines = []
    for size in sizes:
        modes = [m for m in MODES if size in m.sizes and backend in m.backends]
        tasks = [(mode.name, dtype) for mode in modes for dtype in BOUNDS]
        launches = [_launch(backend, size, tasks, steps) for _ in range(2)]
        for number, (mode, dtype) in enumerate(tasks):
            runs = [launch[number] for launch in launches]
            error = next((text for run_, text in runs if text), "")
            if error:
                lines.append(Line(mode, str(dtype)[6:], size, 0, 0, False, error))
            else:
                lines.append(_judge(mode, dtype, size, [errors for errors, _ in runs]))
            print(f"{backend} {size} ranks  {mode}, {lines[-1].dtype}: {lines[-1].failure or 'ok'}",
                  file=sys.stderr, flush=True)
    return lines


def _launch(backend: str, size: int, tasks: list[tuple[str, torch.dtype]], steps: int):
    ranks = Ranks(backend, size)
    results = []
    for mode, dtype in tasks:
        reports = ranks.run(functools.partial(compare, mode, dtype, steps), deadline=120)
        error = next((f"rank {r}: {report.error}" for r, report in enumerate(reports) if report.error), "")
        results.append(([report.value for report in reports], error))
        if error:
            ranks.kill()
            ranks = Ranks(backend, size)
    ranks.leave()
    return results


def table(lines: list[Line], steps: int = STEPS) -> str:
    head = f"{'':18}{'type':10}{'ranks':>6}{'step 1':>11}{f'step {steps}':>11}   two runs"
    body = [f"{line.mode:18}{line.dtype:10}{line.ranks:6}{line.first:11.1e}{line.last:11.1e}   "
            f"{'identical' if line.identical else 'DIFFER'}{'   FAILED: ' + line.failure if line.failure else ''}"
            for line in lines]
    return "\n".join([head, *body])
