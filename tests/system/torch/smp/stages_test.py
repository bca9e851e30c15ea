"""Tests of what stages stand on, without ranks: programs, pieces, orders, cuts, messages, surroundings.

Use: python tests/system/torch/smp/stages_test.py. Needs torch and sprat.torch.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import json
import random
import types
import unittest

import numpy as np
import torch
from torch import nn

_STAGES = "sprat.torch.smp.stages."
program = importlib.import_module(_STAGES + "program")
facts_module = importlib.import_module(_STAGES + "facts")
ownership = importlib.import_module(_STAGES + "ownership")
pieces = importlib.import_module(_STAGES + "pieces")
order = importlib.import_module(_STAGES + "order")
code = importlib.import_module(_STAGES + "code")
paths_module = importlib.import_module(_STAGES + "gradient_paths")
graph_cut = importlib.import_module(_STAGES + "graph_cut")
packing = importlib.import_module(_STAGES + "packing")
surroundings = importlib.import_module(_STAGES + "surroundings")
plan = importlib.import_module(_STAGES + "plan")
Source, Operation, Program, Use, Form = (
    program.Source, program.Operation, program.Program, program.Use, program.Form)
F, B = order.FORWARD, order.BACKWARD


def chain_of(owners: str, *, skips: tuple = (), draws: str = "") -> tuple:
    """A program whose operation i multiplies by parameter i of rank owners[i], on the value before
    and, of a skip (i, j), adds value j to it; and its facts. `draws`: which drop out, by "d"."""
    count = len(owners)
    sources = [Source("input", "0"), *(Source("parameter", f"p{i}") for i in range(count))]
    forms = [Form((4,), (1,), torch.float32), *(Form((4,), (1,), torch.float32, True),) * count]
    operations, values, where = [], [0], []
    for i, owner in enumerate(owners):
        operations.append(Operation(f"mul{i}", "aten.mul.Tensor", (Use(values[-1]), Use(1 + i))))
        where.append(i)
        values.append(len(sources) + len(operations) - 1)
        for _, j in (skip for skip in skips if skip[0] == i):
            operations.append(Operation(f"add{i}_{j}", "aten.add.Tensor", (Use(values[-1]), Use(values[j]))))
            values[-1] = len(sources) + len(operations) - 1
        if draws[i : i + 1] == "d":
            operations.append(Operation(f"drop{i}", "aten.dropout.default",
                                        (Use(values[-1]), 0.5, True), draws=True))
            values[-1] = len(sources) + len(operations) - 1
    operations.append(Operation("sum", "aten.sum.default", (Use(values[-1]),)))
    loss = len(sources) + len(operations) - 1
    made = Program(tuple(sources), tuple(operations), loss, {"loss": Use(loss)})
    return made, facts_module.facts_of(made, forms, trains=True)


def owner(owners: str):
    return lambda name: int(owners[int(name[1:])])


def cut_of(owners: str, **more):
    made, facts = chain_of(owners, **more)
    placement = ownership.by_owners(made, facts, owner(owners), lambda name: False)
    cut = pieces.cut_into_pieces(made, placement, ownership.order_edges(made, facts))
    return made, facts, cut


class Pieces(unittest.TestCase):
    def test_are_as_many_as_changes_of_rank(self):
        for owners, ranks in (("0011", [0, 1]), ("0110", [0, 1, 0]), ("0101", [0, 1, 0, 1]),
                              ("1", [1]), ("0", [0]), ("012", [0, 1, 2])):
            with self.subTest(owners):
                _, _, cut = cut_of(owners)
                self.assertEqual([piece.rank for piece in cut.pieces], ranks)

    def test_hold_each_operation_once_and_know_what_crosses(self):
        for owners in map("".join, itertools.product("012", repeat=4)):
            for skips in ((), ((2, 0),), ((3, 1), (3, 0))):
                made, _, cut = cut_of(owners, skips=skips, draws="d d d d"[::2])
                held = [one for piece in cut.pieces for one in piece.operations]
                self.assertEqual(sorted(held), list(range(len(made.operations))))
                have = [set(piece.inputs) | set(piece.sources) |
                        {made.value_of(one) for one in piece.operations} for piece in cut.pieces]
                for number, piece in enumerate(cut.pieces):
                    for one in piece.operations:
                        self.assertLessEqual(set(made.operations[one].uses()), have[number])
                    for before in cut.before(number):
                        self.assertLess(before, number)
                    for value in piece.inputs:
                        maker = cut.maker[value]
                        if maker >= 0:
                            self.assertIn(value, cut.pieces[maker].outputs)

    def test_draw_random_numbers_in_the_order_of_the_program(self):
        for owners in map("".join, itertools.product("01", repeat=5)):
            made, _, cut = cut_of(owners, draws="ddddd")
            drawn = [one for piece in cut.pieces for one in piece.operations
                     if made.operations[one].draws]
            self.assertEqual(drawn, sorted(drawn), owners)

    def test_keep_what_is_changed_in_place_together(self):
        sources = (Source("input", "0"), Source("parameter", "p0"), Source("parameter", "p1"))
        operations = (
            Operation("a", "aten.mul.Tensor", (Use(0), Use(1))),
            Operation("b", "aten.add_.Scalar", (Use(3), 1.0), writes=(3,)),
            Operation("c", "aten.mul.Tensor", (Use(4), Use(2))),
            Operation("d", "aten.mul.Tensor", (Use(3), Use(5))),
            Operation("e", "aten.sum.default", (Use(6),)),
        )
        made = Program(sources, operations, 7, Use(7))
        form = Form((4,), (1,), torch.float32)
        facts = facts_module.facts_of(made, [form, form, form], trains=True)
        placement = ownership.by_owners(made, facts, lambda name: int(name[1:]), lambda name: False)
        cut = pieces.cut_into_pieces(made, placement, ownership.order_edges(made, facts))
        self.assertEqual([piece.operations for piece in cut.pieces], [(0, 1), (2, 3, 4)])
        self.assertEqual(sorted(cut.pieces[1].inputs), [3, 4])

    def test_refuse_an_operation_with_parameters_of_two_ranks(self):
        sources = (Source("parameter", "p0"), Source("parameter", "p1"))
        made = Program(sources, (Operation("a", "aten.mul.Tensor", (Use(0), Use(1))),), None, Use(2))
        form = Form((4,), (1,), torch.float32)
        facts = facts_module.facts_of(made, [form, form], trains=True)
        with self.assertRaisesRegex(program.Unservable, "a works with 'p0' of rank 0 and 'p1' of rank 1"):
            ownership.by_owners(made, facts, lambda name: int(name[1:]), lambda name: False)


def played(made, cut, paths, sources: dict, batch: torch.Tensor) -> tuple:
    """The loss and the gradients of parameters, piece by piece, as the engine hands values on."""
    parameters = {f"p{i}": one.clone().requires_grad_() for i, one in enumerate(sources)}
    values, tapes = {0: batch}, []
    for number, piece in enumerate(cut.pieces):
        given = [parameters[made.sources[value].name] for value in piece.sources]
        leaves = {v: values[v].detach().requires_grad_(v != 0) for v in piece.inputs}
        outputs = code.Compiled(made, piece, number).call(given, list(leaves.values()))
        values.update(zip(piece.outputs, outputs))
        tapes.append((leaves, dict(zip(piece.outputs, outputs))))
    handed: dict = {}
    for number in reversed(range(len(cut.pieces))):
        leaves, outputs = tapes[number]
        roots = [(one, handed.pop((v, number), None)) for v, one in {**outputs, **leaves}.items()
                 if (v, number) in handed or v == made.loss]
        roots += [(one, gained) for one in parameters.values() if (gained := one.grad) is not None]
        for one in parameters.values():
            one.grad = None
        torch.autograd.backward([one for one, _ in roots], [gradient for _, gradient in roots])
        for value, leaf in leaves.items():
            if number in paths.givers.get(value, ()):
                handed[value, paths.next_of(value, number, cut.maker[value])] = leaf.grad
    return values[made.loss], [one.grad for one in parameters.values()]


class GradientPaths(unittest.TestCase):
    def test_give_the_bits_of_one_graph_whatever_the_cut_and_the_uses(self):
        generator = torch.Generator().manual_seed(3)
        batch = torch.randn(4, generator=generator)
        weights = [torch.randn(4, generator=generator) for _ in range(4)]
        for owners in map("".join, itertools.product("012", repeat=4)):
            # Value 1 is used five times, by operations of several ranks.
            made, facts, cut = cut_of(owners, skips=((1, 1), (2, 1), (3, 1)))
            paths = paths_module.gradient_paths(made, cut, facts, trains=True)
            whole = pieces.Cut((pieces.Piece(0, tuple(range(len(made.operations))), (1, 2, 3, 4), (0,),
                                             (made.loss,), False),), {0: -1, made.loss: 0}, {0: (0,)})
            want = played(made, whole, paths_module.GradientPaths(), weights, batch)
            got = played(made, cut, paths, weights, batch)
            self.assertTrue(torch.equal(got[0], want[0]), owners)
            self.assertTrue(all(map(torch.equal, got[1], want[1])), owners)


class Orders(unittest.TestCase):
    def test_of_all_small_pipelines_end_and_keep_their_limits(self):
        for owners in ("01", "010", "0110", "0101", "012", "0120", "01230", "0213"):
            made, facts, cut = cut_of(owners)
            paths = paths_module.gradient_paths(made, cut, facts, trains=True)
            waits = paths_module.waits_of(cut, paths)
            ranks = [piece.rank for piece in cut.pieces]
            for m, kind, active in itertools.product((1, 2, 4, 8), ("interleaved", "simple"), (1, 2, 3, 6)):
                pipeline = order.Pipeline(max(ranks) + 1, m, kind, active)
                orders = order.order_of(ranks, waits, [1.0] * len(ranks), pipeline)
                with self.subTest(owners=owners, m=m, kind=kind, active=active):
                    self.assertEqual(order.stands_still(ranks, waits, orders), "")
                    done = sorted(one for of_rank in orders for one in of_rank)
                    self.assertEqual(done, sorted(order.Action(op, piece, j) for op in (F, B)
                                                  for piece in range(len(ranks)) for j in range(m)))
                    if kind == "interleaved":
                        for of_rank in orders:
                            self.assertLessEqual(order.most_held(of_rank), active)
                    else:
                        for of_rank in orders:
                            kinds = [one.kind for one in of_rank]
                            self.assertEqual(kinds, sorted(kinds, reverse=True))

    def test_that_wait_in_a_circle_are_named(self):
        waits = order.Waits([set(), {0}], [{1}, set()], frozenset({0, 1}))
        orders = [[order.Action(B, 0, 0), order.Action(F, 0, 0)], [order.Action(F, 1, 0)]]
        self.assertIn("rank 0: Action(kind='B', piece=0", order.stands_still([0, 1], waits, orders))

    def test_are_the_same_again(self):
        _, _, cut = cut_of("01230")
        waits = order.Waits([cut.before(n) for n in range(5)], [{1}, {2}, {3}, {4}, set()], frozenset(range(5)))
        pipeline = order.Pipeline(4, 8, "interleaved", 6)
        ranks = [piece.rank for piece in cut.pieces]
        self.assertEqual(order.list_order(ranks, waits, [1.0] * 5, pipeline),
                         order.list_order(ranks, waits, [1.0] * 5, pipeline))


class GraphCuts(unittest.TestCase):
    def cost(self, graph: dict, ranks: dict[str, int]) -> float:
        return sum(edge["bytes"] for edge in graph["edges"] if ranks[edge["from"]] != ranks[edge["to"]])

    def test_have_the_fewest_bytes_that_any_balanced_cut_has(self):
        """Against every cut into two of graphs of up to eleven operations."""
        choose = random.Random(5)
        for _ in range(12):
            owners = "0" * choose.randint(4, 6)
            skips = tuple((i, choose.randrange(i)) for i in range(1, len(owners)) if choose.random() < 0.5)
            made, facts = chain_of(owners, skips=skips)
            graph = graph_cut.graph_of(made, facts, lambda name: False)
            names = [one["name"] for one in graph["operations"]]
            sizes = [(one["time"], one["activation_bytes"] + sum(one.get("shared", {}).values()))
                     for one in graph["operations"]]
            cut = graph_cut.by_graph(made, facts, 2, "memory", lambda name: False)
            got = dict(zip(names, cut.placement.ranks))
            limits = [max(1.05 * sum(one[i] for one in sizes) / 2, max(one[i] for one in sizes))
                      for i in range(2)]
            least = min((self.cost(graph, dict(zip(names, chosen)))
                         for chosen in itertools.product((0, 1), repeat=len(names))
                         if len(set(chosen)) == 2 and self.ordered(graph, dict(zip(names, chosen)))
                         and self.fits(chosen, sizes, limits)), default=None)
            if least is not None and self.fits(cut.placement.ranks, sizes, limits):
                self.assertEqual(self.cost(graph, got), least, (owners, skips))
            elif least is not None:
                self.fail(f"{cut.placement.ranks} is out of balance, and another cut is not")

    def ordered(self, graph: dict, ranks: dict[str, int]) -> bool:
        return all(ranks[edge["from"]] <= ranks[edge["to"]] for edge in graph["edges"])

    def fits(self, ranks, sizes, limits) -> bool:
        for rank in (0, 1):
            for i, limit in enumerate(limits):
                if sum(size[i] for size, one in zip(sizes, ranks) if one == rank) > limit:
                    return False
        return True

    def test_add_gradients_of_a_value_in_the_order_of_the_program(self):
        """Five operations use one value; whatever the cut, pieces come to them in their order."""
        for ranks in itertools.product((0, 1, 2), repeat=5):
            made, facts, cut = cut_of("".join(map(str, ranks)), skips=((1, 1), (2, 1), (3, 1), (4, 1)))
            where = {one: number for number, piece in enumerate(cut.pieces) for one in piece.operations}
            uses = [where[one] for one in made.users()[made.value_of(0)]]
            wrong = pieces.out_of_order(made, facts, cut)
            self.assertEqual(uses != sorted(uses), any(
                {first, second} <= set(made.users()[made.value_of(0)]) for first, second in wrong), ranks)
        for parts in (2, 3):
            made, facts = chain_of("00000", skips=((1, 1), (2, 1), (3, 1), (4, 1)))
            found = graph_cut.by_graph(made, facts, parts, "memory", lambda name: False)
            edges = ownership.order_edges(made, facts)
            self.assertEqual(pieces.cut_in_order(made, facts, found.placement, edges).wrong, [])

    def test_keep_operations_of_one_parameter_together(self):
        sources = (Source("input", "0"), Source("parameter", "a"), Source("parameter", "b"),
                   Source("parameter", "c"))
        operations, value = [], 0
        for name in (1, 2, 3, 1):
            operations.append(Operation(f"op{len(operations)}", "aten.mul.Tensor", (Use(value), Use(name))))
            value = 4 + len(operations) - 1
        made = Program(sources, tuple(operations), None, Use(value))
        form = Form((4,), (1,), torch.float32)
        facts = facts_module.facts_of(made, [form] * 4, trains=True)
        cut = graph_cut.by_graph(made, facts, 2, "speed", lambda name: False)
        self.assertEqual(cut.placement.ranks[0], cut.placement.ranks[3])
        self.assertEqual(len(set(cut.placement.ranks)), 2)
        self.assertEqual(cut.owners["a"], cut.placement.ranks[0])


class Messages(unittest.TestCase):
    def test_lie_one_after_the_other_as_they_were(self):
        turned = torch.arange(6.0).reshape(2, 3).t()
        gap = torch.arange(12.0).reshape(3, 4)[:, :2]
        forms = [packing.sent_form(program.form_of(one)) for one in
                 (turned, gap, torch.tensor(3), torch.zeros(0, 2))]
        self.assertEqual([form.stride for form in forms], [(1, 3), (2, 1), (), (2, 1)])
        box = packing.Boxes().take("a", packing.Layout(forms))
        for part, one in zip(box.parts, (turned, gap, torch.tensor(3), torch.zeros(0, 2))):
            part.copy_(one)
            self.assertEqual(part.data_ptr() % 64 if part.numel() else 0, box.memory.data_ptr() % 64)
        self.assertTrue(torch.equal(box.parts[0], turned) and torch.equal(box.parts[1], gap))

    def test_take_memory_that_is_free_again(self):
        boxes, layout = packing.Boxes(), packing.Layout([Form((4,), (1,), torch.float32)])
        first = boxes.take("a", layout)
        second = boxes.take("a", layout)
        boxes.give("a", first)
        self.assertIs(boxes.take("a", layout), first)
        self.assertTrue(boxes.lent(second.parts[0].view(2, 2)))
        self.assertFalse(boxes.lent(torch.zeros(1)))


LIMIT = 3


class Surroundings(unittest.TestCase):
    def test_tell_apart_what_a_step_reads(self):
        global LIMIT
        model, scale, words = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)), [2.0], {"a": {"b": 1}}

        def step(x):
            return model(x) * scale[0] * LIMIT * words["a"]["b"]

        def key():
            return surroundings.key_of(functools.partial(step, torch.zeros(2, 2)), model)

        first = key()
        self.assertEqual(first, key())
        changes = []
        scale[0] = 3.0
        changes.append(key())
        words["a"]["b"] = 2
        changes.append(key())
        model[1].p = 0.25
        changes.append(key())
        model[1].eval()
        changes.append(key())
        LIMIT = 4
        changes.append(key())
        model[0].extra = "new"
        changes.append(key())
        model[0].weight.requires_grad_(False)
        changes.append(key())
        self.assertEqual(len({first, *changes}), 1 + len(changes))
        with torch.no_grad():
            self.assertNotEqual(key(), changes[-1])
        self.assertNotEqual(
            surroundings.key_of(functools.partial(step, torch.zeros(3, 2)), model), changes[-1])

    def test_tell_apart_what_classes_slots_arrays_and_modules_hold(self):
        class Terms:
            alpha = 1.0

        class Slotted:
            __slots__ = ("beta",)

        class Scaled(nn.Linear):
            factor = 1.0

            def forward(self, x):
                return super().forward(x) * self.factor

        model, slotted, array = nn.Sequential(Scaled(2, 2)), Slotted(), np.ones(2)
        slotted.beta = 1.0
        losses = types.ModuleType("losses")
        exec("GAMMA = 1.0\nWEIGHTS = {'a': 1.0}\ndef loss(x):\n    return x * GAMMA", vars(losses))

        def step(x):
            return losses.loss(model(x)) * losses.WEIGHTS["a"] * Terms.alpha * slotted.beta * array[0]

        def key():
            return surroundings.key_of(functools.partial(step, torch.zeros(2, 2)), model)

        keys = [key()]
        self.assertEqual(keys[0], key())
        Terms.alpha = 2.0
        keys.append(key())
        slotted.beta = 2.0
        keys.append(key())
        array[0] = 2.0
        keys.append(key())
        losses.GAMMA = 2.0
        keys.append(key())
        Scaled.factor = 2.0
        keys.append(key())
        losses.WEIGHTS["a"] = 2.0
        keys.append(key())
        self.assertEqual(len(set(keys)), len(keys))
        array = np.ones(1 << 20)
        with self.assertRaisesRegex(program.Unservable, "8388608 bytes"):
            key()

    def test_put_back_what_classes_slots_and_arrays_held(self):
        class Stats:
            calls = 0

        class Slotted:
            __slots__ = ("_Slotted__calls", "late")

        slotted, array, model = Slotted(), np.zeros(2), nn.Sequential(nn.Linear(2, 2))
        slotted._Slotted__calls = 0

        def step(x):
            return model(x) * Stats.calls * slotted._Slotted__calls * array[0]

        before = surroundings.Snapshot(step, model)
        self.assertEqual(before.changes(), [])
        Stats.calls, slotted._Slotted__calls, array[0] = 1, 1, 1
        self.assertEqual(len(before.changes()), 3)
        before.restore()
        self.assertEqual((Stats.calls, slotted._Slotted__calls, array[0]), (0, 0, 0))

    def test_end_where_a_function_names_itself(self):
        class Again(nn.Module):
            def forward(self, x):
                return x if x.dim() == 1 else self.forward(x[0])

        def step(x):
            return Again()(x) if x.dim() else step(x[None])

        model = nn.Sequential(Again())
        keys = [surroundings.key_of(functools.partial(step, torch.zeros(2, 2)), model) for _ in range(2)]
        self.assertEqual(keys[0], keys[1])

    def test_refuse_what_is_no_computation(self):
        count = 0

        def prints(x):
            print(x)

        def counts(x):
            nonlocal count
            count += 1

        for function, words in ((prints, "prints"), (counts, "assigns 'count' outside")):
            with self.assertRaisesRegex(program.Unservable, words):
                surroundings.require_only_computes(function)
        model = nn.Sequential(nn.Linear(2, 2))
        self.assertEqual(surroundings.refusal_here(model), "")
        model[0].register_forward_hook(lambda *_: None)
        self.assertEqual(surroundings.refusal_here(model), "module '0' has hooks")


if __name__ == "__main__":
    unittest.main()
