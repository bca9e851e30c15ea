"""Tests of the split and of its execution server on two and four processes, against plain PyTorch.

Use: python tests/system/torch/smp/split_test.py. Needs torch, transformers and sprat.torch.
"""

from __future__ import annotations

import functools
import itertools
import os
import pathlib
import signal
import sys
import tempfile
import unittest
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import torch
import torch.distributed as dist
from launch import Ranks, values_of
from torch import nn

WIDTH, WORDS, BATCH = 16, 11, 8


class Block(nn.Module):
    """Takes an option, drops out, and returns more than tensors."""

    def __init__(self):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> dict[str, Any]:
        y = self.drop(torch.relu(self.inner(self.norm(x)))) * scale
        return {"x": x + y, "nothing": None, "sum": (y.sum(), "a word")}


class Around(nn.Module):
    """Contains a module of another rank, and calls it between two of its own."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.before, self.inner = nn.Linear(WIDTH, WIDTH), inner
        self.after = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.inner(torch.tanh(self.before(x))))


class Net(nn.Module):
    """Skips, visits a block twice, nests ranks in ranks, shares its embedding with its head."""

    def __init__(self, partition: Any, ranks: int):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList()
        for index in range(4):
            with partition(index * ranks // 4):
                self.blocks.append(Block())
        with partition(0):
            inner = nn.Linear(WIDTH, WIDTH)
        with partition(ranks - 1):
            self.around = Around(inner)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words)
        for index in (0, 1, 0, 2, 3):
            x = self.blocks[index](x, scale=0.5)["x"]
        return self.head(x + self.around(x))


def loss_of(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(output.flatten(0, 1), targets.flatten())


def batch(number: int, size: int = BATCH) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(number)
    words = torch.randint(WORDS, (2, size, 5), generator=generator)
    return words[0], words[1]


def start(degree: int, microbatches: int, **more: Any) -> Any:
    import sprat.torch.smp as smp

    smp.init({"pipeline_parallel_degree": degree, "microbatches": microbatches, "ddp": True,
              "auto_partition": False, "default_partition": 0, **more})
    torch.manual_seed(1)
    return smp


def by_server(degree: int, microbatches: int, **more: Any) -> Any:
    """As start(); steps that stages could play are the server's too."""
    return start(degree, microbatches, static_mode=False, **more)


def step_of(smp: Any) -> Any:
    @smp.step
    def train(model: Any, words: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = loss_of(model(words), targets)
        model.backward(loss)
        return loss

    return train


def micro_batches(number: int, parts: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Those of one step on one rank, each with the random numbers that @smp.step gives it."""
    seed = int(torch.randint(2**62, ()))
    after = torch.get_rng_state()
    words, targets = batch(number)
    for j, pair in enumerate(zip(words.chunk(parts), targets.chunk(parts))):
        torch.manual_seed(seed + j)
        yield pair
    torch.set_rng_state(after)


def plain(ranks: int, microbatches: int, shares: int = 1) -> tuple[list, dict]:
    """Three steps on one rank; a share is what one data parallel rank reads."""
    import sprat.torch.smp as smp

    torch.manual_seed(1)
    model = Net(smp.partition, ranks)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5)
    torch.manual_seed(2)
    losses = []
    for step in range(3):
        seed = int(torch.randint(2**62, ()))
        after = torch.get_rng_state()
        sums: list = [None] * shares
        for share in range(shares):
            optimizer.zero_grad()
            words, targets = batch(step * shares + share)
            for j, (w, t) in enumerate(zip(words.chunk(microbatches), targets.chunk(microbatches))):
                torch.manual_seed(seed + j)
                loss = loss_of(model(w), t)
                loss.backward()
                losses.append(loss.detach())
            sums[share] = [one.grad / microbatches for one in model.parameters()]
        for index, one in enumerate(model.parameters()):
            total = sums[0][index]
            for share in range(1, shares):
                total = total + sums[share][index]
            one.grad = total / shares
        torch.set_rng_state(after)
        optimizer.step()
    return losses, model.state_dict()


def trains(pipeline: int, microbatches: int, schedule: str, rank: int, size: int) -> str:
    """What differs from one rank."""
    smp = by_server(pipeline, microbatches, pipeline=schedule)
    model = smp.DistributedModel(Net(smp.partition, pipeline))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5)
    train, losses, shares = step_of(smp), [], size // pipeline
    torch.manual_seed(2)
    for number in range(3):
        optimizer.zero_grad()
        losses += train(model, *batch(number * shares + smp.dp_rank())).outputs
        optimizer.step()
    state = model.state_dict(gather_to_rank0=False)
    want_losses, want = plain(pipeline, microbatches, shares)
    if shares == 1 and not all(map(torch.equal, losses, want_losses)):
        return f"losses {losses}, not {want_losses}"
    wrong = [key for key in want if not torch.equal(state[key], want[key])]
    kept = {name for name, _ in model.named_parameters()}
    if pipeline > 1 and not 0 < len(kept) < len(want):
        return f"rank {rank} keeps {sorted(kept)}"
    with torch.no_grad():
        model.eval()
        output = model(batch(9)[0])
        if output.shape != (BATCH, 5, WORDS):
            return f"evaluation gave {tuple(output.shape)}"
    return f"{wrong} differ" if wrong else ""


def says(make: Any, rank: int, size: int) -> str:
    """The error of a step that goes wrong; after it a right one trains."""
    smp = by_server(size, 4)
    model, train = make(smp, rank, size)
    try:
        train(model, *batch(1, 6 if make is short_batch else BATCH))
    except (RuntimeError, ValueError) as error:
        step_of(smp)(model, *batch(1))
        return str(error)
    return "nothing was said"


def model_of(smp: Any, size: int) -> Any:
    return smp.DistributedModel(Net(smp.partition, size))


def fails_on_the_last_rank(smp: Any, rank: int, size: int) -> Any:
    model, calls = model_of(smp, size), []

    def hook(*_: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyError("no such key")

    if rank == size - 1:
        model.module.blocks[3].inner.register_forward_pre_hook(hook)
    return model, step_of(smp)


def unpicklable_output(smp: Any, rank: int, size: int) -> Any:
    @smp.step
    def train(model: Any, words: torch.Tensor, targets: torch.Tensor) -> Any:
        model.backward(loss_of(model(words), targets))
        return lambda: None

    return model_of(smp, size), train


def one_short_batch(smp: Any, rank: int, size: int) -> Any:
    train = step_of(smp)

    def differs(model: Any, words: torch.Tensor, targets: torch.Tensor) -> Any:
        return train(model, *(batch(1, 7) if rank == 1 else (words, targets)))

    model = model_of(smp, size)
    train(model, *batch(1))
    return model, differs


def accumulates(rank: int, size: int) -> str:
    """Two steps of two data parallel ranks before their gradients are averaged."""
    smp = by_server(1, 2)
    model = smp.DistributedModel(Net(smp.partition, 1).eval(), backward_passes_per_step=2)
    torch.manual_seed(1)
    alone = Net(smp.partition, 1).eval()
    sums: list = [None] * size
    for share in range(size):
        for number in (0, 1):
            alone.zero_grad()
            for w, t in zip(*(part.chunk(2) for part in batch(2 * share + number))):
                loss_of(alone(w), t).backward()
            gained = [one.grad / 2 for one in alone.parameters()]
            sums[share] = gained if number == 0 else list(map(torch.add, sums[share], gained))
    train = step_of(smp)
    for number in (0, 1):
        train(model, *batch(2 * rank + number))
        if number == 0 and any(one.grad is not None for one in model.parameters()):
            return "gradients before the last pass"
    for one, first, second in zip(model.parameters(), *sums):
        if not torch.equal(one.grad, (first + second) / size):
            return "other gradients"
    return ""


def short_batch(smp: Any, rank: int, size: int) -> Any:
    return model_of(smp, size), step_of(smp)


def no_gradient_path(smp: Any, rank: int, size: int) -> Any:
    @smp.step
    def train(model: Any, words: torch.Tensor, targets: torch.Tensor) -> None:
        model.backward(loss_of(model(words).detach(), targets))

    return model_of(smp, size), train


def another_batch(smp: Any, rank: int, size: int) -> Any:
    train = step_of(smp)

    def differs(model: Any, words: torch.Tensor, targets: torch.Tensor) -> Any:
        return train(model, *(batch(1, 4) if rank == 1 else (words, targets)))

    return model_of(smp, size), differs


def another_model(rank: int, size: int) -> str:
    smp = by_server(size, 2)
    model = smp.DistributedModel(nn.Linear(WIDTH, WIDTH + rank))
    return said(lambda: step_of(smp)(model, *batch(1)))


def parameters_later(rank: int, size: int) -> str:
    smp = by_server(size, 2)
    model, train = model_of(smp, size), step_of(smp)
    train(model, *batch(1))
    model.module.late = nn.Linear(2, 2)
    return said(lambda: train(model, *batch(1)))


def partition_files(path: str, rank: int, size: int) -> str:
    """A split kept in a file is the same when it is loaded, and refused for another model."""
    smp = by_server(size, 1, auto_partition=True, skip_tracing=True, partition_file=path)
    first = model_of(smp, size)
    step_of(smp)(first, *batch(1))
    dist.barrier()
    smp = by_server(size, 1, load_partition=True, partition_file=path)
    second = model_of(smp, size)
    step_of(smp)(second, *batch(1))
    if first.assignment != second.assignment:
        return "another split"
    third = smp.DistributedModel(nn.Sequential(nn.Linear(WORDS, WORDS)))
    return said(lambda: step_of(smp)(third, *batch(1)))


def dies(rank: int, size: int) -> str:
    smp = by_server(size, 4)
    model, train = model_of(smp, size), step_of(smp)
    train(model, *batch(1))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return said(lambda: train(model, *batch(1)))


def said(call: Any) -> str:
    """The error of a call that is refused."""
    try:
        call()
    except (RuntimeError, ValueError) as error:
        return str(error)
    return "nothing was said"


class Splits(unittest.TestCase):
    def test_trains_with_the_bits_of_one_rank(self):
        for size, pipelines in ((1, (1,)), (2, (2,)), (4, (4, 2))):
            with Ranks("sprat", size, timeout=30) as ranks:
                for pipeline, (microbatches, schedule) in itertools.product(
                    pipelines, ((4, "interleaved"), (8, "simple"), (1, "interleaved"))
                ):
                    with self.subTest(size=size, pipeline=pipeline, m=microbatches, kind=schedule):
                        task = functools.partial(trains, pipeline, microbatches, schedule)
                        reports = ranks.run(task, deadline=60)
                        self.assertEqual([(one.error, one.value) for one in reports],
                                         [("", "")] * size, ranks.tail(40))

    def test_an_error_of_a_module_is_told_to_every_rank_and_the_next_step_trains(self):
        for text in values_of(2, functools.partial(says, fails_on_the_last_rank)):
            self.assertRegex(text, r"rank 1 .*module 'blocks.3', micro-batch \d, forward: "
                                   "KeyError: 'no such key'")

    def test_a_batch_that_does_not_divide_is_named(self):
        for text in values_of(2, functools.partial(says, short_batch)):
            self.assertIn("argument 'words' of @smp.step has shape (6, 5), which microbatches = 4",
                          text)

    def test_an_output_that_cannot_be_sent_is_told_to_every_rank(self):
        for text in values_of(2, functools.partial(says, unpicklable_output)):
            self.assertRegex(text, "rank 0 .*must be tensors and values that pickle")

    def test_a_batch_that_one_rank_cannot_cut_is_told_to_every_rank(self):
        for text in values_of(2, functools.partial(says, one_short_batch)):
            self.assertIn("rank 1 of the pipeline: ValueError: argument 'words'", text)

    def test_gradients_of_several_passes_are_averaged_once(self):
        self.assertEqual(values_of(2, accumulates), ["", ""])

    def test_a_loss_without_a_path_back_is_named(self):
        for text in values_of(2, functools.partial(says, no_gradient_path)):
            self.assertIn("a tensor of shape () that needs no gradient", text)

    def test_ranks_whose_batches_differ_are_told(self):
        for text in values_of(2, functools.partial(says, another_batch)):
            self.assertRegex(text, r"rank 1 .*arguments of @smp.step.*\(1, 5\).*rank 0's.*\(2, 5\)")

    def test_ranks_whose_models_differ_are_told(self):
        for text in values_of(2, another_model):
            self.assertIn("ranks 0 and 1 have different models: ('weight', (16, 16)",
                          text)

    def test_parameters_that_come_after_the_split_are_named(self):
        for text in values_of(2, parameters_later):
            self.assertIn("parameters changed after the split (late.", text)

    def test_a_partition_file_keeps_the_split(self):
        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder) / "split.json")
            for text in values_of(2, functools.partial(partition_files, path)):
                self.assertIn("is of another model: parameter", text)

    def test_a_rank_that_dies_is_named_in_time(self):
        with Ranks("sprat", 3, timeout=30) as ranks:
            reports = ranks.run(dies, deadline=60, grace=30)
            for rank in (0, 2):
                self.assertRegex(str(reports[rank].value), "rank 1")


if __name__ == "__main__":
    unittest.main()
