"""Tests of sprat.torch.data: what batches are, passes, states, decoding, interrupts, forks.

Use: python tests/system/torch/data_test.py. Needs sprat.torch; runs in one process and a few children.
"""

from __future__ import annotations

import array
import functools
import gc
import io
import json
import os
import pathlib
import pickle
import signal
import tarfile
import tempfile
import threading
import time
import unittest
import warnings

import launch
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from sprat.torch import data

LENGTH, BATCH = 15, 4


class Case(unittest.TestCase):
    """Tokens 0, 1, 2 ... in two files, and a tar of images that are no images."""

    samples = 21

    @classmethod
    def setUpClass(cls):
        held = tempfile.TemporaryDirectory()
        cls.addClassCleanup(held.cleanup)
        cls.folder = pathlib.Path(held.name)
        for number, (begin, end) in enumerate(((0, 1000), (1000, 2500))):
            (cls.folder / f"tokens{number}.bin").write_bytes(array.array("H", range(begin, end)).tobytes())
        with tarfile.open(cls.folder / "images.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for sample in range(cls.samples):
                for ending, content in ((".jpg", bytes([sample]) * (100 + sample)), (".txt", f"picture {sample}".encode()),
                                        (".json", json.dumps({"id": sample}).encode())):
                    member = tarfile.TarInfo(f"{sample:04}{ending}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))

    def tokens(self, **options) -> data.DataLoader:
        options = {"batch": BATCH, "length": LENGTH, "format": "tokens", "token_type": "u16"} | options
        return self.closed(data.DataLoader(self.folder / "tokens*.bin", **options))

    def images(self, **options) -> data.DataLoader:
        return self.closed(data.DataLoader(self.folder / "images.tar", **({"batch": BATCH} | options)))

    def closed(self, loader: data.DataLoader) -> data.DataLoader:
        self.addCleanup(loader.close)
        return loader


def ids(batch: list) -> list[int]:
    return [record["json"]["id"] for record in batch]


class Tokens(Case):
    def test_a_batch_is_one_tensor_of_rows_that_follow_each_other(self):
        batch = next(iter(self.tokens(shuffle=False)))
        self.assertEqual((batch.dtype, tuple(batch.shape)), (torch.uint16, (BATCH, LENGTH + 1)))
        rows = torch.stack([torch.arange(i * LENGTH, i * LENGTH + LENGTH + 1) for i in range(BATCH)])
        self.assertTrue(torch.equal(batch.long(), rows), batch)

    def test_inputs_and_targets_are_views_of_it(self):
        inputs, targets = next(iter(self.tokens(targets=True)))
        self.assertEqual(targets.data_ptr() - inputs.data_ptr(), 2)
        self.assertTrue(torch.equal(inputs.long() + 1, targets.long()))

    def test_another_dtype_is_converted(self):
        batch = next(iter(self.tokens(dtype=torch.int64)))
        self.assertEqual(batch.dtype, torch.int64)
        self.assertTrue(torch.equal(batch[:, :-1] + 1, batch[:, 1:]))

    def test_tensors_outlive_the_loader(self):
        loader = self.tokens(shuffle=False)
        batches = [batch for batch, _ in zip(loader, range(3))]
        copies = [batch.clone() for batch in batches]
        loader.close()
        del loader
        gc.collect()
        for batch, copy in zip(batches, copies):
            self.assertTrue(torch.equal(batch, copy))

    def test_a_row_kept_keeps_its_batch(self):
        loader = self.tokens(shuffle=False, epochs=0)
        batches = iter(loader)
        row = next(batches)[1]
        for _ in range(50):
            next(batches)
        self.assertEqual(row.tolist(), list(range(LENGTH, 2 * LENGTH + 1)))

    def test_ranks_share_a_batch(self):
        whole = [batch.long() for batch in self.tokens(batch=7)]
        for ranks in (2, 3, 8):
            parts = [list(self.tokens(batch=7, rank=rank, ranks=ranks)) for rank in range(ranks)]
            for number, batch in enumerate(whole):
                shared = torch.cat([of_rank[number].long() for of_rank in parts])
                self.assertTrue(torch.equal(shared, batch), f"batch {number} of {ranks} ranks")


class Records(Case):
    def test_fields_have_the_types_of_python(self):
        loader = self.images(shuffle=False)
        record = next(iter(loader))[2]
        self.assertEqual(set(record), {"__key__", "jpg", "txt", "json"})
        self.assertIsInstance(record["jpg"], memoryview)
        self.assertTrue(record["jpg"].readonly)
        self.assertEqual(record["jpg"], bytes([2]) * 102)
        self.assertEqual(record["json"], {"id": 2})
        self.assertEqual(record["txt"] if isinstance(record["txt"], str) else bytes(record["txt"]).decode(), "picture 2")
        self.assertEqual(record.sample, 2)

    def test_bytes_outlive_the_loader(self):
        loader = self.images(shuffle=False)
        image = next(iter(loader))[3]["jpg"]
        loader.close()
        del loader
        gc.collect()
        self.assertEqual(image, bytes([3]) * 103)

    def test_collate_makes_the_batch(self):
        self.assertEqual(next(iter(self.images(shuffle=False, collate=ids))), [0, 1, 2, 3])

    def test_last_says_where_a_batch_comes_from(self):
        loader = self.images(shuffle=False)
        batches = iter(loader)
        next(batches), next(batches)
        last = loader.last
        self.assertEqual((last.index, last.first, last.size), (1, BATCH, BATCH))
        self.assertEqual((last.records, last.sources, last.epochs), ([4, 5, 6, 7], [0] * 4, [0] * 4))


class Passes(Case):
    def test_each_iter_is_a_pass_of_len_batches(self):
        loader = self.images()
        first, second = ([i for batch in loader for i in ids(batch)] for _ in range(2))
        self.assertEqual(len(loader), 6)
        for seen in (first, second):
            self.assertEqual(len(seen), 6 * BATCH)
            self.assertEqual(set(seen), set(range(self.samples)))
        self.assertNotEqual(first, second)

    def test_remainder_drop_gives_whole_batches_of_an_epoch(self):
        loader = self.images(remainder="drop")
        self.assertEqual(len(loader), 5)
        seen = [i for batch in loader for i in ids(batch)]
        self.assertEqual((len(seen), len(set(seen))), (20, 20))

    def test_a_pass_left_early_goes_on_with_others_if_shuffled(self):
        loader = self.images(remainder="drop")
        first = [ids(batch) for batch, _ in zip(loader, range(2))]
        second = [ids(batch) for batch, _ in zip(loader, range(2))]
        seen = [i for batch in first + second for i in batch]
        self.assertEqual(len(set(seen)), len(seen))

    def test_a_pass_left_early_begins_again_without_a_shuffle(self):
        loader = self.images(shuffle=False)
        for _ in range(2):
            self.assertEqual([ids(batch) for batch, _ in zip(loader, range(2))], [[0, 1, 2, 3], [4, 5, 6, 7]])

    def test_epochs_in_one_iter(self):
        loader = self.images(epochs=3, remainder="drop")
        self.assertEqual(len(loader), 15)
        self.assertEqual(sum(1 for _ in loader), 15)
        self.assertEqual(sum(1 for _ in loader), 15, "again from the first")

    def test_endless_has_no_length(self):
        loader = self.images(epochs=0)
        with self.assertRaisesRegex(TypeError, "goes on for ever"):
            len(loader)
        self.assertEqual(sum(1 for _ in zip(loader, range(30))), 30)
        over = self.images(epochs=2, remainder="carry")
        self.assertEqual((len(over), sum(1 for _ in over)), (10, 10), "42 samples are ten batches of 4")

    def test_an_older_iterator_is_refused(self):
        loader = self.images()
        old = iter(loader)
        next(old)
        next(iter(loader))
        with self.assertRaisesRegex(RuntimeError, r"another iter\(\)"):
            next(old)


class States(Case):
    def rest(self, loader) -> list[list[int]]:
        return [ids(batch) for batch in loader]

    def test_a_state_goes_on_behind_its_batch(self):
        for after in (0, 1, 3, 5, 6):
            loader = self.images(seed=7)
            batches = iter(loader)
            for _ in range(after):
                next(batches)
            state = pickle.loads(pickle.dumps(loader.state_dict()))
            self.assertLess(len(json.dumps(state)), 2048)
            expected = [self.rest(batches), self.rest(loader)]
            resumed = self.images(seed=7)
            resumed.load_state_dict(state)
            self.assertEqual([self.rest(resumed), self.rest(resumed)], expected, f"after {after} batches")

    def test_a_state_between_passes_loses_none(self):
        loader = self.images(seed=7)
        self.rest(loader)
        state = loader.state_dict()
        expected = self.rest(loader)
        resumed = self.images(seed=7)
        resumed.load_state_dict(state)
        self.assertEqual(self.rest(resumed), expected)

    def test_states_are_equal_on_ranks_and_serve_any_number_of_them(self):
        loaders = [self.images(rank=rank, ranks=3) for rank in range(3)]
        running = [iter(loader) for loader in loaders]
        for _ in range(2):
            for batches in running:
                next(batches)
        states = [loader.state_dict() for loader in loaders]
        self.assertEqual(states[0], states[1])
        self.assertEqual(states[0], states[2])
        expected = [sum(of_ranks, []) for of_ranks in zip(*(self.rest(batches) for batches in running))]
        alone = self.images()
        alone.load_state_dict(states[0])
        self.assertEqual(self.rest(alone), expected)

    def test_a_finished_run_stays_finished(self):
        loader = self.images(epochs=1)
        self.rest(loader)
        resumed = self.images(epochs=1)
        resumed.load_state_dict(loader.state_dict())
        self.assertEqual(self.rest(resumed), [])

    def test_states_of_others_are_refused(self):
        loader = self.images()
        with self.assertRaisesRegex(ValueError, "is missing"):
            loader.load_state_dict({})
        state = loader.state_dict()
        with self.assertRaisesRegex(ValueError, "version 99"):
            loader.load_state_dict(state | {"version": 99})
        with self.assertRaises(ValueError):
            self.images(seed=1).load_state_dict(state)
        with self.assertRaises(ValueError):
            self.tokens().load_state_dict(state)


class Decoding(Case):
    def test_a_function_of_the_record_changes_it(self):
        def decode(record: data.Record) -> dict:
            pixels = torch.frombuffer(bytearray(record["jpg"]), dtype=torch.uint8)
            return {"pixels": pixels.float().view(2, -1) if len(pixels) % 2 == 0 else pixels.float().view(1, -1),
                    "number": record.sample, "name": "é", "json": record["json"]}

        record = next(iter(self.images(shuffle=False, decode=decode)))[2]
        self.assertEqual(set(record), {"pixels", "number", "name", "json"})
        self.assertTrue(torch.equal(record["pixels"], torch.full((2, 51), 2.0)))
        self.assertEqual((record["number"], record["name"], record["json"]), (2, "é", {"id": 2}))

    def test_a_record_changed_in_place_needs_no_return(self):
        def decode(record: data.Record) -> None:
            del record["txt"]
            record["jpg"] = bytes(record["jpg"])[:3]

        record = next(iter(self.images(shuffle=False, decode=decode)))[1]
        self.assertEqual((set(record), record["jpg"]), ({"__key__", "jpg", "json"}, b"\1\1\1"))

    def test_functions_of_fields_and_several_in_turn(self):
        record = next(iter(self.images(shuffle=False, decode={"jpg": len, "absent": len})))[1]
        self.assertEqual(record["jpg"], 101)
        twice = [lambda record: {"n": len(record["jpg"])}, lambda record: {"n": record["n"] * 2}]
        self.assertEqual(next(iter(self.images(shuffle=False, decode=twice)))[1], {"n": 202})

    def test_what_it_raises_stops_and_is_named(self):
        def broken(record: data.Record) -> dict:
            raise KeyError("no such thing")

        with self.assertRaisesRegex(RuntimeError, '(?s)decode stage "broken": KeyError.*no such thing'):
            next(iter(self.images(decode=broken)))

    def test_what_it_raises_may_be_skipped(self):
        def picky(record: data.Record) -> None:
            if record["json"]["id"] == 5:
                raise ValueError("not this one")

        seen = [i for batch in self.images(decode=picky, corrupt="skip") for i in ids(batch)]
        self.assertEqual(set(seen), set(range(self.samples)) - {5})

    def test_a_view_kept_beyond_the_call_is_refused(self):
        kept = []
        with self.assertRaisesRegex(RuntimeError, "copy what is kept"):
            next(iter(self.images(decode=lambda record: kept.append(memoryview(record["jpg"])[2:]))))
        kept.clear()

    def test_no_field_of_that_type_is_an_error(self):
        with self.assertRaisesRegex(RuntimeError, "give a dict of fields"):
            next(iter(self.images(decode=lambda record: 3)))


class Interrupts(Case):
    def test_ctrl_c_ends_a_wait_and_the_loader_goes_on(self):
        # A shell's background job has it ignored.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        free = threading.Event()
        loader = self.images(shuffle=False, decode=lambda record: free.wait(60) and None)
        batches = iter(loader)
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            next(batches)
        self.assertLess(time.monotonic() - begin, 5)
        free.set()
        self.assertEqual(ids(next(iter(loader))), [0, 1, 2, 3], "no batch is lost")

    def test_a_wait_that_is_too_long_ends(self):
        free = threading.Event()
        loader = self.images(decode=lambda record: free.wait(60) and None, timeout=0.5)
        begin = time.monotonic()
        with self.assertRaises(TimeoutError):
            next(iter(loader))
        self.assertLess(time.monotonic() - begin, 10)
        free.set()


class Processes(Case):
    def test_pytorchs_loader_serves_it_without_workers(self):
        ours = self.images(seed=3)
        theirs = data.Dataset(self.folder / "images.tar", batch=BATCH, seed=3)
        self.closed(theirs)
        served = torch.utils.data.DataLoader(theirs, batch_size=None)
        self.assertEqual([ids(batch) for batch in served], [ids(batch) for batch in ours])
        self.assertEqual(len(served), 6)

    def test_workers_are_refused_with_what_to_do(self):
        dataset = self.closed(data.Dataset(self.folder / "images.tar", batch=BATCH))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's, of threads and fork
            with self.assertRaisesRegex(RuntimeError, "num_workers=0"):
                next(iter(torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1)))
        with self.assertRaisesRegex(TypeError, "num_workers=0"):
            pickle.dumps(dataset)

    def test_a_child_of_fork_has_loaders_of_its_own(self):
        loader = self.tokens(shuffle=False)
        batches = iter(loader)
        kept = next(batches)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            code = 9
            try:
                try:
                    next(batches)
                except RuntimeError as error:
                    code = 0 if "before fork()" in str(error) else 2
                values = kept.tolist()
                del kept, batches, loader
                gc.collect()
                with self.tokens(shuffle=False) as own:
                    if next(iter(own)).tolist() != values:
                        code = 3
            finally:
                os._exit(code)
        deadline = time.monotonic() + 30
        ended, status = 0, 0
        while not ended and time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.02)
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        self.assertTrue(ended, "the child hangs")
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)
        next(batches)

    def test_stateful_loaders_of_torchdata_serve_it(self):
        try:
            from torchdata.stateful_dataloader import StatefulDataLoader
        except ImportError:
            self.skipTest("needs the package torchdata: pip install torchdata")
        made = [self.closed(data.Dataset(self.folder / "images.tar", batch=BATCH, seed=3)) for _ in range(2)]
        served = StatefulDataLoader(made[0], batch_size=None)
        batches = iter(served)
        next(batches), next(batches)
        state = served.state_dict()
        resumed = StatefulDataLoader(made[1], batch_size=None)
        resumed.load_state_dict(state)
        self.assertEqual([ids(batch) for batch in resumed], [ids(batch) for batch in batches])


class Places(Case):
    def test_torch_distributed_says_which_rank(self):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            self.assertEqual(data._place(None, None, None), (0, 1))
            self.assertEqual(data._place(None, None, dist.group.WORLD), (0, 1))
            mesh = DeviceMesh("cpu", [[0]], mesh_dim_names=("data", "tensor"))
            self.assertEqual(data._place(None, None, mesh["data"]), (0, 1))
            self.assertEqual(data._place(None, None, mesh), (0, 1))
        finally:
            dist.destroy_process_group()

    def test_a_rank_that_sees_other_files_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            def loader(**options) -> data.DataLoader:
                return data.DataLoader(f"{folder}/*.bin", batch=BATCH, length=LENGTH, format="tokens", token_type="u16", **options)

            (pathlib.Path(folder) / "a.bin").write_bytes(array.array("H", range(1000)).tobytes())
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            try:
                data._made.clear()
                loader().close()
                (pathlib.Path(folder) / "b.bin").write_bytes(array.array("H", range(100)).tobytes())
                loader().close()  # all ranks may see more files the next time
                data._made.clear()  # another rank begins
                with self.assertRaisesRegex(ValueError, r"sees other data at .*\*\.bin than rank 0: \d+ samples .*, there \d+"):
                    loader()
                loader(rank=0, ranks=1).close()  # whoever names its place answers for it
            finally:
                dist.destroy_process_group()

    def test_a_mesh_counts_its_axes_in_their_order(self):
        class Mesh:
            mesh = torch.arange(6).view(2, 3)

            def get_coordinate(self):
                return [1, 2]

            def size(self):
                return 6

        self.assertEqual(data._place(None, None, Mesh()), (5, 6))

    def test_half_a_place_is_refused(self):
        with self.assertRaisesRegex(ValueError, "give both, or neither"):
            self.images(rank=0)
        with self.assertRaisesRegex(ValueError, "give one of them"):
            data._place(0, 2, object())
        os.environ["WORLD_SIZE"] = "4"
        try:
            with self.assertRaisesRegex(ValueError, r"init_process_group\(\) first"):
                self.images()
        finally:
            del os.environ["WORLD_SIZE"]


def batches_by_way_of_peers(folder: str, rank: int, size: int) -> tuple[list, dict]:
    peers = data.DataPeers(host=f"host{rank}")
    options = {"batch": BATCH, "length": LENGTH, "format": "tokens", "token_type": "u16", "epochs": 3}
    cache = {"cache_folder": f"{folder}/cache{rank}", "cache_bytes": 4 << 20, "peers": peers}
    loader = data.DataLoader(f"{folder}/tokens*.bin", **options, **cache)
    batches = [batch.tolist() for batch in loader]
    dist.barrier()  # who is gone serves nobody
    return batches, loader.report()["bytes"]


class Caches(Case):
    def test_a_cache_gives_the_same_batches(self):
        options = {"epochs": 3}
        cached = self.tokens(cache_folder=self.folder / "cache", cache_bytes=4 << 20, **options)
        for batch, plain in zip(cached, self.tokens(**options), strict=True):
            self.assertTrue(torch.equal(batch, plain))
        deadline = time.monotonic() + 30  # a thread of the loader's makes it
        while not (self.folder / "cache").is_dir():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_hosts_share_what_they_read(self):
        told = launch.values_of(2, functools.partial(batches_by_way_of_peers, str(self.folder)))
        for rank, (batches, _) in enumerate(told):
            plain = [batch.tolist() for batch in self.tokens(epochs=3, rank=rank, ranks=2)]
            self.assertEqual(batches, plain)

    def test_peers_need_a_job_and_a_cache(self):
        with self.assertRaisesRegex(ValueError, r"init_process_group\(\) first"):
            data.DataPeers()
        with self.assertRaisesRegex(ValueError, "cache.bytes"):
            self.tokens(cache_folder=self.folder / "cache")


class Names(Case):
    def test_files_and_fields_may_be_named_in_no_encoding(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(os.fsencode(folder), b"\xff.tar")
            with tarfile.open(path, "w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as tar:
                for name in ("0.txt", "0.\udcfe"):
                    member = tarfile.TarInfo(name)
                    member.size = 2
                    tar.addfile(member, io.BytesIO(b"ok"))
            for given in (os.fsdecode(path), pathlib.Path(os.fsdecode(path)), f"{folder}/*.tar"):
                [record] = next(iter(self.closed(data.DataLoader(given, batch=1))))
                self.assertEqual(record["txt"], "ok")
                self.assertEqual(bytes(record["\udcfe"]), b"ok")
            changed = self.closed(data.DataLoader(os.fsdecode(path), batch=1, decode=lambda record: {"\udcfd": "\udcfc"}))
            self.assertEqual(dict(next(iter(changed))[0]), {"\udcfd": "\udcfc"})
            with self.assertRaisesRegex(RuntimeError, r"\\xff\.tar.*none"):
                data.DataLoader(os.fsdecode(path) + "/none", batch=1)

    def test_a_field_that_is_no_json_says_whose_it_is(self):
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(f"{folder}/a.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
                member = tarfile.TarInfo("0.json")
                member.size = 2
                tar.addfile(member, io.BytesIO(b"{x"))
            with self.assertRaisesRegex(ValueError, r'field "json" of record 0 of source 0 is no json'):
                next(iter(self.closed(data.DataLoader(f"{folder}/a.tar", batch=1))))


class Options(Case):
    def test_unknown_options_are_refused_with_what_is_near(self):
        with self.assertRaisesRegex(TypeError, "did you mean mixed_chunks"):
            self.images(mixed_chunk=3)

    def test_errors_name_the_option(self):
        with self.assertRaisesRegex(ValueError, "shuffle"):
            self.images(shuffle="some")
        with self.assertRaisesRegex(ValueError, "batch"):
            self.images(batch=0)

    def test_missing_files_are_named(self):
        with self.assertRaisesRegex((ValueError, RuntimeError), "nowhere"):
            data.DataLoader(self.folder / "nowhere.tar", batch=1)

    def test_mappings_are_sources(self):
        written = data._as_json([{"paths": "a.tar", "weight": 3}, {"paths": ["b", "c"], "format": "mds"}],
                                {"format": "webdataset", "seed": 1, "reader": "pool"})
        self.assertEqual(written, {
            "sources": [{"format": "webdataset", "paths": ["a.tar"], "weight": 3}, {"format": "mds", "paths": ["b", "c"]}],
            "order": {"seed": 1}, "reading": {"reader": "pool"}})
        separated = data._as_json([{"paths": "a", "separator": 3}, {"paths": "b"}], {"separator": 5})
        self.assertEqual([source["separator"] for source in separated["sources"]], [3, 5])
        with self.assertRaisesRegex(ValueError, "give one kind"):
            data._as_json(["a", {"paths": "b"}], {})

    def test_reports_are_dictionaries(self):
        loader = self.images()
        list(loader)
        loader.note_step(0.1)
        report = loader.report()
        self.assertIsInstance(report["text"], str)
        self.assertGreater(len(report), 3)
        self.assertIsInstance(loader.describe(), str)

    def test_a_closed_loader_says_so(self):
        loader = self.images()
        loader.close()
        with self.assertRaisesRegex(ValueError, "is closed"):
            next(iter(loader))


if __name__ == "__main__":
    unittest.main()
