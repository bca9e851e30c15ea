"""Tests of what the split stands on, without ranks: policy, messages, recomputation, tracing.

Use: python tests/system/torch/smp/pieces_test.py. Needs torch and sprat.torch.
"""

from __future__ import annotations

import gc
import importlib
import pathlib
import queue
import signal
import tempfile
import threading
import unittest
import weakref

import torch
from torch import nn

policy = importlib.import_module("sprat.torch.smp.server.policy")
messages = importlib.import_module("sprat.torch.smp.server.messages")
meetings = importlib.import_module("sprat.torch.smp.server.meetings")
server = importlib.import_module("sprat.torch.smp.server.server")
wires = importlib.import_module("sprat.torch.smp.server.wire")
tasks = importlib.import_module("sprat.torch.smp.server.tasks")
interrupts = importlib.import_module("sprat.torch.smp.faults.interrupts")
loss_path = importlib.import_module("sprat.torch.smp.faults.loss_path")
recomputation = importlib.import_module("sprat.torch.smp.recomputation")
split = importlib.import_module("sprat.torch.smp.split")
loss_scale = importlib.import_module("sprat.torch.smp.loss_scale")
optimizers = importlib.import_module("sprat.torch.smp.optimizers")
shards = importlib.import_module("sprat.torch.smp.shards.optimizer_state")
tracing = importlib.import_module("sprat.torch.smp.tracing")
F, B = policy.FORWARD, policy.BACKWARD


def candidate(direction: str, microbatch: int, number: int, begins: bool = False):
    return policy.Candidate(direction, microbatch, number, begins)


def answered(direction: str, microbatch: int, number: int):
    return policy.Candidate(direction, microbatch, number, answered=True)


class Policies(unittest.TestCase):
    def chosen(self, schedule, candidates, active=0, most=2, left=0):
        one = policy.next_task(schedule, policy.View(candidates, active, most, left))
        return one and one.number

    def test_choose_by_table(self):
        waiting = [candidate(F, 0, 1), candidate(B, 2, 2), candidate(B, 1, 3)]
        begins = [candidate(F, 3, 4, begins=True)]
        for schedule, candidates, active, left, number in (
            ("interleaved", waiting, 1, 0, 3),  # backward first, the lowest micro-batch
            ("interleaved", waiting[:1], 1, 0, 1),
            ("interleaved", begins, 1, 0, 4),
            ("interleaved", begins, 2, 0, None),  # as many as may be are active
            ("interleaved", [], 0, 0, None),
            ("simple", waiting, 1, 2, 1),  # forwards, while one of the step is left
            ("simple", waiting[1:], 1, 2, None),
            ("simple", waiting, 1, 0, 3),
            ("simple", begins, 9, 2, 4),  # all are active before the first backward
            # A forward before the rest of a backward, be it a loss or a new one; a backward that begins before all.
            ("interleaved", [answered(B, 0, 1), candidate(F, 3, 2, begins=True)], 1, 0, 2),
            ("interleaved", [answered(B, 0, 1), answered(F, 3, 2)], 1, 0, 2),
            ("interleaved", [answered(F, 0, 1), candidate(B, 3, 2)], 1, 0, 2),
            ("interleaved", [candidate(F, 0, 1), answered(B, 3, 2)], 1, 0, 1),
        ):
            with self.subTest(schedule=schedule, candidates=candidates, active=active, left=left):
                self.assertEqual(self.chosen(schedule, candidates, active, left=left), number)

    def test_do_not_depend_on_the_order_of_candidates(self):
        waiting = [candidate(B, 2, 2), candidate(B, 1, 3), candidate(B, 1, 7), candidate(F, 0, 1)]
        for schedule in ("interleaved", "simple"):
            self.assertEqual(self.chosen(schedule, waiting), self.chosen(schedule, waiting[::-1]))


class Followers(unittest.TestCase):
    """Tensor parallel ranks behind the first of their group, where a step fails."""

    def test_go_on_until_the_first_has_stopped_by_table(self):
        run, wait, leave = policy.RUN, policy.WAIT, policy.LEAVE
        for verdict, told, ready, lost, failed, first_ended in (
            (run, True, True, False, False, False),
            (run, True, True, False, True, False),  # the first may wait in its collectives
            (run, True, True, False, True, True),  # as in those that the first has left already
            (wait, False, False, False, False, False),
            (wait, True, False, False, False, False),
            (wait, False, False, False, True, False),  # the first may still begin something
            (wait, True, False, True, True, False),
            (wait, True, False, False, True, True),  # what it takes is on its way
            (leave, True, False, True, True, True),  # and here it is not
            (leave, False, False, False, True, True),
            (wait, False, False, False, False, True),  # the step ends well
        ):
            view = policy.Following(told, ready, lost, failed, first_ended)
            with self.subTest(view):
                self.assertEqual(policy.follow(view), verdict)

    def served(self, *script: messages.Message) -> tuple[list[int], list[str], str]:
        """What rank 1 of 3 stages, tensor rank 1, has computed and told, and its error."""
        computed: list[int] = []
        wire, peers = WireOfScript(1), WireOfScript(1)
        peers.inbox = wire.inbox
        module = nn.Identity()
        module.register_forward_pre_hook(lambda _, args: computed.append(int(args[0])))
        one = server.Server(wire, {"m": module}, {"m": 1}, "interleaved", 2, peers)
        for message in (messages.Message("begin", source=0), *script):
            wire.inbox.put(message)
        with self.assertRaises(server.StepFailed) as caught:
            one.serve(lambda begin: None)
        return computed, peers.sent, str(caught.exception)

    def asked(self, number: int) -> messages.Message:
        return messages.Message("forward", source=0, call=(0, number), microbatch=0, module="m",
                                value=((torch.tensor(number),), {}), generator=torch.get_rng_state(),
                                modes={"grad": True, "autocast": None})

    def run_of(self, number: int) -> messages.Message:
        return messages.Message("run", source=0, value=("forward", (0, number)), of_peer=True)

    def failed(self, source: int, of_peer: bool = False) -> messages.Message:
        word = messages.LastWord("no such key")
        return messages.Message("failed", source=source, value=word, of_peer=of_peer)

    def test_run_what_the_first_has_run_and_tell_it_what_they_hear(self):
        for name, computes, says, script in (
            ("told before the first stops", [1], ["failed"],
             (self.asked(1), self.run_of(1), self.failed(0, of_peer=True))),
            ("told after another stage has failed", [1, 2], ["heard", "failed"],
             (self.asked(1), self.failed(2), self.run_of(1), self.asked(2), self.run_of(2),
              self.failed(0, of_peer=True))),
            ("its tensors come last", [1], ["failed"],
             (self.run_of(1), self.failed(0, of_peer=True), self.asked(1))),
            ("the first has ended the step", [], ["heard", "failed"],
             (messages.Message("bye", source=0, of_peer=True), self.failed(2))),
            ("who sends its tensors has failed too", [], ["heard", "failed"],
             (self.run_of(1), self.failed(0), self.failed(0, of_peer=True))),
        ):
            with self.subTest(name):
                self.assertEqual(self.served(*script), (computes, says, "no such key"))

    def test_draw_from_the_seed_of_the_first_that_is_alike(self):
        """Of four ranks of a stage two and two: tensor ranks of a replica each."""
        message = messages.Message
        for rank, own, seed, tells in ((0, 5, 5, {1: 5}), (1, 6, 5, {}), (2, 7, 7, {3: 7}), (3, 8, 7, {})):
            wire, peers, first = WireOfScript(0, 1), WireOfScript(rank, 4), rank - rank % 2
            peers.inbox = wire.inbox
            one = server.Server(wire, {}, {}, "interleaved", 1, peers, [first, first + 1])
            if rank > 0:
                wire.inbox.put(message("run", source=0, value=("body", 0), of_peer=True))
            if rank > first:
                wire.inbox.put(message("seed", source=first, value=seed, of_peer=True))
            got = one.lead(message("begin"), [lambda: torch.rand(3)], own)[0]
            self.assertTrue(torch.equal(got, torch.rand(3, generator=torch.Generator().manual_seed(seed))))
            self.assertEqual(peers.seeds, tells)

    def test_leave_at_once_where_a_group_is_broken(self):
        """As where the first has died; the ranks of the pipeline are told nevertheless."""
        computed, said, text = self.served(self.failed(2), ConnectionError("rank 0 is lost"))
        self.assertEqual((computed, said, text), ([], ["heard", "failed"], "no such key"))
        self.assertIn("rank 0 is lost", self.served(ConnectionError("rank 0 is lost"))[2])


class GroupOfScript:
    """Its operations end when a rank aborts it."""

    def __init__(self, begun: int):
        self.begun, self.aborted = begun, threading.Event()

    def _get_sequence_number_for_group(self) -> int:
        return self.begun

    def abort(self) -> None:
        self.aborted.set()


class Meetings(unittest.TestCase):
    """Groups of tensor ranks, one of which has left a step."""

    def test_are_aborted_where_a_rank_waits_for_one_that_has_left_by_table(self):
        a, b = (0, 1), (0, 2)
        for mine, words, waits, ends in (
            ({a: 5}, [{a: 5}], set(), set()),  # all failed at the same place
            ({a: 6}, [{a: 5}], {a}, {a}),
            ({a: 5}, [{a: 6}], set(), {a}),  # the other one waits, and aborts
            ({a: 6}, [{a: 6}, {a: 5}], {a}, {a}),
            ({a: 6, b: 2}, [{a: 6}, {b: 3}], set(), {b}),
            ({a: 6}, [{(2, 3): 1}, {}], set(), set()),  # groups of others; a rank that was refused
        ):
            with self.subTest(mine=mine, words=words):
                self.assertEqual(meetings.left_behind(mine, words), waits)
                self.assertEqual(meetings.uneven(mine, words), ends)

    def left(self, begun: int):
        group = GroupOfScript(begun)
        one = meetings.Meetings({(0, 1): group})
        one.told(messages.LastWord("rank 1 failed", {(0, 1): 5}))
        return group, one

    def test_end_the_call_that_begins_before_or_after_the_word_comes(self):
        for begun in (6, 5):
            group, one = self.left(begun)
            group.begun = 6
            self.assertTrue(group.aborted.wait(30))
            self.assertEqual((one.end(), one.reason(KeyError())), ({(0, 1): 6}, "rank 1 failed"))

    def test_know_which_groups_anyone_has_used(self):
        groups = {(name,): GroupOfScript(begun) for name, begun in (("a", 0), ("b", 1), ("c", 0))}
        one = meetings.Meetings(groups)
        one.overhear(messages.Message("failed", value=messages.LastWord("rank 1 failed", {("a",): 1, ("b",): 0, ("d",): 2})))
        one.end()
        self.assertEqual(one.used(), [groups["a",], groups["b",]])

    def test_go_on_unless_a_call_has_waited(self):
        group, one = self.left(5)
        self.assertEqual(one.end(), {(0, 1): 5})
        one.note_ended()
        one.require_whole()
        self.assertFalse(group.aborted.is_set())
        _, one = self.left(6)
        one.end()
        one.note_ended()
        with self.assertRaisesRegex(ValueError, r"ranks \[0, 1\] ended with an earlier step \(rank 1 failed\)"):
            one.require_whole()


class WireOfScript(wires.Wire):
    """Brings what a test says, and notes the kinds of what is sent to rank 0."""

    def __init__(self, rank: int, size: int = 3):
        self.rank, self.size, self.inbox = rank, size, queue.SimpleQueue()
        self.sent: list[str] = []
        self.seeds: dict[int, int] = {}
        self.coming: list[messages.Message] = []
        self._of_peers, self._early, self._said_last = False, [], False
        self._globals, self.overhears = list(range(size)), lambda message: None

    def open(self, last_kinds: tuple[str, ...]) -> None:
        self._said_last = False

    def send(self, peer: int, message: messages.Message) -> None:
        if message.kind == "seed":
            self.seeds[peer] = message.value
        elif peer == 0:
            self.sent.append(message.kind)

    def close(self) -> None:
        pass

    def _next(self) -> messages.Message:
        return self.coming.pop(0)


class Wires(unittest.TestCase):
    def test_keep_the_next_step_s_messages_of_ranks_that_have_left_this_one(self):
        wire = WireOfScript(0)
        ends = [messages.Message("bye", source=source) for source in (1, 2)]
        wire.coming = [ends[0], messages.Message("begin", source=1), ends[1]]
        for kinds in (["bye", "bye"], ["begin", "bye", "bye"]):
            wire._receive(("bye",))
            self.assertEqual([wire.inbox.get().kind for _ in kinds], kinds)
            self.assertTrue(wire.inbox.empty())
            wire.coming = list(ends)

    def test_say_one_last_word(self):
        wire = WireOfScript(1)
        for kind in ("bye", "failed"):
            wire.send_last(messages.Message(kind))
        self.assertEqual(wire.sent, ["bye"])


class Tasks(unittest.TestCase):
    def test_compute_with_as_many_threads_as_their_caller(self):
        before = torch.get_num_threads()
        try:
            workers = tasks.Workers()  # one thread, which computes with another number each time
            for number, threads in enumerate((1, 3, 1)):
                torch.set_num_threads(threads)
                task = tasks.Task(torch.get_num_threads, F, 0, number)
                task.hand_baton(workers)
                self.assertEqual((task.done, task.error, task.result), (True, None, threads))
        finally:
            torch.set_num_threads(before)

    def test_go_on_where_they_paused(self):
        workers, task = tasks.Workers(), None
        task = tasks.Task(lambda: [task.pause(), task.pause(), tasks.current() is task], F, 0, 1)
        task.hand_baton(workers)
        self.assertFalse(task.done)
        task.hand_baton(workers, "first")
        task.hand_baton(workers, "second")
        self.assertEqual(task.result, ["first", "second", True])
        self.assertIsNone(tasks.current())


    def test_have_threads_that_stay_until_their_workers_go(self):
        workers, seen = tasks.Workers(), []
        for number in range(3):
            tasks.Task(lambda: seen.append(threading.current_thread()), F, 0, number).hand_baton(workers)
        thread, *others = seen
        self.assertEqual([one is thread for one in others], [True, True])
        self.assertTrue(thread.is_alive())
        del workers
        thread.join(timeout=60)
        self.assertFalse(thread.is_alive())

    def test_are_forgotten_once_they_are_done(self):
        workers, task = tasks.Workers(), tasks.Task(lambda: None, F, 0, 1)
        task.hand_baton(workers)
        gone = weakref.ref(task)
        del task
        gc.collect()
        self.assertIsNone(gone())


class Interrupts(unittest.TestCase):
    def after_one(self, then) -> list[str]:
        seen = []
        with self.assertRaises(KeyboardInterrupt), interrupts.held_back():
            signal.raise_signal(signal.SIGINT)
            seen.append("held back")
            then()
            seen.append("goes on")
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)
        interrupts.due()  # it is raised once
        return seen

    def test_wait_for_a_place_where_a_step_can_end(self):
        self.assertEqual(self.after_one(lambda: None), ["held back", "goes on"])
        self.assertEqual(self.after_one(interrupts.due), ["held back"])

    def test_do_not_wait_when_they_come_twice(self):
        self.assertEqual(self.after_one(lambda: signal.raise_signal(signal.SIGINT)), ["held back"])

    def test_leave_a_handler_of_the_program_s_own_alone(self):
        seen = []
        before = signal.signal(signal.SIGINT, lambda *_: seen.append("its own"))
        try:
            with interrupts.held_back():
                signal.raise_signal(signal.SIGINT)
        finally:
            signal.signal(signal.SIGINT, before)
        self.assertEqual(seen, ["its own"])


class LossPaths(unittest.TestCase):
    def test_lead_to_the_model_or_are_refused_by_table(self):
        model, other = nn.Linear(3, 3), nn.Linear(3, 3)
        x = torch.ones(2, 3)

        class Asks(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1

            @staticmethod
            def backward(ctx, gradient):
                return gradient

        for loss, leads in ((model(x).sum(), True), (other(model(x)).sum(), True), (other(model(x).detach()).sum(), False),
                            (other(Asks.apply(x.clone().requires_grad_())).sum(), True),  # another rank may have the model
                            (model.weight, True)):
            if leads:
                loss_path.require_way_back([loss], model)
            else:
                with self.assertRaisesRegex(ValueError, "depends on no parameter of the model"):
                    loss_path.require_way_back([loss], model)
        model.requires_grad_(False)
        loss_path.require_way_back([other(x).sum()], model)  # it trains what comes before or behind the model

    def test_begin_with_one_number_or_with_gradients(self):
        loss, many = torch.ones((), requires_grad=True), torch.ones(3, requires_grad=True)
        loss_path.require_roots([loss, many], [None, torch.ones(3)])
        for roots, given, words in (([many], [None], r"shape \(3,\), and a loss is one number"),
                                    ([loss, many], [None], "2 tensors and 1 gradients"),
                                    ([torch.ones(())], [None], "needs no gradient"), ([3.0], [None], "got a float")):
            with self.assertRaisesRegex(ValueError, words):
                loss_path.require_roots(roots, given)


class Messages(unittest.TestCase):
    def test_come_back_as_they_were(self):
        one = torch.arange(6.0).reshape(2, 3)
        value = {"a": (one.t(), None, "word"), "b": [one, one, 7], "c": torch.zeros(0)}
        sent = messages.Message("forward", call=(1, 2), microbatch=3, module="m", value=value,
                                generator=torch.get_rng_state(), modes={"grad": True})
        header, tensors = messages.pack(sent)
        self.assertEqual(len(tensors), 4)  # the same tensor travels once
        self.assertEqual([tuple(form.shape) for form in messages.open_header(header).forms],
                         [tuple(tensor.shape) for tensor in tensors])
        got = messages.unpack(messages.open_header(header), list(tensors), source=5)
        self.assertEqual((got.kind, got.source, got.call, got.microbatch, got.module, got.modes),
                         ("forward", 5, (1, 2), 3, "m", {"grad": True}))
        self.assertIs(got.value["b"][0], got.value["b"][1])
        self.assertTrue(torch.equal(got.value["a"][0], one.t()))
        self.assertEqual(got.value["a"][1:], (None, "word"))
        self.assertTrue(torch.equal(got.generator, sent.generator))

    def test_name_the_module_whose_values_do_not_pickle(self):
        with self.assertRaisesRegex(ValueError, "module 'm', micro-batch 3.*pickle"):
            messages.pack(messages.Message("forward", module="m", microbatch=3,
                                           value=[lambda: None]))


class Recomputation(unittest.TestCase):
    def test_has_the_bits_of_none(self):
        def trained(change) -> list[torch.Tensor]:
            torch.manual_seed(3)
            layers = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
                                     for _ in range(5)))
            torch.manual_seed(4)
            change(layers)(torch.ones(2, 4)).sum().backward()
            return [one.grad for one in layers.parameters()]

        def marked(strategy):
            def change(layers):
                recomputation.set_activation_checkpointing(layers, strategy=strategy)
                return layers

            return change

        want = trained(lambda layers: layers)
        for strategy in ("each", "contiguous", "group_2"):
            self.assertTrue(all(map(torch.equal, trained(marked(strategy)), want)), strategy)
        each = trained(lambda layers: lambda x: recomputation.checkpoint(layers, x))
        self.assertTrue(all(map(torch.equal, each, want)))
        with self.assertRaisesRegex(ValueError, "group_0.*group_N"):
            trained(marked("group_0"))


class Tracing(unittest.TestCase):
    def test_counts_work_and_bytes_without_numbers(self):
        model = nn.Sequential(nn.Linear(8, 16), nn.Sequential(nn.Linear(16, 4, bias=False)))
        costs = tracing.trace(model, (torch.ones(3, 8),), {})
        tree = tracing.tree_of(model, costs)["module"]
        first, second = tree["children"]
        self.assertEqual((first["time"], first["parameter_bytes"], first["output_bytes"]),
                         (2 * 3 * 8 * 16, 4 * (8 * 16 + 16), 4 * 3 * 16))
        self.assertEqual((second["name"], second["time"]), ("model.1", 0))
        self.assertEqual(second["children"][0]["time"], 2 * 3 * 16 * 4)

    def test_runs_where_numbers_decide_and_leaves_the_model_as_it_was(self):
        class Chooses(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.way = nn.BatchNorm1d(4), nn.Linear(4, 4)

            def forward(self, x):
                x = self.norm(x)
                return self.way(x) if x.sum() > -1e9 else x

        model = Chooses()
        before = {name: value.clone() for name, value in model.state_dict().items()}
        costs = tracing.trace(model, (torch.randn(3, 4),), {},
                              tracing.Traces(execution_times=True, memory_usage=True))
        self.assertEqual(list(costs.first_call), ["", "norm", "way"])
        self.assertGreater(costs.work[""], costs.work["way"])
        self.assertGreaterEqual(costs.kept_bytes["way"], 4 * 3 * 4)
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)

    def test_names_the_module_that_cannot_run(self):
        model = nn.Sequential(nn.Linear(8, 16), nn.Linear(8, 4))
        with self.assertRaisesRegex(ValueError, "module '1' cannot be traced.*skip_tracing"):
            tracing.trace(model, (torch.ones(3, 8),), {})


class PartitionFiles(unittest.TestCase):
    def test_that_are_broken_are_refused(self):
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        good = {"": 0, "0": 0, "1": 1}
        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder) / "split.json")
            split.write_partition(path, split.Split(good), model, 2)
            self.assertEqual(split.read_partition(path, model, 2).owners, good)
            text = pathlib.Path(path).read_text()
            for broken, words in (
                (text.replace('"": 0,', ""), "module 'model' to rank None"),
                (text.replace('"1": 1', '"1": 2'), "module '1' to rank 2"),
                (text.replace('"1": 1', '"1": 1, "2": 0'), "module '2' to rank 0"),
                (text.replace('"": 0', '"": 1'), "not 0"),
                (text.replace('"partitions": 2', '"partitions": 3'), "has 3 partitions"),
                ("[]", "cannot be read"), ("{", "cannot be read"),
                ('{"parameters": 1, "owners": 2, "partitions": 2}', "cannot be read"),
            ):
                pathlib.Path(path).write_text(broken)
                with self.subTest(words), self.assertRaisesRegex(ValueError, words):
                    split.read_partition(path, model, 2)


class Optimizers(unittest.TestCase):
    def trained(self, make, steps=20):
        torch.manual_seed(1)
        parameters = [nn.Parameter(torch.randn(5, 7)), nn.Parameter(torch.randn(3))]
        optimizer = make(parameters)
        generator = torch.Generator().manual_seed(2)
        for _ in range(steps):
            for one in parameters:
                one.grad = torch.randn(one.shape, generator=generator)
            optimizer.step()
        return parameters

    def test_lamb_without_decay_or_clipping_is_adam(self):
        lamb = self.trained(lambda p: optimizers.FusedLamb(p, lr=0.1, eps=1e-8, weight_decay=0, max_grad_norm=0))
        adam = self.trained(lambda p: torch.optim.Adam(p, lr=0.1, eps=1e-8))
        for one, other in zip(lamb, adam):
            # 20 steps of 0.1, each of some ten operations.
            self.assertLess((one - other).abs().max(), 20 * 10 * torch.finfo(torch.float32).eps)

    def test_a_step_of_lamb_is_as_long_as_the_parameter(self):
        one = nn.Parameter(torch.tensor([3.0, 4.0]))
        one.grad = torch.tensor([2.0, 2.0])
        optimizers.FusedLamb([one], lr=0.5, weight_decay=0, use_nvlamb=True, eps=0, max_grad_norm=0).step()
        # The update is (1, 1), its length sqrt(2), the parameter's 5.
        expected = torch.tensor([3.0, 4.0]) - 0.5 * 5 / 2**0.5
        self.assertLess((one - expected).abs().max(), 1e-6)

    def test_lamb_clips_by_the_norm_of_all(self):
        pair = [nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))]
        pair[0].grad, pair[1].grad = torch.tensor([3.0]), torch.tensor([4.0])
        optimizer = optimizers.FusedLamb(pair, betas=(0.5, 0.5), weight_decay=0, max_grad_norm=1.0)
        optimizer.step()
        self.assertAlmostEqual(optimizer.state[pair[1]]["exp_avg"].item(), 0.5 * 0.8, places=6)

    def test_novograd_divides_by_the_mean_of_norms(self):
        one = nn.Parameter(torch.tensor([1.0, 1.0]))
        optimizer = optimizers.FusedNovoGrad([one], lr=1.0, betas=(0.0, 0.5), eps=0, bias_correction=False)
        one.grad = torch.tensor([3.0, 4.0])
        optimizer.step()
        self.assertLess((one - torch.tensor([1 - 0.6, 1 - 0.8])).abs().max(), 1e-6)
        one.grad = torch.tensor([0.0, 1.0])
        optimizer.step()  # the norm's mean is sqrt((25 + 1) / 2)
        self.assertAlmostEqual(one[1].item(), 0.2 - 1 / 13**0.5, places=6)

    def test_balanced_shares_differ_by_the_largest_at_most(self):
        sizes = [7, 1, 9, 3, 3, 8, 2]
        owners = shards.balanced(sizes, 3)
        loads = [sum(size for size, owner in zip(sizes, owners) if owner == part) for part in range(3)]
        self.assertLessEqual(max(loads) - min(loads), max(sizes))
        self.assertEqual(owners, shards.balanced(sizes, 3))


class LossScales(unittest.TestCase):
    def test_follow_a_table(self):
        for arguments, finite, scales in (
            ({"init_scale": 8}, [False, False, True], [4, 2, 2]),
            ({"init_scale": 8, "scale_window": 2}, [True, True, True, True], [8, 16, 16, 32]),
            ({"init_scale": 2, "min_scale": 1}, [False, False], [1, 1]),
            ({"init_scale": 8, "delayed_shift": 2}, [False, False, False], [8, 4, 2]),
            ({"init_scale": 8, "delayed_shift": 2, "consecutive_hysteresis": True},
             [False, True, False, False], [8, 8, 8, 4]),
            ({"init_scale": 8, "scale_factor": 4}, [False], [2]),
        ):
            scale, seen = loss_scale.loss_scale(1.0, True, arguments), []
            for one in finite:
                scale.update(one)
                seen.append(scale.scale)
            self.assertEqual(seen, scales, arguments)

    def test_arguments_that_make_no_sense_are_named(self):
        for call, words in (
            ((0, False, None), "static_loss_scale = 0"),
            ((1, False, {"init_scale": 2}), "need dynamic_loss_scale=True"),
            ((1, True, {"scale": 2}), "has no 'scale'"),
            ((1, True, {"scale_window": 0}), "scale_window = 0"),
        ):
            with self.assertRaisesRegex(ValueError, words):
                loss_scale.loss_scale(*call)


if __name__ == "__main__":
    unittest.main()
