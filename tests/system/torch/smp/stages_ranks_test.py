"""Tests of steps that stages play, on two and four processes, against plain PyTorch and the server.

Use: python tests/system/torch/smp/stages_ranks_test.py. Needs torch and sprat.torch.
"""

from __future__ import annotations

import functools
import logging
import os
import pathlib
import signal
import sys
import unittest
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
from launch import Ranks, values_of
from split_test import BATCH, WIDTH, WORDS, Net, batch, loss_of, plain, said, start, step_of
from torch import nn


def trained(smp: Any, model: Any, steps: int = 3) -> tuple[list, dict]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5)
    train, losses = step_of(smp), []
    torch.manual_seed(2)
    for number in range(steps):
        optimizer.zero_grad()
        losses += train(model, *batch(number)).outputs
        optimizer.step()
    return losses, model.state_dict(gather_to_rank0=False)


def trains(split_at: str, microbatches: int, schedule: str, rank: int, size: int) -> str:
    """What differs from one rank."""
    smp = start(size, microbatches, pipeline=schedule, static_mode=True)
    model = smp.DistributedModel(Net(smp.partition, size), split_at=split_at)
    losses, state = trained(smp, model)
    want_losses, want = plain(size, microbatches)
    if not all(map(torch.equal, losses, want_losses)):
        return f"losses {losses}, not {want_losses}"
    wrong = [key for key in want if not torch.equal(state[key], want[key])]
    if len(list(model.parameters())) in (0, len(want)):
        return f"rank {rank} keeps {len(list(model.parameters()))} of {len(want)} parameters"
    with torch.no_grad():
        model.eval()
        alone = Net(smp.partition, size).eval()
        alone.load_state_dict(want)
        if not torch.equal(model(batch(9)[0]), alone(batch(9)[0])):
            return "evaluation differs"
    return f"{wrong} differ" if wrong else ""


class Odd(nn.Module):
    """An embedding, a layer that does what `odd` says, and a head on the last rank."""

    def __init__(self, smp: Any, odd: Any):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.inner = nn.Linear(WIDTH, WIDTH)
        with smp.partition(smp.pp_size() - 1):
            self.head = nn.Linear(WIDTH, WORDS)
        self.odd, self.calls = odd, 0

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.odd(self, self.inner(self.embedding(words))))


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


def by_numbers(model: Odd, x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum() > 0 else x


def with_own_backward(model: Odd, x: torch.Tensor) -> torch.Tensor:
    return Doubled.apply(x)


def counting(model: Odd, x: torch.Tensor) -> torch.Tensor:
    model.calls += 1
    return x * model.calls


def with_hook(model: Odd, x: torch.Tensor) -> torch.Tensor:
    x = x * 1
    x.register_hook(lambda gradient: gradient * 2)
    return x


def recomputed(model: Odd, x: torch.Tensor) -> torch.Tensor:
    import sprat.torch.smp as smp

    return smp.checkpoint(torch.nn.functional.gelu, x)


def with_python_numbers(model: Odd, x: torch.Tensor) -> torch.Tensor:
    import random

    return x * random.random()


KEPT: list[torch.Tensor] = []


def keeping(model: Odd, x: torch.Tensor) -> torch.Tensor:
    KEPT.append(x.detach())
    return x


REFUSED = (
    (by_numbers, "torch.export"),
    (with_own_backward, "Doubled is a function of autograd with a backward of its own"),
    (counting, "the step changes 'calls' outside of it"),
    (keeping, "the step changes a list outside of it"),
    (with_hook, "a hook on a tensor"),
    (recomputed, "activations are recomputed or stored elsewhere"),
    (with_python_numbers, "draws random numbers that are not PyTorch's"),
)


def refuses(number: int, rank: int, size: int) -> tuple[str, str]:
    """What a step that is no graph is told, and whether the server has run it, said once."""
    odd, _ = REFUSED[number]
    smp = start(size, 2, static_mode=True)
    text = said(lambda: step_of(smp)(smp.DistributedModel(Odd(smp, odd)), *batch(1)))
    smp = start(size, 2)
    log = logging.getLogger("sprat.torch.smp.stages.runner")
    with_what: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: with_what.append(record.getMessage())
    log.addHandler(handler)
    model, train = smp.DistributedModel(Odd(smp, odd)), step_of(smp)
    for number in (1, 2):
        train(model, *batch(number))
    log.removeHandler(handler)
    if any(type(one) is not torch.Tensor for one in KEPT):
        return "a tensor without numbers is left in a list", ""
    return text, "\n".join(with_what)


def fails(where: str, rank: int, size: int) -> str:
    """The error of a played step that goes wrong on one rank; the next one trains."""
    smp = start(size, 4, static_mode=True)
    model, train = smp.DistributedModel(Net(smp.partition, size)), step_of(smp)
    train(model, *batch(0))
    words, targets = batch(1)
    (words if where == "first" else targets)[5, 0] = WORDS + 1
    text = said(lambda: train(model, words, targets))
    train(model, *batch(2))
    return text


def changed_in_place(parameter: torch.Tensor) -> None:
    """As an optimizer that updates in backward, while other micro-batches still need the values."""
    with torch.no_grad():
        parameter.add_(1)


def breaks(*_: Any) -> None:
    raise KeyError("no such key")


def fails_backward(name: str, hook: Any, rank: int, size: int) -> str:
    """The error of a backward that goes wrong on one rank, by a hook that stages allow; the next step trains."""
    smp = start(size, 4, static_mode=True, pipeline="simple")
    model, train = smp.DistributedModel(Net(smp.partition, size)), step_of(smp)
    train(model, *batch(0))
    parameter = model.module.get_parameter(name)
    handle = parameter.register_post_accumulate_grad_hook(hook) if model.is_local(name) else None
    text = said(lambda: train(model, *batch(1)))
    if handle:
        handle.remove()
    train(model, *batch(2))
    return text


def dies(rank: int, size: int) -> str:
    smp = start(size, 4, static_mode=True)
    model, train = smp.DistributedModel(Net(smp.partition, size)), step_of(smp)
    train(model, *batch(1))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return said(lambda: train(model, *batch(1)))


def differs(rank: int, size: int) -> str:
    smp = start(size, 2, static_mode=True)
    model, train = smp.DistributedModel(Net(smp.partition, size)), step_of(smp)
    train(model, *batch(0))
    text = said(lambda: train(model, *batch(1, BATCH if rank == 0 else 4)))
    other = said(lambda: train(model, *batch(1, BATCH if rank == 0 else 7)))
    train(model, *(batch(2) if rank == 0 else (torch.Tensor(0), torch.Tensor(0))))
    return text + "\n" + other


SCALE = 1.0


def changes(rank: int, size: int) -> str:
    """A number that the function reads is another one; shapes change until the server has them."""
    global SCALE
    smp = start(size, 2)
    torch.manual_seed(1)
    model = smp.DistributedModel(Net(smp.partition, size).eval())
    torch.manual_seed(1)
    alone = Net(smp.partition, size).eval()

    @smp.step
    def train(model: Any, words: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = loss_of(model(words), targets) * SCALE
        model.backward(loss)
        return loss

    for number, (SCALE, rows) in enumerate(((1.0, 8), (3.0, 8), (1.0, 8), *((1.0, 2 * n) for n in range(1, 11)))):
        got = train(model, *batch(number, rows)).outputs
        words, targets = batch(number, rows)
        for j, (w, t) in enumerate(zip(words.chunk(2), targets.chunk(2))):
            if not torch.equal(got[j], (loss_of(alone(w), t) * SCALE).detach()):
                return f"step {number}: {got[j]}"
    plans = len(model.stages.plans)
    return "" if plans == 8 else f"{plans} plans"


def loss_elsewhere(rank: int, size: int) -> Any:
    """What is returned: a tree with values of several ranks, inputs and plain values."""
    smp = start(size, 2, static_mode=True)
    model = smp.DistributedModel(Net(smp.partition, size))

    @smp.step
    def train(model: Any, words: torch.Tensor, targets: torch.Tensor) -> Any:
        output = model(words)
        loss = loss_of(output, targets)
        model.backward(loss)
        return {"loss": loss, "words": words, "best": (output.argmax(-1), None, "text", 3)}

    results = train(model, *batch(4)).outputs
    words = batch(4)[0].chunk(2)
    for j, one in enumerate(results):
        if not torch.equal(one["words"], words[j]) or one["best"][1:] != (None, "text", 3):
            return f"{one}"
        if one["loss"].requires_grad or one["best"][0].shape != (BATCH // 2, 5):
            return f"{one}"
    return torch.stack([one["loss"] for one in results]).tolist()


class Stages(unittest.TestCase):
    def test_train_with_the_bits_of_one_rank(self):
        for size in (2, 4):
            with Ranks("sprat", size, timeout=30) as ranks:
                for split_at in ("modules", "operations"):
                    for microbatches, schedule in ((4, "interleaved"), (8, "simple"), (1, "interleaved")):
                        with self.subTest(size=size, at=split_at, m=microbatches, kind=schedule):
                            task = functools.partial(trains, split_at, microbatches, schedule)
                            reports = ranks.run(task, deadline=60)
                            self.assertEqual([(one.error, one.value) for one in reports],
                                             [("", "")] * size, ranks.tail(40))

    def test_leave_what_is_no_graph_to_the_server_and_say_why(self):
        with Ranks("sprat", 2, timeout=30) as ranks:
            for number, (odd, words) in enumerate(REFUSED):
                with self.subTest(odd.__name__):
                    reports = ranks.run(functools.partial(refuses, number), deadline=60)
                    self.assertEqual([one.error for one in reports], ["", ""], ranks.tail(40))
                    for rank, report in enumerate(reports):
                        self.assertRegex(report.value[0], f"static_mode is true.*{words}")
                        self.assertEqual(report.value[1].count(words), 1 - rank)

    def test_name_an_error_on_every_rank_and_train_in_the_next_step(self):
        for where, words in (
                ("first", r"rank 0 .*piece 0, module 'embedding', operation \w+ \(aten.embedding.default\), "
                          "micro-batch 2, forward: IndexError"),
                ("last", r"rank 0 .*piece \d, behind module '\w+', operation \w+ \(aten.cross_entropy_loss.default\), "
                         "micro-batch 2, forward: IndexError")):
            for text in values_of(2, functools.partial(fails, where)):
                self.assertRegex(text, words)

    def test_name_the_module_whose_backward_fails(self):
        version = "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace"
        for name, hook, rank, words in (
                ("blocks.3.inner.weight", breaks, 1,
                 "module 'blocks.3.inner', a hook of its parameter 'weight', micro-batch 0, backward: KeyError"),
                ("blocks.3.inner.weight", changed_in_place, 1,
                 rf"module 'blocks.3.inner', operation linear\w* \(aten.linear.default\), micro-batch 1, backward: {version}"),
                ("blocks.1.norm.weight", changed_in_place, 0,
                 rf"module 'blocks.1.norm', operation layer_norm\w* \(aten.layer_norm.default\), micro-batch 1, backward: "
                 f"{version}")):
            with self.subTest(name, hook=hook.__name__):
                for text in values_of(2, functools.partial(fails_backward, name, hook)):
                    self.assertRegex(text, rf"rank {rank} .*piece \d, {words}")

    def test_tell_ranks_whose_batches_differ(self):
        for text in values_of(2, differs):
            self.assertRegex(text, r"rank 1 .*arguments of @smp.step.*\(2, 5\).*rank 0's.*\(4, 5\)")
            self.assertRegex(text, r"argument 'words' of @smp.step has shape \(7, 5\)")

    def test_see_numbers_change_and_leave_many_shapes_to_the_server(self):
        self.assertEqual(values_of(2, changes), ["", ""])

    def test_return_trees_with_values_of_any_rank(self):
        first, second = values_of(2, loss_elsewhere)
        self.assertEqual(first, second)
        self.assertIsInstance(first, list)

    def test_name_a_rank_that_dies_in_time(self):
        with Ranks("sprat", 3, timeout=30) as ranks:
            reports = ranks.run(dies, deadline=60, grace=30)
            for rank in (0, 2):
                self.assertRegex(str(reports[rank].value), "rank 1")


if __name__ == "__main__":
    unittest.main()
