"""Tests of models, batches and programs that cannot be: what is said, on every rank, and that a right step trains next.

Use: python tests/system/torch/smp/bad_input_test.py. Needs torch and sprat.torch.
"""

from __future__ import annotations

import collections
import functools
import pathlib
import re
import signal
import sys
import threading
import unittest
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import torch
from launch import Ranks
from split_test import BATCH, WIDTH, WORDS, Net, batch, loss_of, start, step_of
from torch import nn

# Far beyond what a test takes: no wait of these may be ended by it.
TIMEOUT, SECONDS = 300, 240
PARTS = 4


def told(call: Callable[[], Any]) -> str:
    """What it raises, whatever that is."""
    try:
        call()
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was said"


def split_model(smp: Any, size: int, **settings: Any) -> Any:
    return smp.DistributedModel(Net(smp.partition, size).eval(), **settings)


# A model that cannot be traced.


class Chain(nn.Module):
    """Two blocks of which the second does what `odd` says."""

    def __init__(self, odd: Callable[[torch.Tensor], Any]):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.first, self.second = nn.Linear(WIDTH, WIDTH), Odd(odd)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(self.first(self.embedding(words))))


class Odd(nn.Module):
    def __init__(self, odd: Callable[[torch.Tensor], Any]):
        super().__init__()
        self.inner, self.odd = nn.Linear(WIDTH, WIDTH), odd

    def forward(self, x: torch.Tensor) -> Any:
        return self.odd(self.inner(x))


class Picky(Exception):
    """Which pickle cannot make again."""

    def __init__(self, one: str, other: str):
        super().__init__(f"{one} and {other}")


def no_number(x: torch.Tensor) -> torch.Tensor:
    return x + "one"


def generator(x: torch.Tensor) -> Any:
    return (part for part in x)


def chain(smp: Any, odd: Callable[[torch.Tensor], Any]) -> tuple[Any, Any]:
    return smp.DistributedModel(Chain(odd)), step_of(smp)


def cannot_run(rank: int, size: int, static: bool | None) -> str:
    smp = start(size, PARTS, auto_partition=True, static_mode=static)
    model, train = chain(smp, no_number)
    text = told(lambda: train(model, *batch(0)))
    model.module.second.odd = torch.relu
    train(model, *batch(1))
    return text


def gives_a_generator(rank: int, size: int, static: bool | None) -> str:
    """Which the tracing takes, for it asks for no value, and no message does."""
    smp = start(size, PARTS, static_mode=False)
    with smp.partition(1):
        second = Odd(generator)
    module = Chain(torch.relu)
    module.second = second
    model, train = smp.DistributedModel(module), step_of(smp)
    text = told(lambda: train(model, *batch(0)))
    second.odd = torch.relu
    train(model, *batch(1))
    return text


def first_body(raises: Callable[[], Any], rank: int, size: int, static: bool | None) -> str:
    smp = start(size, PARTS, auto_partition=True, static_mode=static)
    model, good = chain(smp, torch.relu)

    @smp.step
    def train(model: Any, words: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return raises()

    text = told(lambda: train(model, *batch(0)))
    good(model, *batch(1))
    return text


def picky() -> None:
    raise Picky("one", "two")


def leaves() -> None:
    sys.exit(3)


def nothing() -> None:
    """Does not call the model."""


# A loss without a way back.


OUTSIDE = torch.ones((), requires_grad=True)


def none(output: torch.Tensor, targets: torch.Tensor) -> Any:
    return None


def not_one_number(output: torch.Tensor, targets: torch.Tensor) -> Any:
    return output.sum((1, 2))


def whole_numbers(output: torch.Tensor, targets: torch.Tensor) -> Any:
    return output.argmax()


def detached(output: torch.Tensor, targets: torch.Tensor) -> Any:
    return loss_of(output.detach(), targets)


def of_another_parameter(output: torch.Tensor, targets: torch.Tensor) -> Any:
    return loss_of(output.detach(), targets) * OUTSIDE


def without_gradients(output: torch.Tensor, targets: torch.Tensor) -> Any:
    with torch.no_grad():
        return loss_of(output * 1, targets)


def no_way_back(loss: Callable[..., Any], rank: int, size: int, static: bool | None) -> str:
    smp = start(size, PARTS, static_mode=static)
    model = split_model(smp, size)

    @smp.step
    def train(model: Any, words: torch.Tensor, targets: torch.Tensor) -> None:
        model.backward(loss(model(words), targets))

    text = told(lambda: train(model, *batch(0)))
    step_of(smp)(model, *batch(1))
    return text


def with_gradients(rank: int, size: int, static: bool | None) -> str:
    """model.backward(tensors, grad_tensors): the gradients of the sum with those weights."""
    smp = start(size, PARTS, static_mode=static)
    model, again = split_model(smp, size), None
    weights = torch.arange(BATCH * 5 * WORDS, dtype=torch.float32).view(BATCH, 5, WORDS)

    @smp.step
    def train(model: Any, words: torch.Tensor, weights: torch.Tensor) -> None:
        model.backward(model(words), weights)

    train(model, batch(0)[0], weights)
    got = [one.grad for one in model.local_parameters()]
    smp = start(size, PARTS, static_mode=static)
    again = split_model(smp, size)

    @smp.step
    def alike(model: Any, words: torch.Tensor, weights: torch.Tensor) -> None:
        model.backward((model(words) * weights).sum())

    alike(again, batch(0)[0], weights)
    same = all(map(torch.equal, got, [one.grad for one in again.local_parameters()]))
    return "the same" if same else "other gradients"


# A module of two partitions.


def two_partitions(rank: int, size: int, static: bool | None) -> str:
    smp = start(size, PARTS, static_mode=static)
    module = Net(smp.partition, size)
    smp.set_partition(module.embedding, 0)
    smp.set_partition(module.head, 1)
    model, train = smp.DistributedModel(module), step_of(smp)
    text = told(lambda: train(model, *batch(0)))
    smp.set_partition(module.head, 0)
    train(model, *batch(1))
    return text


class Twice(nn.Module):
    """One module by two names, in modules of two ranks."""

    def __init__(self, partition: Any):
        super().__init__()
        shared = nn.Linear(WIDTH, WIDTH)
        self.embedding = nn.Embedding(WORDS, WIDTH)
        with partition(1):
            self.there = nn.ModuleDict({"one": shared, "own": nn.Linear(WIDTH, WIDTH)})
        with partition(0):
            self.here = nn.ModuleDict({"other": shared, "head": nn.Linear(WIDTH, WORDS)})

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.there["own"](self.there["one"](self.embedding(words)))
        return self.here["head"](self.here["other"](x))


def by_two_names(rank: int, size: int, static: bool | None) -> str:
    smp = start(size, PARTS, static_mode=static)
    module = Twice(smp.partition)
    smp.set_partition(module.there["one"], 1)
    model = smp.DistributedModel(module)
    step_of(smp)(model, *batch(0))
    state = model.state_dict(gather_to_rank0=False)
    torch.manual_seed(1)
    alone = Twice(smp.partition).state_dict()
    if list(state) != list(alone):
        return f"the state has {list(state)}"
    wrong = [name for name in alone if not torch.equal(state[name], alone[name])]
    return f"{wrong} differ" if wrong else "the same"


# A batch that cannot be cut.


def cut(make: Callable[[Any, int], dict], rank: int, size: int, static: bool | None) -> str:
    smp = start(size, PARTS, static_mode=static)
    model, good = split_model(smp, size), step_of(smp)

    @smp.step
    def train(model: Any, batch: Any) -> torch.Tensor:
        loss = loss_of(model(batch["words"]), batch["targets"])
        model.backward(loss)
        return loss

    texts = []
    for first in (True, False):  # of a model that is not split yet, and of one that is
        texts.append(told(lambda: train(**make(model, rank))))
        good(model, *batch(1))
    return BETWEEN.join(texts)


def nested(model: Any, rank: int) -> dict:
    words, targets = batch(0)
    return {"model": model, "batch": {"words": words, "targets": targets, "more": [{"mask": torch.ones(6, 5)}]}}


def of_a_tokenizer(model: Any, rank: int) -> dict:
    words, targets = batch(0)
    return {"model": model, "batch": collections.UserDict(words=words, targets=targets)}


class Slices:
    def __init__(self, breaks: bool):
        self.breaks = breaks

    def smp_slice(self, parts: int, part: int, axis: int) -> dict:
        if self.breaks:
            raise LookupError("there is no such part")
        words, targets = (one.chunk(parts)[part] for one in batch(0))
        return {"words": words, "targets": targets}


def sliced_by_one(model: Any, rank: int) -> dict:
    return {"model": model, "batch": Slices(rank == 1)}


def one_argument_less(model: Any, rank: int) -> dict:
    words, targets = batch(0)
    whole = {"model": model, "batch": {"words": words, "targets": targets}}
    return whole if rank == 0 else {"model": model}


def cut_sets(rank: int, size: int, static: bool | None) -> str:
    smp = start(size, PARTS, static_mode=static)
    model = split_model(smp, size)

    @smp.step
    def rows(model: Any, words: torch.Tensor, others: set) -> Any:
        return model(words).shape[0], sorted(len(one) for one in others)

    with torch.no_grad():
        return str(rows(model, batch(0)[0], {torch.ones(BATCH), torch.ones(2 * BATCH, 3)}).outputs)


# Parameters that change after the split.


def change(how: Callable[[nn.Module], None], rank: int, size: int, static: bool | None) -> str:
    """On rank 1 alone; what is said where the model stays so."""
    smp = start(size, PARTS, static_mode=static)
    model, train = split_model(smp, size), step_of(smp)
    train(model, *batch(0))
    module = model.module.blocks[3]
    kept = dict(module.inner._parameters), dict(module._modules), module.inner.bias.data
    if rank == 1:
        how(module)
    text = told(lambda: train(model, *batch(1)))
    module._modules.update(kept[1])
    module.inner._parameters.update(kept[0])
    module.inner.bias.data = kept[2]
    train(model, *batch(2))
    return text


def another_parameter(block: nn.Module) -> None:
    block.inner.register_parameter("weight", nn.Parameter(block.inner.weight.detach().clone()))


def another_module(block: nn.Module) -> None:
    block.drop = nn.Dropout(0.5)


def another_shape(block: nn.Module) -> None:
    block.inner.bias.data = torch.zeros(1)


def freed_later(rank: int, size: int, static: bool | None) -> str:
    """A parameter that needs gradients from the second step on has them as all others have."""
    found = []
    for frozen in (True, False):
        smp = start(size, PARTS, static_mode=static)
        model, train = split_model(smp, size), step_of(smp)
        model.module.blocks[3].inner.weight.requires_grad_(not frozen)
        train(model, *batch(0))
        model.module.blocks[3].inner.weight.requires_grad_(True)
        for one in model.local_parameters():
            one.grad = None
        train(model, *batch(1))
        found.append([one.grad for one in model.local_parameters()])
    return "the same" if all(map(torch.equal, *found)) else "other gradients"


def values_of_shares(rank: int, size: int, static: bool | None) -> str:
    smp = start(1, PARTS, sharded_data_parallel_degree=2)
    model, train = split_model(smp, 1), step_of(smp)
    smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    train(model, *batch(0))
    if rank == 1:
        model.module.blocks[3].inner.weight.data = torch.zeros(WIDTH, WIDTH)
    text = told(lambda: train(model, *batch(1)))
    train(model, *batch(2))
    return text


# A rank that goes another way.


def evaluates(rank: int, size: int, static: bool | None) -> str:
    smp = start(size, PARTS, static_mode=static)
    model, train = split_model(smp, size), step_of(smp)

    @smp.step
    def same(model: Any, words: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return loss_of(model(words), targets)

    train(model, *batch(0))
    with torch.set_grad_enabled(rank == 0):
        text = told(lambda: (train if rank == 0 else same)(model, *batch(1)))
    train(model, *batch(2))
    return text


def in_another_mode(rank: int, size: int, static: bool | None) -> str:
    smp = start(size, PARTS, static_mode=static)
    model, train = split_model(smp, size), step_of(smp)
    train(model, *batch(0))
    model.train(rank == 0)
    text = told(lambda: train(model, *batch(1)))
    model.train()
    train(model, *batch(2))
    return text


def with_other_settings(rank: int, size: int, static: bool | None) -> str:
    smp = start(size, PARTS, static_mode=static)
    model = split_model(smp, size, backward_passes_per_step=1 + rank)
    text = told(lambda: step_of(smp)(model, *batch(0)))
    step_of(smp)(split_model(smp, size), *batch(1))
    return text


def of_another_replica(rank: int, size: int, static: bool | None) -> str:
    smp = start(1, PARTS)
    model = smp.DistributedModel(nn.Linear(WIDTH, WIDTH + rank))
    text = told(lambda: step_of(smp)(model, *batch(0)))
    step_of(smp)(split_model(smp, 1), *batch(1))
    return text


def interrupted(rank: int, size: int, static: bool | None) -> str:
    """Ctrl-C on rank 1 while a module of its runs."""
    smp = start(size, PARTS, static_mode=static)
    model, train = split_model(smp, size), step_of(smp)
    train(model, *batch(0))

    def interrupts(*_: Any) -> None:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    hook = model.module.blocks[3].inner.register_forward_pre_hook(interrupts) if rank == 1 else None
    text = told(lambda: train(model, *batch(1)))
    if hook:
        hook.remove()
    train(model, *batch(2))
    return text


INTERRUPTS: list[int] = []


@torch.library.custom_op("sprat_test::interrupt_here", mutates_args=())
def interrupting(words: torch.Tensor) -> torch.Tensor:
    """An operation of a graph that stages play."""
    if INTERRUPTS:
        INTERRUPTS.clear()
        signal.raise_signal(signal.SIGINT)
    return words.clone()


@interrupting.register_fake
def _(words: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(words)


def interrupted_in_stages(rank: int, size: int, static: bool | None) -> str:
    """Ctrl-C on whichever rank has the operation."""
    smp = start(size, PARTS, static_mode=True)
    model = split_model(smp, size)

    @smp.step
    def train(model: Any, words: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = loss_of(model(torch.ops.sprat_test.interrupt_here(words)), targets)
        model.backward(loss)
        return loss

    train(model, *batch(0))
    INTERRUPTS.append(1)
    text = told(lambda: train(model, *batch(1)))
    INTERRUPTS.clear()
    train(model, *batch(2))
    return text


def raises_on_one(rank: int, size: int, static: bool | None) -> str:
    """In the step's function, behind the backward of one micro-batch."""
    smp = start(size, PARTS, static_mode=False)
    model, calls = split_model(smp, size), []

    @smp.step
    def train(model: Any, words: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = loss_of(model(words), targets)
        model.backward(loss)
        calls.append(1)
        if len(calls) == 3:
            picky()
        return loss

    text = told(lambda: train(model, *batch(0)))
    train(model, *batch(1))
    return text


BETWEEN = "\n---\n"
# By what is wrong: the task, whether stages are tried too, and what both ranks say.
ROWS: dict[str, tuple[Callable[..., str], bool, str]] = {
    "a model that cannot run": (cannot_run, True, "module 'second' cannot be traced: TypeError: .*set skip_tracing to true"),
    "a module that gives a generator": (gives_a_generator, False, "rank 1 of the pipeline: .*module 'second', micro-batch "
                                        r"\d.*must be tensors and values that pickle: cannot pickle 'generator' object"),
    "an error that pickle cannot make again": (functools.partial(first_body, picky), True,
                                               "(StepFailed: rank 0 of the pipeline: )?Picky: one and two"),
    "a function that exits": (functools.partial(first_body, leaves), True, "(StepFailed: rank 0 of the pipeline: )?SystemExit: 3"),
    "a function that does not call the model": (functools.partial(first_body, nothing), True,
                                                "does not call the model: call what smp.DistributedModel returns"),
    "no loss": (functools.partial(no_way_back, none), True, "model.backward got a NoneType"),
    "a loss of several numbers": (functools.partial(no_way_back, not_one_number), True,
                                  r"model.backward got a tensor of shape \(2,\), and a loss is one number"),
    "a loss of whole numbers": (functools.partial(no_way_back, whole_numbers), True, "needs no gradient"),
    "a detached output": (functools.partial(no_way_back, detached), True, "needs no gradient"),
    "a loss that trains something else": (functools.partial(no_way_back, of_another_parameter), True,
                                          "depends on no parameter of the model|not the model's"),
    "a loss without gradients": (functools.partial(no_way_back, without_gradients), True, "needs no gradient"),
    "tensors with their gradients": (with_gradients, False, "the same"),
    "a parameter of two partitions": (two_partitions, True, r"module 'head' was made in partition\(1\), and shares its "
                                      r"parameter 'weight' with module 'embedding' of partition\(0\): .*in one partition"),
    "a module by two names": (by_two_names, True, "the same"),
    "a nested batch": (functools.partial(cut, nested), True, r"argument 'batch'\['more'\]\[0\]\['mask'\] of @smp.step has "
                       r"shape \(6, 5\), which microbatches = 4 do not divide"),
    "a mapping that is no dict": (functools.partial(cut, of_a_tokenizer), True, "argument 'batch' of @smp.step is a UserDict, "
                                  r"whose tensors are not cut: pass dict\(...\) of it"),
    "a batch that one rank cannot slice": (functools.partial(cut, sliced_by_one), False,
                                           r"(rank 1 of the pipeline: )?LookupError: there is no such part"),
    "an argument that one rank lacks": (functools.partial(cut, one_argument_less), False,
                                        "(rank 1 of the pipeline: )?TypeError: missing a required argument: 'batch'"),
    "sets": (cut_sets, False, re.escape(str([(2, [2, 4])] * 4))),
    "another parameter of the same name": (functools.partial(change, another_parameter), True,
                                           r"rank 1 of the pipeline: .*\(blocks.3.inner.weight is another tensor\)"),
    "another module of the same name": (functools.partial(change, another_module), True,
                                        r"rank 1 of the pipeline: .*\(blocks.3.drop is another module\)"),
    "a parameter of another shape": (functools.partial(change, another_shape), True,
                                     r"rank 1 of the pipeline: .*\(blocks.3.inner.bias has shape \(1,\), and had \(16,\)\)"),
    "a parameter that is freed later": (freed_later, True, "the same"),
    "values for a parameter that ranks share": (values_of_shares, False, "rank 1: values were given to parameter "
                                                "'blocks.3.inner.weight', which ranks share: give them within"),
    "a rank that evaluates": (evaluates, True, r"this rank's way of @smp.step: evaluation in model.eval\(\); rank 0's: "
                              r"training in model.eval\(\)"),
    "a rank in another mode": (in_another_mode, True, r"way of @smp.step: training in model.eval\(\); rank 0's: training in "
                               r"model.train\(\)"),
    "other settings": (with_other_settings, False, r"ranks 0 and 1 have different models: \('backward_passes_per_step', 1\) "
                       r"and \('backward_passes_per_step', 2\)"),
    "another model of a replica": (of_another_replica, False, r"ranks 0 and 1 have different models: \('weight', \(16, 16\)"),
    "Ctrl-C": (interrupted, False, "(rank 1 of the pipeline: )?KeyboardInterrupt"),
    "Ctrl-C in stages": (interrupted_in_stages, False, r"(rank \d of the pipeline: .*)?KeyboardInterrupt"),
    "an error behind a backward": (raises_on_one, False, "StepFailed: rank 0 of the pipeline: .*Picky: one and two"),
}


def run_row(name: str, static: bool | None, rank: int, size: int) -> str:
    return ROWS[name][0](rank, size, static)


def skips(static: bool, rank: int, size: int) -> str:
    """Rank 1 does not call a step that rank 0 calls."""
    smp = start(size, PARTS, static_mode=static)
    model, train = split_model(smp, size), step_of(smp)
    train(model, *batch(0))
    return told(lambda: train(model, *batch(1))) if rank == 0 else ""


class BadInput(unittest.TestCase):
    def test_is_named_on_every_rank_and_a_right_step_trains_next(self) -> None:
        with Ranks("sprat", 2, timeout=TIMEOUT) as ranks:
            for name, (_, both, says) in ROWS.items():
                for static in (False, None) if both else (False,):
                    with self.subTest(name, static=static):
                        for report in ranks.run(functools.partial(run_row, name, static), deadline=SECONDS):
                            self.assertEqual(report.error, "", ranks.tail(40))
                            for text in report.value.split(BETWEEN):
                                self.assertRegex(text, f"(?s){says}")

    def test_a_rank_that_skips_a_step_is_named_when_the_time_is_up(self) -> None:
        for static in (False, True):
            with self.subTest(static=static), Ranks("sprat", 2, timeout=15) as ranks:
                report = ranks.run(functools.partial(skips, static), deadline=SECONDS)[0]
                self.assertEqual(report.error, "", ranks.tail(40))
                self.assertRegex(str(report.value), "rank 1")


if __name__ == "__main__":
    unittest.main()
