"""DistributedDataParallel, its communication hooks, and the optimizers that go with it."""

from __future__ import annotations

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as local_sgd
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from cell import Theme
from cells.exact import (WIDTH, alone, batch, close, gradients, loss, network, same, same_parameters, sgd,
                         share, train)

CELLS = Theme("Data parallel")


def _trains_as_one_process(rank: int, size: int, **options) -> None:
    model = DistributedDataParallel(network(), **options)
    train(model, sgd(model), rank, size)
    same_parameters(model.module, alone(size))


def _one_gradient(model: nn.Module, rank: int, size: int, dtype: torch.dtype) -> None:
    inputs, weights = (share(tensor, rank, size) for tensor in batch(0, size, dtype))
    loss(model(inputs), weights).backward()


def _same_gradients(model: nn.Module, size: int, dtype: torch.dtype) -> None:
    expected = gradients(network(dtype), [batch(0, size, dtype)])
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        same(parameter.grad, gradient, "gradient")


@CELLS.cell("DDP")
def plain(rank: int, size: int) -> None:
    _trains_as_one_process(rank, size)


@CELLS.cell("DDP, several buckets")
def buckets(rank: int, size: int) -> None:
    _trains_as_one_process(rank, size, bucket_cap_mb=0.0005)


@CELLS.cell("DDP, gradient_as_bucket_view")
def bucket_view(rank: int, size: int) -> None:
    _trains_as_one_process(rank, size, gradient_as_bucket_view=True)


@CELLS.cell("DDP, static_graph")
def static_graph(rank: int, size: int) -> None:
    _trains_as_one_process(rank, size, static_graph=True)


@CELLS.cell("DDP, weights and buffers of rank 0")
def broadcasts(rank: int, size: int) -> None:
    model = nn.Sequential(network(), nn.BatchNorm1d(WIDTH, dtype=torch.float64))
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.fill_(rank + 7)
    wrapped = DistributedDataParallel(model)
    for name, tensor in model.state_dict().items():
        same(tensor, torch.full_like(tensor, 7), name)
    wrapped(batch(rank, 1)[0])  # Makes the running statistics of each rank its own ...
    wrapped(batch(0, 1)[0])  # ... which those of rank 0 replace before the next forward.
    mean = model[1].running_mean
    others = [torch.empty_like(mean) for _ in range(size)]
    wrapped.require_forward_param_sync = True
    wrapped._sync_buffers()
    dist.all_gather(others, mean)
    for other in others:
        same(other, others[0], "running mean")


def _all_reduce(group, bucket):
    """A user's hook: a chain of futures, one of which is completed by another."""
    first = dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future()
    return first.then(lambda done: done.value()[0] * 2).then(lambda done: done.value() / 2 / group.size())


@CELLS.cell("DDP hook: a function of the user's")
def python_hook(rank: int, size: int) -> None:
    model = DistributedDataParallel(network())
    model.register_comm_hook(dist.group.WORLD, _all_reduce)
    train(model, sgd(model), rank, size)
    same_parameters(model.module, alone(size))


@CELLS.cell("DDP hook: allreduce")
def all_reduce_hook(rank: int, size: int) -> None:
    model = DistributedDataParallel(network())
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    train(model, sgd(model), rank, size)
    same_parameters(model.module, alone(size))


@CELLS.cell("DDP hook: fp16_compress, bf16_compress")
def compression_hooks(rank: int, size: int) -> None:
    for hook in (default_hooks.fp16_compress_hook, default_hooks.bf16_compress_hook):
        model = DistributedDataParallel(network(torch.float32))
        model.register_comm_hook(None, hook)
        _one_gradient(model, rank, size, torch.float32)
        _same_gradients(model, size, torch.float32)


@CELLS.cell("DDP hook: built into C++ (ALLREDUCE, FP16_COMPRESS)")
def built_in_hooks(rank: int, size: int) -> None:
    for hook in (dist.BuiltinCommHookType.ALLREDUCE, dist.BuiltinCommHookType.FP16_COMPRESS):
        model = DistributedDataParallel(network(torch.float32))
        model._register_builtin_comm_hook(hook)
        _one_gradient(model, rank, size, torch.float32)
        _same_gradients(model, size, torch.float32)


@CELLS.cell("DDP hook: PowerSGD")
def power_sgd(rank: int, size: int) -> None:
    """Of full rank, PowerSGD is no approximation: each step's projection loses only roundings."""
    model = DistributedDataParallel(network())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=WIDTH, start_powerSGD_iter=2,
                                        min_compression_rate=0.1)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    reference = network()
    for step in range(4):
        rows = batch(step, size)
        inputs, weights = (share(tensor, rank, size) for tensor in rows)
        model.zero_grad()
        reference.zero_grad()
        loss(model(inputs), weights).backward()
        expected = gradients(reference, [rows])
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            # QR and two products of 8 x 8 for each of the steps so far, whose condition is that of a Gaussian
            # matrix: below 1e4 except once in a thousand draws, and the seed is fixed.
            close(parameter.grad, gradient, terms=int(1e4) * 4 * 3 * WIDTH, what=f"gradient of step {step}")
    assert state.compression_stats()[0] > 0, "nothing was compressed"


def _compressed_gradients(rank: int, size: int, wire: str, steps: int, error_feedback: bool) -> list[torch.Tensor]:
    """The sums over steps of gradients that went through blocks, and the same on every rank."""
    import sprat.torch  # gloo's cells run without

    model = DistributedDataParallel(network(torch.float32), bucket_cap_mb=0.0005)
    state = sprat.torch.BlockCompressState(wire=wire, error_feedback=error_feedback)
    model.register_comm_hook(state, sprat.torch.block_compress_hook)
    sums = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for _ in range(steps):
        model.zero_grad()
        _one_gradient(model, rank, size, torch.float32)
        for total, parameter in zip(sums, model.parameters(), strict=True):
            total += parameter.grad
    for total in sums:
        copies = [torch.empty_like(total) for _ in range(size)]
        dist.all_gather(copies, total)
        for copied in copies:
            same(copied, copies[0], "gradient of another rank")
    return sums


@CELLS.cell("DDP hook: blocks of i8, f8e4m3, f8e5m2 (sprat.torch.block_compress_hook)")
def block_compress(rank: int, size: int) -> None:
    """Each gradient within what two encodings of the largest lose, and of 20 steps within the same by feedback."""
    exact = gradients(network(torch.float32), [batch(0, size, torch.float32)])
    largest = max(float(share_of.abs().max()) for share_of in _largest_contributions(size))
    for wire, error in (("i8", 0.5 / 127), ("f8e4m3", 2.0**-4), ("f8e5m2", 2.0**-3)):
        bound = 2.5 * error * largest  # twice, and what the second adds to the first
        for steps, error_feedback in ((1, False), (20, True)):
            sums = _compressed_gradients(rank, size, wire, steps, error_feedback)
            for total, gradient in zip(sums, exact, strict=True):
                off = float((total - steps * gradient).abs().max())
                assert off <= bound * (2 if error_feedback else 1), f"{wire}, {steps} steps: off by {off}, not {bound}"


def _largest_contributions(size: int) -> list[torch.Tensor]:
    """Of each rank alone, all gradients in one tensor."""
    contributions = []
    for rank in range(size):
        inputs, weights = (share(tensor, rank, size) for tensor in batch(0, size, torch.float32))
        model = network(torch.float32)
        loss(model(inputs), weights).backward()
        contributions.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    return contributions


@CELLS.cell("DDP hook: a NaN in a block (sprat.torch.block_compress_hook)")
def block_compress_nan(rank: int, size: int) -> None:
    import sprat.torch

    model = DistributedDataParallel(network(torch.float32))
    model.register_comm_hook(sprat.torch.BlockCompressState(), sprat.torch.block_compress_hook)
    inputs, weights = (share(tensor, rank, size) for tensor in batch(0, size, torch.float32))
    (loss(model(inputs), weights) * (float("nan") if rank == 1 else 1)).backward()
    for parameter in model.parameters():
        assert parameter.grad.isnan().any(), "a gradient that lost its NaN"
    model.zero_grad()
    _one_gradient(model, rank, size, torch.float32)
    for parameter in model.parameters():
        assert parameter.grad.isfinite().all(), "a residual kept the NaN"


@CELLS.cell("DDP, join with uneven inputs")
def join(rank: int, size: int) -> None:
    """Rank r has r + 1 batches; a step's gradient is the sum over who still has one, divided by all."""
    model = DistributedDataParallel(network())
    optimizer = sgd(model)
    with model.join(divide_by_initial_world_size=True):
        for step in range(min(rank + 1, 2)):
            inputs, weights = (share(tensor, rank, size) for tensor in batch(step, size))
            loss(model(inputs), weights).backward()
            optimizer.step()
            optimizer.zero_grad()
    expected = network()
    optimizer = sgd(expected)
    for step in range(2):
        for late in range(size):
            if step < min(late + 1, 2):
                inputs, weights = (share(tensor, late, size) for tensor in batch(step, size))
                (loss(expected(inputs), weights) / size).backward()
        optimizer.step()
        optimizer.zero_grad()
    same_parameters(model.module, expected)


class _Forked(nn.Module):
    """Uses one of two blocks, as it is told."""

    def __init__(self):
        super().__init__()
        self.blocks = network(blocks=2)

    def forward(self, x: torch.Tensor, which: int) -> torch.Tensor:
        return self.blocks[which](x)


@CELLS.cell("DDP, find_unused_parameters")
def unused(rank: int, size: int) -> None:
    model = DistributedDataParallel(_Forked(), find_unused_parameters=True)
    inputs, weights = batch(0, size)
    mine = (share(inputs, rank, size), share(weights, rank, size))
    loss(model(mine[0], rank % 2), mine[1]).backward()
    expected = _Forked()
    for other in range(size):
        part = loss(expected(share(inputs, other, size), other % 2), share(weights, other, size))
        (part / size).backward()
    for ours, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        same(ours.grad, theirs.grad, "gradient")


@CELLS.cell("DDP, no_sync")
def no_sync(rank: int, size: int) -> None:
    model = DistributedDataParallel(network())
    rows = [batch(step, size) for step in range(3)]
    mine = [tuple(share(tensor, rank, size) for tensor in pair) for pair in rows]
    with model.no_sync():
        for inputs, weights in mine[:2]:
            loss(model(inputs), weights).backward()
    loss(model(mine[2][0]), mine[2][1]).backward()
    for parameter, gradient in zip(model.parameters(), gradients(network(), rows), strict=True):
        same(parameter.grad, gradient, "gradient")


@CELLS.cell("DDP on a group of some ranks", sizes=(4,))
def on_a_group(rank: int, size: int) -> None:
    pair = dist.new_subgroups(group_size=2)[0]
    model = DistributedDataParallel(network(), process_group=pair)
    train(model, sgd(model), rank % 2, 2)
    same_parameters(model.module, alone(2))


@CELLS.cell("Local SGD (PostLocalSGDOptimizer, PeriodicModelAverager)")
def post_local_sgd(rank: int, size: int) -> None:
    """No warm-up and a period of one: the mean of the ranks' parameters after each step."""
    model = DistributedDataParallel(network())
    state = local_sgd.PostLocalSGDState(process_group=None, subgroup=None, start_localSGD_iter=0,
                                        post_local_gradient_allreduce=False)
    model.register_comm_hook(state, local_sgd.post_localSGD_hook)
    averager = PeriodicModelAverager(period=1, warmup_steps=0)
    train(model, PostLocalSGDOptimizer(sgd(model), averager), rank, size)
    same_parameters(model.module, alone(size))  # With a linear step, the mean of steps is the step of the mean.


@CELLS.cell("ZeroRedundancyOptimizer")
def zero(rank: int, size: int) -> None:
    for as_buckets in (False, True):
        model = DistributedDataParallel(network())
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.125, momentum=0.5,
                                            parameters_as_bucket_view=as_buckets)
        train(model, optimizer, rank, size)
        expected = network()
        train_alone = torch.optim.SGD(expected.parameters(), lr=0.125, momentum=0.5)
        train(expected, train_alone, 0, 1, shares=size)
        same_parameters(model.module, expected)
        optimizer.consolidate_state_dict(to=size - 1)
        if rank == size - 1:
            ours, theirs = optimizer.state_dict()["state"], train_alone.state_dict()["state"]
            for key in theirs:
                same(ours[key]["momentum_buffer"], theirs[key]["momentum_buffer"], f"momentum {key}")


@CELLS.cell("ZeroRedundancyOptimizer and DDP, join with uneven inputs")
def zero_join(rank: int, size: int) -> None:
    model = DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.125)
    steps = 2 if rank == 0 else 1
    with Join([model, optimizer]):
        for step in range(steps):
            inputs, weights = (share(tensor, rank, size) for tensor in batch(step, size))
            loss(model(inputs), weights).backward()
            optimizer.step()
            optimizer.zero_grad()
    everybody = [torch.empty_like(p) for p in model.parameters() for _ in range(size)]
    for number, parameter in enumerate(model.parameters()):
        copies = everybody[number * size:(number + 1) * size]
        dist.all_gather(copies, parameter.detach())
        for copy_ in copies:
            same(copy_, copies[0], "parameter")


@CELLS.cell("DDP, a model twice in two groups", quick=False)
def two_wrappers(rank: int, size: int) -> None:
    """Backward passes of two wrapped models, whose buckets interleave, in groups of the same ranks."""
    first = DistributedDataParallel(network(), process_group=dist.new_group())
    second = DistributedDataParallel(copy.deepcopy(network()), process_group=dist.new_group())
    inputs, weights = (share(tensor, rank, size) for tensor in batch(0, size))
    (loss(first(inputs), weights) + loss(second(inputs), weights)).backward()
    _same_gradients(first, size, torch.float64)
    _same_gradients(second, size, torch.float64)
