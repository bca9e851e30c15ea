"""Tests of SMP's optimizer, checkpoints and loss scales over processes.

Use: python tests/system/torch/smp/state_test.py. Needs torch and sprat.torch.
"""

from __future__ import annotations

import functools
import os
import pathlib
import sys
import tempfile
import unittest
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
from launch import values_of
from torch import nn
from torch.distributed.fsdp import fully_shard
from split_test import Block, Net, batch, loss_of, micro_batches, said, start, step_of
from tensor_test import close

MICROBATCHES = 4


def model_and_optimizer(smp: Any, degree: int, **options: Any) -> tuple[Any, Any]:
    model = smp.DistributedModel(Net(smp.partition, degree))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    return model, smp.DistributedOptimizer(optimizer, **options)


def steps(smp: Any, model: Any, optimizer: Any, numbers: range, clip: float = 0) -> list:
    """Losses of each micro-batch, and norms of gradients where they are clipped."""
    train, told = step_of(smp), []
    replicas = smp.dp_size()
    for number in numbers:
        optimizer.zero_grad()
        told += train(model, *batch(number * replicas + smp.dp_rank())).outputs
        if clip:
            told.append(torch.tensor(optimizer.clip_master_grads(clip), dtype=torch.float64))
        optimizer.step()
    return told


def whole(model: Any, optimizer: Any) -> dict[str, torch.Tensor]:
    """Everything that training changes, on every rank."""
    found = dict(model.state_dict(gather_to_rank0=False))
    for name, one in optimizer.state_dict(gather_to_rank0=False)["state"].items():
        found |= {f"{name} {key}": value for key, value in one.items()}
    return found


def trains_and_saves(folder: str, pipeline: int, partial: bool, sharded: bool,
                     rank: int, size: int) -> Any:
    """Three steps, a checkpoint, three more: losses and the state at the end."""
    smp = start(pipeline, MICROBATCHES, shard_optimizer_state=sharded)
    model, optimizer = model_and_optimizer(smp, pipeline)
    torch.manual_seed(2)
    steps(smp, model, optimizer, range(3), clip=0.5)
    smp.save_checkpoint(folder, "three", partial=partial, user_content={"steps": 3})
    losses = steps(smp, model, optimizer, range(3, 6), clip=0.5)
    return losses, whole(model, optimizer)


def resumes(folder: str, pipeline: int, partial: bool, sharded: bool, auto: bool,
            rank: int, size: int) -> Any:
    """The last three steps from the checkpoint, in a model of other values."""
    smp = start(pipeline, MICROBATCHES, shard_optimizer_state=sharded, auto_partition=auto)
    torch.manual_seed(77)
    model, optimizer = model_and_optimizer(smp, pipeline)
    content = smp.resume_from_checkpoint(folder, partial=partial)
    losses = steps(smp, model, optimizer, range(content["steps"], 6), clip=0.5)
    return losses, whole(model, optimizer)


def plain(rank: int, size: int) -> tuple[list, dict]:
    """Six steps on one rank, as trains_and_saves() takes them; what the last three give."""
    import sprat.torch.smp as smp

    torch.manual_seed(1)
    model = Net(smp.partition, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    torch.manual_seed(2)
    told = []
    for number in range(6):
        optimizer.zero_grad()
        for w, t in micro_batches(number, MICROBATCHES):
            loss = loss_of(model(w), t)
            loss.backward()
            told.append(loss.detach())
        squares = []
        for one in model.parameters():
            one.grad /= MICROBATCHES
            norm = torch.linalg.vector_norm(one.grad, dtype=torch.float64)
            squares.append(norm * norm)
        norm = float(torch.stack(squares).sum().sqrt())
        told.append(torch.tensor(norm, dtype=torch.float64))
        if norm > 0.5:
            for one in model.parameters():
                one.grad.mul_(0.5 / (norm + 1e-6))
        optimizer.step()
    state = model.state_dict()
    for name, one in model.named_parameters():
        state |= {f"{name} {key}": value for key, value in optimizer.state[one].items()}
    return told[3 * (MICROBATCHES + 1):], state


def cannot_write(folder: str, rank: int, size: int) -> str:
    """Rank 1 has no folder there; the next checkpoint elsewhere is written."""
    smp = start(size, MICROBATCHES)
    model, optimizer = model_and_optimizer(smp, size)
    steps(smp, model, optimizer, range(1))
    mine = pathlib.Path(folder) / str(rank)
    mine.mkdir()
    if rank == 1:
        (mine / "a").write_text("a file in the way")
    error = said(lambda: smp.save_checkpoint(mine / "a", "one"))
    left = [path for path in mine.rglob("*") if path.is_file() and path.name != "a"]
    smp.save_checkpoint(folder, "two", num_kept_partial_checkpoints=1)
    smp.save_checkpoint(folder, "three", num_kept_partial_checkpoints=1)
    kept = sorted(path.name for path in pathlib.Path(folder).glob("*_partial"))
    return f"{error} | {left} | {kept}"


def damaged(folder: str, rank: int, size: int) -> list[str]:
    """What is said of checkpoints that are not whole."""
    smp = start(size, MICROBATCHES)
    model, optimizer = model_and_optimizer(smp, size)
    steps(smp, model, optimizer, range(1))
    told = [said(lambda: smp.resume_from_checkpoint(folder))]
    for tag in ("one", "two"):
        smp.save_checkpoint(folder, tag)
    place = pathlib.Path(folder)
    smp.barrier()
    if rank == 0:
        os.replace(place / "one_partial/model_1_0.pt", place / "two_partial/model_1_0.pt")
    smp.barrier()
    for tag in ("one", "two", "three"):
        told.append(said(lambda: smp.resume_from_checkpoint(folder, tag)))
    told.append(said(lambda: smp.save_checkpoint(folder, "a/b")))
    return told


def saves_and_loads_objects(folder: str, rank: int, size: int) -> Any:
    smp = start(size, MICROBATCHES)
    smp.save({"rank": rank}, f"{folder}/part")
    smp.save({"rank": rank}, f"{folder}/one", partial=False)
    smp.barrier()
    found = sorted(path.name for path in pathlib.Path(folder).iterdir())
    return found, smp.load(f"{folder}/part"), smp.load(f"{folder}/one", partial=False)


def plain_state_loads(rank: int, size: int) -> str:
    """A plain optimizer's state, which counts parameters."""
    smp = start(size, MICROBATCHES)
    alone = Net(smp.partition, size)
    optimizer = torch.optim.AdamW(alone.parameters(), lr=0.5)
    loss_of(alone(batch(0)[0]), batch(0)[1]).backward()
    optimizer.step()
    model, distributed = model_and_optimizer(smp, size)
    distributed.load_state_dict(optimizer.state_dict())
    model.split(lambda: None)
    got = distributed.state_dict(gather_to_rank0=False)
    for name, one in alone.named_parameters():
        for key, value in optimizer.state[one].items():
            if not torch.equal(got["state"][name][key], value):
                return f"{name} {key}"
    return str(got["param_groups"][0]["lr"])


def scaled(infinite_at: int, rank: int, size: int) -> Any:
    """smp.amp.GradScaler under autocast; one step's gradients are infinite on one rank alone."""
    smp = start(size, 2)
    model, optimizer = model_and_optimizer(smp, size)
    scaler = smp.amp.GradScaler(init_scale=1024.0, growth_interval=2)

    @smp.step
    def train(model: Any, words: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model(words), targets)
        model.backward(scaler.scale(loss))
        return loss

    told = []
    for number in range(4):
        optimizer.zero_grad()
        train(model, *batch(number))
        if number == infinite_at and rank == size - 1:
            next(model.local_parameters()).grad.view(-1)[0] = float("inf")
        before = [one.clone() for one in model.local_parameters()]
        scaler.step(optimizer)
        scaler.update()
        changed = any(not torch.equal(*pair) for pair in zip(before, model.local_parameters()))
        told.append((changed, scaler.get_scale()))
    return told


def half(rank: int, size: int) -> Any:
    """fp16 with a scale that overflows at first; values, types and the scale of each step."""
    smp = start(size, 2, fp16=True)
    model, optimizer = model_and_optimizer(
        smp, size, dynamic_loss_scale=True,
        dynamic_loss_args={"init_scale": 2.0**24, "scale_window": 3})
    train, scales, losses = step_of(smp), [], []
    for number in range(30):
        optimizer.zero_grad()
        losses.append(train(model, *batch(0)).reduce_mean().item())
        scales.append(optimizer.loss_scaler.scale)
        optimizer.clip_master_grads(1.0)
        optimizer.step()
    types = {str(one.dtype) for one in model.local_parameters()}
    masters = {str(one.dtype) for one in optimizer.state_dict(False)["masters"].values()}
    return types, masters, scales, losses


def half_beside_frozen(rank: int, size: int) -> Any:
    """fp16 where the last stage is frozen, and so its rank updates nothing: scales, norms, what step() left out."""
    smp = start(size, 2, fp16=True)
    net = Net(smp.partition, size)
    for part in (*net.blocks[2:], net.around.before, net.around.after):
        part.requires_grad_(False)
    model = smp.DistributedModel(net)
    optimizer = smp.DistributedOptimizer(
        torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1), dynamic_loss_scale=True,
        dynamic_loss_args={"init_scale": 2.0**24, "scale_window": 100})
    train, told = step_of(smp), []
    for _ in range(16):
        optimizer.zero_grad()
        train(model, *batch(0))
        norm = optimizer.clip_master_grads(1.0)
        optimizer.step()
        told.append((optimizer.loss_scaler.scale, norm, optimizer.overflow))
    return len(optimizer.param_groups[0]["params"]) > 0, told


def shared(folder: str, pipeline: int, partial: bool, shares: int, rank: int, size: int) -> Any:
    """As trains_and_saves() and then resumes(), with parameters that replicas share; f32 sums differ."""
    found = []
    for begin in (0, 3):
        smp = start(pipeline, MICROBATCHES, sharded_data_parallel_degree=shares,
                    sdp_gradient_clipping=0.5)
        torch.manual_seed(1 if begin == 0 else 77)
        model, optimizer = model_and_optimizer(smp, pipeline)
        torch.manual_seed(2)
        if begin:
            smp.resume_from_checkpoint(folder, partial=partial)
        found += steps(smp, model, optimizer, range(begin, begin + 3))
        if not begin:
            smp.save_checkpoint(folder, "three", partial=partial)
    with torch.no_grad():
        model(batch(9)[0])
    resident = sum(one.untyped_storage().nbytes() for one in model.local_parameters())
    held = sum(one.numel() * 4 for one in optimizer.optimizer.param_groups[0]["params"])
    return found, whole(model, optimizer), resident, held


class Zigzag(nn.Module):
    """Blocks by turns on two ranks: a backward waits for the other rank behind a block of its own."""

    def __init__(self, partition: Any, ranks: int):
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, 16), nn.Linear(16, 11)
        self.blocks = nn.ModuleList()
        for index in range(4):
            with partition(index % ranks):
                self.blocks.append(Block())

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words)
        for block in self.blocks:
            x = block(x)["x"]
        return self.head(x)


def by_blocks(pipeline: int, shares: int, at: str, rank: int, size: int) -> list:
    """Of two models: losses, the state, what a block's parameters are behind its forward, and whole ones."""
    found = []
    for net in (Net, Zigzag):
        smp = start(pipeline, MICROBATCHES, sharded_data_parallel_degree=shares, sdp_gradient_clipping=0.5,
                    active_microbatches=2, static_mode=False)
        torch.manual_seed(1)
        model = smp.DistributedModel(net(smp.partition, pipeline), shard_at=at)
        optimizer = smp.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        torch.manual_seed(2)
        losses, kinds = [], set()

        @smp.step
        def train(model: Any, words: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            loss = loss_of(model(words), targets)
            kinds.update(type(one).__name__ for block in model.module.blocks[:1] for one in block.parameters())
            model.backward(loss)
            return loss

        for number in range(4):
            optimizer.zero_grad()
            losses += train(model, *batch(number * smp.dp_size() + smp.dp_rank())).outputs
            if shares == 1:
                optimizer.clip_master_grads(0.5)
            optimizer.step()
        with model.whole_parameters():
            numbers = [one.detach().clone() for one in model.local_parameters()]
        found.append((losses, whole(model, optimizer), kinds, numbers))
    return found


def whole_ones(pipeline: int, rank: int, size: int) -> Any:
    """What shared() gives, where each replica has all parameters."""
    smp = start(pipeline, MICROBATCHES)
    model, optimizer = model_and_optimizer(smp, pipeline)
    torch.manual_seed(2)
    held = sum(one.numel() * 4 for one in model.parameters())
    losses = [one for one in steps(smp, model, optimizer, range(6), clip=0.5) if one.dtype == torch.float32]
    return losses, whole(model, optimizer), held


def half_shares(divides: str, rank: int, size: int) -> Any:
    """fp16 whose overflow one replica alone sees: that of a part that another has not."""
    smp = start(1, 2, fp16=True, **{divides: size if divides.endswith("degree") else True})
    model, optimizer = model_and_optimizer(smp, 1, static_loss_scale=8.0)
    train, told = step_of(smp), []
    for number in range(3):
        optimizer.zero_grad()
        train(model, *batch(0))
        parts = list(model.shards.own.values()) if model.shards else list(model.parameters())
        if number == 1 and rank == 0:
            updated = {id(one) for one, _ in optimizer._masters.pairs}
            next(one for one in parts if id(one) in updated).grad.view(-1)[0] = float("inf")
        before = optimizer.state_dict(False)["masters"]
        optimizer.step()
        after = optimizer.state_dict(False)["masters"]
        told.append(any(not torch.equal(before[name], after[name]) for name in before))
    return told


def lamb_of_shares(rank: int, size: int) -> str:
    smp = start(1, 2, sharded_data_parallel_degree=size)
    model = smp.DistributedModel(Net(smp.partition, 1))
    return said(lambda: smp.DistributedOptimizer(smp.optimizers.FusedLamb(model.parameters())))


def sharded_by_pytorch(rank: int, size: int) -> str:
    smp = start(1, 2)
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    fully_shard(net[1])
    return said(lambda: smp.DistributedModel(net))


def plain_optimizer_of_shares(rank: int, size: int) -> str:
    smp = start(1, MICROBATCHES, sharded_data_parallel_degree=size)
    model = smp.DistributedModel(Net(smp.partition, 1))
    torch.optim.SGD(model.parameters(), lr=0.1)
    return said(lambda: step_of(smp)(model, *batch(0)))


# What does not go with shard_at = "blocks": settings, arguments of the model, what is called, and the sentence.
BESIDE_BLOCKS = (
    ({}, {"shard_at": "rows"}, None, "shard_at = 'rows': take step or blocks"),
    ({}, {"split_at": "operations"}, None, "with split_at = 'operations': take shard_at = 'step'"),
    ({"fp16": True}, {}, None, "with fp16: take shard_at = 'step'"),
    ({"static_mode": True}, {}, "step", "blocks are gathered when they begin: leave static_mode out"),
    ({}, {}, "join", "join goes with shard_at = 'step': a replica without batches begins no block"),
    ({}, {}, "comm hook", "register_comm_hook goes with whole parameters: set sharded_data_parallel_degree to 1"),
)


def beside_blocks(rank: int, size: int) -> list[str]:
    found = []
    for settings, arguments, calls, _ in BESIDE_BLOCKS:
        smp = start(2, MICROBATCHES, sharded_data_parallel_degree=2, **settings)

        def refused() -> None:
            model = smp.DistributedModel(Net(smp.partition, 2), **{"shard_at": "blocks", **arguments})
            smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
            if calls == "comm hook":
                model.register_comm_hook(None, lambda _, bucket: bucket)
            if calls is not None:
                step_of(smp)(model, *batch(smp.dp_rank()))
            if calls == "join":
                model.join()

        found.append(said(refused))
    return found


def as_sagemaker_has_it(rank: int, size: int) -> Any:
    """What AWS's scripts do: a hook with the optimizer, scales without fp16, evaluation in a step."""
    smp = start(size, 2, fast_mode=False, static_mode=False)
    net = Net(smp.partition, 1)
    smp.set_partition(net.blocks[3], size - 1)
    model, seen = smp.DistributedModel(net), []
    optimizer = smp.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), static_loss_scale=None, dynamic_loss_scale=True,
        dynamic_loss_args={"scale_window": 1000, "min_scale": 1, "delayed_shift": 2})
    model.register_post_partition_hook(lambda model, optimizer: seen.append(type(optimizer).__name__))

    @smp.step
    def evaluate(model: Any, words: torch.Tensor) -> torch.Tensor:
        return model(words).sum()

    # Rank 0 reads the data.
    step_of(smp)(model, *(batch(0) if rank == 0 else (torch.Tensor(0), torch.Tensor(0))))
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        parts = len(evaluate(model, batch(1)[0]))
    gradients = [one.grad for one in model.parameters() if one.grad is not None]
    owner = model.assignment["blocks.3"]
    return seen, parts, len(gradients), optimizer.overflow, owner, model.get_module() is net


def uneven(rank: int, size: int) -> Any:
    """Two replicas, of which the second has one batch more, and a step of both behind it; parameters at the end."""
    smp = start(1, 2)
    model = smp.DistributedModel(Net(smp.partition, 1).eval())
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    train = step_of(smp)
    train(model, *batch(0))
    with model.join():
        for number in range(3 + rank):
            optimizer.zero_grad()
            train(model, *batch(number))
            optimizer.step()
    optimizer.zero_grad()
    train(model, *batch(rank))
    optimizer.step()
    return model.state_dict()


def compressed(rank: int, size: int) -> Any:
    """Gradients by a hook of DistributedDataParallel, and without it."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, bf16_compress_hook

    found = []
    for hook in (None, allreduce_hook, bf16_compress_hook):
        smp = start(1, 2)
        model = smp.DistributedModel(Net(smp.partition, 1).eval(), bucket_cap_mb=0.002)
        if hook:
            model.register_comm_hook(smp.get_dp_process_group(), hook)
        step_of(smp)(model, *batch(rank))
        found.append([one.grad for one in model.parameters()])
    same = all(map(torch.equal, found[0], found[1]))
    rounded = max(float(((a - b).abs() / b.abs().max()).max()) for a, b in zip(found[2], found[0]))
    return same, rounded


def parts_loaded_first(folder: str, rank: int, size: int) -> list[str]:
    """Each rank's part, saved and loaded into a model that is not split yet, as SMP's pages have it: what differs."""
    smp = start(size, 2)
    model, optimizer = model_and_optimizer(smp, size)
    steps(smp, model, optimizer, range(2))
    saved = {"model": model.local_state_dict(), "optimizer": optimizer.local_state_dict()}
    smp.save(saved, os.path.join(folder, "part.pt"), partial=True, pickle_protocol=4)
    want = whole(model, optimizer)
    smp = start(size, 2)
    torch.manual_seed(7)
    model, optimizer = model_and_optimizer(smp, size)
    read = smp.load(os.path.join(folder, "part.pt"), map_location="cpu", partial=True)
    model.load_state_dict(read["model"])
    optimizer.load_state_dict(read["optimizer"])
    with torch.no_grad():
        model(batch(0)[0])  # splits it
    got = whole(model, optimizer)
    marked = all("_smp_is_partial" in part for part in saved.values())
    return [key for key in want if not torch.equal(want[key], got[key])] + ["no mark"] * (not marked)


class Telling(nn.Module):
    """Notes whether it runs to be traced."""

    def __init__(self, notes: list[bool]):
        super().__init__()
        self.first, self.second, self.notes = nn.Embedding(11, 4), nn.Linear(4, 11), notes

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        import sprat.torch.smp as smp

        self.notes.append(smp.is_tracing())
        return self.second(self.first(words))


def what_a_program_asks(rank: int, size: int) -> Any:
    """Of a model before and in its first step; which hooks were called."""
    smp = start(size, 2, auto_partition=True, static_mode=False)
    notes: list[bool] = []
    model, called = smp.DistributedModel(Telling(notes)), []
    model.register_post_partition_hook(lambda model: called.append("removed")).remove()
    model.register_post_partition_hook(lambda model: called.append("kept"))
    before = model.partitioned
    step_of(smp)(model, *batch(0))
    buffers = [model.is_distributed_buffer(torch.ones(1)), model.is_scaled_batch_buffer(torch.ones(1))]
    return smp.is_initialized(), before, model.partitioned, called, notes, buffers, smp.is_tracing()


def copied(rank: int, size: int) -> Any:
    """model.cpu(): the plain module is whole on every rank."""
    smp = start(size, 2)
    model, optimizer = model_and_optimizer(smp, size)
    steps(smp, model, optimizer, range(1))
    return dict(model.cpu().module.state_dict())


def within(rank: int, size: int) -> Any:
    """The state of a module around a split one, and of that one with a prefix; the plain names."""
    smp = start(size, 2)
    model, optimizer = model_and_optimizer(smp, size)
    steps(smp, model, optimizer, range(1))
    around = nn.ModuleDict({"inner": model, "head": nn.Linear(2, 2)})
    return sorted(around.state_dict()), sorted(model.state_dict(prefix="a.")), sorted(model.state_dict())


class State(unittest.TestCase):
    def equal(self, got: Any, want: Any) -> None:
        for one, other in zip(got[0], want[0], strict=True):
            self.assertTrue(torch.equal(one, other), f"{one} {other}")
        self.assertEqual(sorted(got[1]), sorted(want[1]))
        for key, value in want[1].items():
            self.assertTrue(torch.equal(got[1][key], value), key)

    def test_three_and_three_steps_are_six(self):
        """Losses, norms, parameters and optimizer state, bit by bit, under the same and other cuts."""
        alone = values_of(1, plain)[0]
        for partial in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                saved = values_of(2, functools.partial(trains_and_saves, folder, 2, partial, False))
                self.equal(saved[0], alone)
                for size, auto in ((2, False), (2, True), (1, False), (4, False)):
                    with self.subTest(partial=partial, ranks=size, auto=auto):
                        task = functools.partial(resumes, folder, size, partial, False, auto)
                        for one in values_of(size, task):
                            self.equal(one, alone)

    def test_divided_optimizer_state_changes_no_bit(self):
        """Two replicas of a pipeline of two, each parameter updated by one of them."""
        with tempfile.TemporaryDirectory() as folder:
            whole_ones = values_of(4, functools.partial(trains_and_saves, folder, 2, True, False))
        for partial in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                task = functools.partial(trains_and_saves, folder, 2, partial, True)
                for one, want in zip(values_of(4, task), whole_ones):
                    self.equal(one[:2], want[:2])
                task = functools.partial(resumes, folder, 2, partial, True, False)
                for one, want in zip(values_of(4, task), whole_ones):
                    self.equal(one[:2], want[:2])

    def test_parameters_that_replicas_share_have_the_same_bits(self):
        """Two replicas add two numbers, in whatever order; four are two that share and two copies."""
        for size, pipeline, shares, partial in ((2, 1, 2, True), (4, 2, 2, False), (4, 1, 2, True)):
            wanted = values_of(size, functools.partial(whole_ones, pipeline))
            with self.subTest(size=size, pipeline=pipeline), tempfile.TemporaryDirectory() as folder:
                task = functools.partial(shared, folder, pipeline, partial, shares)
                for one, want in zip(values_of(size, task), wanted):
                    self.equal(one[:2], want[:2])
                    self.assertLess(one[2], 4 * 60)  # a number a parameter
                    if pipeline == 1:
                        self.assertLess(one[3], want[2] / shares * 1.05)

    def test_fsdp2_gathers_blocks_under_a_pipeline(self):
        """What replicas of whole parameters compute, but for the order of sums; without one they are four, two a share."""
        for pipeline in (2, 1):
            wants = values_of(4, functools.partial(by_blocks, pipeline, 1, "step"))
            for rank, got in enumerate(values_of(4, functools.partial(by_blocks, pipeline, 2, "blocks"))):
                for (losses, state, kinds, numbers), want in zip(got, wants[rank], strict=True):
                    # None where another stage runs the function.
                    self.assertEqual(kinds, {"DTensor"} if rank % pipeline == 0 else set())
                    for one, other in zip([*losses, *numbers], [*want[0], *want[3]], strict=True):
                        self.assertTrue(close(one, other, 4096), (one - other).abs().max())
                    self.assertEqual(sorted(state), sorted(want[1]))
                    for key, value in want[1].items():
                        self.assertTrue(close(state[key], value, 4096), (key, (state[key] - value).abs().max()))

    def test_what_does_not_go_with_blocks_says_what_to_take_instead(self):
        for told in values_of(4, beside_blocks):
            for text, row in zip(told, BESIDE_BLOCKS, strict=True):
                self.assertIn(row[-1], text)

    def test_an_overflow_of_a_part_leaves_the_step_out_on_all(self):
        for divides in ("sharded_data_parallel_degree", "shard_optimizer_state"):
            with self.subTest(divides):
                task = functools.partial(half_shares, divides)
                self.assertEqual(values_of(2, task), [[True, False, True]] * 2)

    def test_an_optimizer_of_whole_parameters_is_refused_for_parts(self):
        for text in values_of(2, lamb_of_shares):
            self.assertIn("FusedLamb needs whole parameters", text)

    def test_a_model_that_fsdp_shards_is_refused(self):
        for text in values_of(2, sharded_by_pytorch):
            self.assertRegex(text, "module '1' FSDP shards already.*shard_at='blocks'")

    def test_shares_that_nobody_updates_are_named(self):
        for text in values_of(2, plain_optimizer_of_shares):
            self.assertIn("wrap the optimizer in it before the first step", text)

    def test_scripts_of_sagemaker_find_what_they_use(self):
        for told in values_of(2, as_sagemaker_has_it):
            self.assertEqual(told, (["DistributedOptimizer"], 2, 0, False, 1, True))

    def test_a_rank_that_cannot_write_is_named_on_all_and_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            for text in values_of(2, functools.partial(cannot_write, folder)):
                self.assertRegex(text, r"rank 1 cannot write the checkpoint: .*Error.* \| \[\] \| "
                                       r"\['three_partial'\]")

    def test_checkpoints_that_are_not_whole_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for none, one, two, three, tag in values_of(2, functools.partial(damaged, folder)):
                self.assertIn("names no newest checkpoint", none)
                self.assertRegex(one, "one_partial' is incomplete: 1 of 2 files model_")
                self.assertRegex(two, "two_partial' is incomplete: 1 of 2 files model_")
                self.assertIn("three_partial' has no model_*.pt", three)
                self.assertIn("tag = 'a/b'", tag)

    def test_objects_are_saved_in_parts_and_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            for rank, value in enumerate(values_of(2, functools.partial(saves_and_loads_objects, folder))):
                self.assertEqual(value, (["one", "part_0", "part_1"], {"rank": rank}, {"rank": 0}))

    def test_a_plain_optimizers_state_loads(self):
        self.assertEqual(values_of(2, plain_state_loads), ["0.5", "0.5"])

    def test_replicas_may_have_unequal_numbers_of_batches(self):
        first, second = values_of(2, uneven)
        self.assertEqual([k for k in first if not torch.equal(first[k], second[k])], [])

    def test_hooks_of_communication_make_the_mean(self):
        for same, rounded in values_of(2, compressed):
            self.assertTrue(same)
            self.assertLess(rounded, 2 * 2**-8)  # two numbers rounded to bf16, and their sum
            self.assertGreater(rounded, 0)

    def test_parts_load_into_a_model_that_is_not_split_yet(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(values_of(2, functools.partial(parts_loaded_first, folder)), [[], []])

    def test_a_program_is_told_how_far_it_is(self):
        for rank, told in enumerate(values_of(2, what_a_program_asks)):
            notes = [] if rank else [True, False, False]
            self.assertEqual(told, (True, False, True, ["kept"], notes, [False, False], False))

    def test_a_copy_on_every_rank_is_whole(self):
        first, second = values_of(2, copied)
        self.assertEqual([k for k in first if not torch.equal(first[k], second[k])], [])
        self.assertFalse(any(bool(torch.isnan(one).any()) for one in first.values()))

    def test_a_module_around_it_has_its_state(self):
        (around, prefixed, names), (around_other, *others) = values_of(2, within)
        self.assertGreater(len(names), 0)
        self.assertEqual(around, sorted(["head.bias", "head.weight", *(f"inner.{name}" for name in names)]))
        self.assertEqual(prefixed, [f"a.{name}" for name in names])
        self.assertEqual((around_other, others), (["head.bias", "head.weight"], [[], []]))

    def test_an_overflow_on_one_rank_leaves_the_step_out_on_all(self):
        for told in values_of(2, functools.partial(scaled, 1)):
            self.assertEqual(told, [(True, 1024.0), (False, 512.0), (True, 512.0), (True, 1024.0)])

    def test_half_precision_trains_with_a_scale_that_finds_its_height(self):
        for types, masters, scales, losses in values_of(2, half):
            self.assertEqual((types, masters), ({"torch.float16"}, {"torch.float32"}))
            self.assertLess(min(scales), scales[0])
            self.assertGreater(scales[-1], min(scales))
            self.assertLess(losses[-1], 0.8 * losses[0])

    def test_half_precision_goes_with_a_stage_that_is_frozen(self):
        (updates, first), (none, second) = values_of(2, half_beside_frozen)
        self.assertEqual((updates, none), (True, False))
        self.assertEqual(first, second)
        left_out = [out for _, _, out in first]
        self.assertEqual((left_out[0], left_out[-1]), (True, False))
        self.assertEqual([norm < 0 for _, norm, _ in first], left_out)


if __name__ == "__main__":
    unittest.main()
