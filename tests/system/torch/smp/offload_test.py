"""Tests of activation offload and of delayed initialisation, over processes and in one.

Use: python tests/system/torch/smp/offload_test.py. Needs torch and sprat.torch.
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
from split_test import said, start, step_of
from torch import nn

torch.set_num_threads(1)  # as ranks, which are forked from here
WIDTH, LAYERS, ROWS = 64, 12, 256
INPUT_BYTES = 4 * WIDTH * ROWS


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x + self.drop(self.second(torch.relu(self.first(x)))) * mask


class Deep(nn.Module):
    """A chain whose layers share one mask."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = (x > 0).float()
        for layer in self.layers:
            x = layer(x, mask)
        return x


def data(number: int) -> torch.Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(number))


def gradients(horizon: int | None, folder: str) -> tuple[list[torch.Tensor], Any]:
    """Of a model in one process whose layers are checkpointed; with a horizon, offloaded."""
    from sprat.torch.smp import activation_store, recomputation

    torch.manual_seed(1)
    model = Deep()
    for layer in model.layers:
        recomputation.set_activation_checkpointing(layer)
    store = None if horizon is None else activation_store.ActivationStore(folder, horizon)
    recomputation.offload_inputs(store)
    for number in range(2):
        loss = model(data(number)).square().mean()
        if store:
            store.begin_backward()
        loss.backward()
        del loss
        if store:
            store.end_step()
    recomputation.offload_inputs(None)
    return [one.grad for one in model.parameters()], store


def over_ranks(folder: str, offloads: bool, horizon: int, rank: int, size: int) -> Any:
    """Two steps of a pipeline: parameters, and what was moved."""
    smp = start(size, 4, offload_activations=offloads, activation_loading_horizon=horizon,
                auto_partition=True)
    net = Deep()
    for layer in net.layers:
        smp.set_activation_checkpointing(layer)
    model = smp.DistributedModel(net, offload_folder=folder if offloads else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @smp.step
    def train(model: Any, x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        model.backward(loss)
        return loss

    torch.manual_seed(2)
    for number in range(2):
        optimizer.zero_grad()
        train(model, torch.cat([data(number), data(number + 9)]))
        optimizer.step()
    return dict(model.own_state()), model.activations


def wrapped(folder: str, rank: int, size: int) -> Any:
    """offload_wrapper around a root whose layers torch checkpoints."""
    import sprat.torch.smp as smp

    smp.init({"activation_loading_horizon": 3})
    found = []
    for offloads in (False, True):
        torch.manual_seed(1)
        net = Deep()
        for layer in net.layers:
            smp.set_activation_checkpointing(layer)
        model = smp.offload_wrapper(net, folder) if offloads else net
        model(data(0)).square().mean().backward()
        found.append([one.grad for one in net.parameters()])
    return all(map(torch.equal, *found)), model.store.counters.stores, len(list(model.layers))


class Offload(unittest.TestCase):
    def test_gradients_are_the_same_bits_with_every_horizon(self):
        with tempfile.TemporaryDirectory() as folder:
            want, _ = gradients(None, folder)
            for horizon in (1, 2, 4, 100):
                got, store = gradients(horizon, folder)
                with self.subTest(horizon=horizon):
                    self.assertTrue(all(map(torch.equal, got, want)))
                    self.assertEqual(store.counters.bytes_now, 0)
            self.assertEqual(os.listdir(folder), [])  # nothing stays behind

    def test_the_horizon_bounds_memory(self):
        """In memory: so many of the newest, two on their way, and the mask that all share."""
        with tempfile.TemporaryDirectory() as folder:
            most = {}
            for horizon in (1, 2, 4, 100):
                _, store = gradients(horizon, folder)
                most[horizon] = store.counters.bytes_most
                self.assertLessEqual(most[horizon], INPUT_BYTES * (min(horizon, LAYERS) + 4))
            self.assertLess(most[1], most[4])
            self.assertEqual(most[100], INPUT_BYTES * (LAYERS + 1))  # nothing left

    def test_a_folder_that_is_none_is_named(self):
        from sprat.torch.smp.activation_store import ActivationStore

        with self.assertRaisesRegex(ValueError, "cannot go to '/no/such': No such file"):
            ActivationStore("/no/such")

    def test_what_has_no_room_stays(self):
        from sprat.torch.smp import activation_store

        with tempfile.TemporaryDirectory() as folder:
            want, _ = gradients(None, folder)
            write = activation_store.ActivationStore._write

            def full(store: Any, memory: Any, place: int) -> int:
                if place >= 3 * INPUT_BYTES:
                    raise OSError(28, "No space left on device")
                return write(store, memory, place)

            activation_store.ActivationStore._write = full
            try:
                got, store = gradients(2, folder)
            finally:
                activation_store.ActivationStore._write = write
            self.assertTrue(all(map(torch.equal, got, want)))
            self.assertGreater(store.counters.kept_for_room, 0)
            self.assertEqual(store.counters.bytes_now, 0)


class OffloadOverRanks(unittest.TestCase):
    def test_a_pipeline_has_the_same_bits_and_keeps_less(self):
        with tempfile.TemporaryDirectory() as folder:
            plain = values_of(2, functools.partial(over_ranks, folder, False, 4))
            for horizon in (1, 4):
                offloaded = values_of(2, functools.partial(over_ranks, folder, True, horizon))
                for rank, ((got, counters), (want, _)) in enumerate(zip(offloaded, plain)):
                    with self.subTest(horizon=horizon, rank=rank):
                        self.assertEqual([k for k in want if not torch.equal(got[k], want[k])], [])
                        self.assertGreater(counters.stores, 0)
                        self.assertGreater(counters.loads, 0)
                        self.assertEqual(counters.bytes_now, 0)

    def test_a_wrapped_root_has_the_same_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            same, stores, layers = values_of(1, functools.partial(wrapped, folder))[0]
            self.assertTrue(same)
            self.assertGreater(stores, LAYERS // 2)
            self.assertEqual(layers, LAYERS)


class Delayed(unittest.TestCase):
    def test_values_do_not_depend_on_the_cut(self):
        runs = [values_of(size, delayed) for size in (1, 2, 4)]
        whole = runs[0][0][0]
        for states in runs:
            for state, resident in states:
                self.assertEqual([k for k in whole if not torch.equal(state[k], whole[k])], [])
        self.assertLess(max(one for _, one in runs[2]), runs[0][0][1] / 2)

    def test_a_module_without_initial_values_is_named(self):
        """Also on the rank whose own modules have values."""
        for first, second in values_of(2, without_values):
            self.assertRegex(first, "^rank 1 of the pipeline: .*a Bare has parameters, and no reset_parameters")
            self.assertEqual(second, f"the model's split failed, make it anew: {first}")

    def test_one_process_makes_values_module_by_module(self):
        from sprat.torch.smp import delayed as parts

        with parts.delay_param_initialization():
            model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))
            model[2].weight = model[0].weight
        self.assertTrue(all(one.is_meta for one in model.parameters()))
        initer = parts.DelayedParamIniter(model)
        with self.assertRaisesRegex(ValueError, "parameter '0.weight' has no values yet"):
            with initer.validate_params_and_buffers_inited():
                pass
        with initer.validate_params_and_buffers_inited():
            for module in model:
                initer.get_param_init_fn()(module)
        self.assertIs(model[2].weight, model[0].weight)


class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight.sum()


def delayed(rank: int, size: int) -> Any:
    """The whole state after the split, and the bytes of this rank's parameters."""
    smp = start(size, 2, auto_partition=True, delayed_parameter_initialization=True)
    with smp.model_creation():
        net = Deep()
    if not all(one.is_meta for one in net.parameters()):
        raise AssertionError("parameters have memory before the split")
    model = smp.DistributedModel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @smp.step
    def train(model: Any, x: torch.Tensor) -> None:
        model.backward(model(x).square().mean())

    torch.manual_seed(2)
    train(model, data(0))
    optimizer.step()
    resident = sum(one.untyped_storage().nbytes() for one in model.local_parameters())
    return model.state_dict(gather_to_rank0=False), resident


def without_values(rank: int, size: int) -> list[str]:
    """What is said of a module of the second rank, and of the next step."""
    smp = start(size, 2)
    net = nn.Sequential(nn.Linear(3, 3))
    with smp.partition(1), smp.delay_param_initialization():
        net.append(Bare())
    model = smp.DistributedModel(net)
    return [said(lambda: step_of(smp)(model, data(0), data(0))) for _ in range(2)]


if __name__ == "__main__":
    unittest.main()
