"""Tests of what --sagemaker serves beside names: FSDP's groups, checkpoints, libraries that are not installed.

Use: python tests/system/torch/sagemaker_test.py, with a Python that has torch and, by pip, sprat-torch.
"""

from __future__ import annotations

import unittest

from torch.distributed.fsdp import ShardingStrategy

from run_test import Case


class Sharding(Case):
    def test_a_strategy_follows_the_degree_as_smp_documents_it(self) -> None:
        from sprat.sagemaker.fsdp import strategy_of

        full, none, two = (ShardingStrategy.FULL_SHARD, ShardingStrategy.NO_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
        hybrid = ShardingStrategy.HYBRID_SHARD
        for asked, degree, replicas, expected in (
                (None, 1, 4, none), (full, 1, 4, none), (hybrid, 1, 4, none),
                (None, 2, 2, hybrid), (full, 2, 2, hybrid), (none, 2, 2, hybrid), (two, 2, 2, two),
                (None, 4, 1, full), (none, 4, 1, full), (ShardingStrategy.SHARD_GRAD_OP, 4, 1, ShardingStrategy.SHARD_GRAD_OP), (two, 4, 1, two)):
            with self.subTest(f"{asked} {degree} {replicas}"):
                self.assertEqual(strategy_of(asked, degree, replicas), expected)

    FSDP = """
        import os, torch, torch.distributed as dist
        from torch import nn
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        import torch.sagemaker as tsm
        from torch.sagemaker.delayed_param import DelayedParamIniter
        from torch.sagemaker.grad_norm import clip_grad_norm_
        from torch.sagemaker.utils.utils import timeit

        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding, self.body = nn.Embedding(8, 4), nn.Sequential(nn.Linear(4, 64), nn.Linear(64, 4))
                self.head = nn.Linear(4, 8, bias=False)
                self.tie_weights()

            def tie_weights(self):
                self.head.weight = self.embedding.weight

            def forward(self, words):
                return self.head(self.body(self.embedding(words)))

        dist.init_process_group("nccl")
        tsm.init()
        torch.manual_seed(4)
        with torch.device("meta"):
            model = Tied()
        initer, seen = DelayedParamIniter(model), []
        tie = initer.get_post_param_init_fn()
        with initer.validate_params_and_buffers_inited(), timeit(True, "wrapping", dist.get_rank()):
            model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({nn.Sequential}), device_id=torch.device("cpu"),
                         use_orig_params=True, param_init_fn=initer.get_param_init_fn(),
                         post_param_init_fn=lambda module: (seen.append(type(module).__name__), tie(module)))
        inner = model.body
        groups = [dist.get_process_group_ranks(one.process_group) for one in (model, inner)]
        losses = []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for step in range(3):
            words = (torch.arange(4) + step + 4 * dist.get_rank()) % 8
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(words), (words + 1) % 8)
            loss.backward()
            clip_grad_norm_(model, 1e9)
            optimizer.step()
            total = loss.detach()
            dist.all_reduce(total)
            losses.append(total.item())
        rank = tsm.state.ranker.get_rep_rank(dist.get_rank())
        tied = model.module.head.weight is model.module.embedding.weight
        os.write(1, f"{groups} {model.sharding_strategy.name} {seen} {rank} {tsm.state.cp_size} {tied} {losses}\\n".encode())
        dist.destroy_process_group()
    """

    def test_fsdp_has_the_groups_of_the_degree_and_modules_share_parameters_as_before(self) -> None:
        self.write("program.py", self.FSDP)
        said = {}
        for degree in (1, 2):
            self.write("given.json", '{"hybrid_shard_degree": %d}' % degree)
            lines = self.run_it("--sagemaker", "given.json", "-n", "4", "program.py").splitlines()
            said[degree] = sorted(line for line in lines if line.startswith("[["))
            self.assertEqual(len(said[degree]), 4, lines)
        for degree, pairs, name in ((1, ["[0, 1, 2, 3]"] * 4, "NO_SHARD"),
                                    (2, ["[0, 1]"] * 2 + ["[2, 3]"] * 2, "HYBRID_SHARD")):
            begins = [f"[{ranks}, {ranks}] {name} ['Sequential', 'Tied'] " for ranks in pairs]
            self.assertEqual([line[:len(begin)] for line, begin in zip(said[degree], begins)], begins)
        self.assertTrue(all(" 1 True [" in line for lines in said.values() for line in lines), said)
        replica_of = [line.partition("'Tied'] ")[2][0] for line in said[2]]
        self.assertEqual(replica_of, ["0", "0", "1", "1"])

    def test_without_init_and_without_a_degree_fsdp_is_pytorchs(self) -> None:
        self.write("program.py", """
            import torch, torch.distributed as dist, torch.sagemaker as tsm
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
            dist.init_process_group("smddp")
            make = lambda: FSDP(torch.nn.Linear(4, 4), device_id=torch.device("cpu"))
            print(tsm.is_initialized(), make().process_group is dist.group.WORLD)
            tsm.init()
            print(tsm.is_initialized(), make().process_group is dist.group.WORLD)
        """)
        self.assertTrue(self.run_it("--sagemaker", "program.py").endswith("False True\nTrue True\n"))


class Helpers(Case):
    def test_the_oldest_checkpoints_beyond_the_limit_are_removed(self) -> None:
        from sprat.sagemaker.checkpoints import limit_num_subdirs

        for name in ("gpt-3steps", "gpt-20steps", "gpt-100steps", "other", "gpt-1steps"):
            (self.folder / name / "inside").mkdir(parents=True)
        (self.folder / "gpt-2steps").write_text("a file")
        (self.folder / "gpt-0steps").symlink_to(self.folder / "other")

        def left() -> set[str]:
            return {one.name for one in self.folder.iterdir()}

        everything = left()
        limit_num_subdirs(self.folder, 2, regex=r"^.*\d+steps$", log=False)
        self.assertEqual(left(), everything, "another rank removes")
        limit_num_subdirs(self.folder, 2, regex=r"^.*\d+steps$")
        self.assertEqual(everything - left(), {"gpt-3steps", "gpt-1steps"})
        limit_num_subdirs(self.folder, 5, regex=r"^.*\d+steps$")
        limit_num_subdirs(self.folder / "absent", 1)
        self.assertEqual(everything - left(), {"gpt-3steps", "gpt-1steps"})
        with self.assertRaisesRegex(ValueError, "-1 folders cannot be kept"):
            limit_num_subdirs(self.folder, -1)

    def test_modules_get_memory_and_buffers_move(self) -> None:
        import torch
        from sprat.sagemaker.modules import empty_module_params, move_buffers_to_device

        with torch.device("meta"):
            net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
        net[0].bias.mark = 1
        empty_module_params(net, torch.device("cpu"))
        self.assertTrue(net[0].weight.is_meta)
        empty_module_params(net, torch.device("cpu"), recurse=True)
        self.assertFalse(any(one.is_meta for one in net.parameters()))
        self.assertEqual(net[0].bias.mark, 1)
        net[1] = torch.nn.BatchNorm1d(2)
        move_buffers_to_device(net, torch.device("meta"))
        self.assertFalse(net[1].running_mean.is_meta)
        move_buffers_to_device(net, torch.device("meta"), recurse=True)
        self.assertTrue(net[1].running_mean.is_meta)

    def test_a_library_for_cuda_that_is_not_installed_can_be_imported_and_not_used(self) -> None:
        self.write("program.py", """
            import importlib.metadata, importlib.util
            import transformer_engine
            from transformer_engine.common.recipe import DelayedScaling, Format
            from megatron.core.dist_checkpointing.mapping import CheckpointingException

            def said(call):
                try:
                    call()
                except Exception as error:
                    print(type(error).__name__, error)

            said(lambda: DelayedScaling(fp8_format=1))
            said(lambda: Format.HYBRID)
            said(lambda: transformer_engine.pytorch)
            said(lambda: __import__("transformer_engine.pytorch.attention"))
            said(lambda: __import__("megatron.core.transformer"))
        """)
        lines = self.run_it("--sagemaker", "program.py").splitlines()
        self.assertEqual(len(lines), 5, lines)
        for line, kind in zip(lines, ("RuntimeError", "AttributeError", "AttributeError", "ImportError", "ImportError")):
            self.assertTrue(line.startswith(kind + " "), line)
        for line in lines[:3]:
            self.assertIn("--fp8 0", line)

    def test_a_library_for_cuda_that_is_installed_is_taken(self) -> None:
        self.write("transformer_engine/__init__.py", "mine = True")
        self.write("program.py", "import transformer_engine; print(transformer_engine.mine)")
        self.assertEqual(self.run_it("--sagemaker", "program.py"), "True\n")

    def test_everything_of_a_module_comes_with_a_star(self) -> None:
        self.write("program.py", """
            from smdistributed.modelparallel.torch import *
            from torch.sagemaker import *
            print(callable(DistributedModel), callable(step), PP_GROUP.name, callable(transform))
        """)
        self.assertEqual(self.run_it("--sagemaker", "program.py"), "True True PP_GROUP True\n")

    def test_a_model_without_parameters_is_refused_by_pytorchs_sentence(self) -> None:
        self.write("program.py", """
            import torch
            import smdistributed.dataparallel.torch.distributed as dist
            from smdistributed.dataparallel.torch.parallel import DistributedDataParallel
            dist.init_process_group()
            try:
                DistributedDataParallel(torch.nn.ReLU())
            except RuntimeError as error:
                print(error)
        """)
        self.assertIn("not needed when", self.run_it("--sagemaker", "program.py"))

    def test_names_of_deepspeed_show_parts_of_parameters(self) -> None:
        """As AWS's GPT script reads them: lengths and places before the first step, values afterwards."""
        self.write("given.json", '{"pipeline_parallel_degree": 1, "ddp": true, "sharded_data_parallel_degree": 2,'
                                 ' "sdp_gradient_clipping": 0}')
        self.write("program.py", """
            import os, torch, torch.distributed as dist
            import smdistributed.modelparallel.torch as smp
            smp.init()
            torch.manual_seed(1)
            model = smp.DistributedModel(torch.nn.Linear(3, 3))
            weight, bias = model.get_module().weight, model.get_module().bias
            try:
                weight.ds_tensor.data
            except RuntimeError as error:
                early = "divided at the first step" in str(error)
            lengths = [one.ds_tensor.ds_numel for one in (weight, bias)]
            optimizer = smp.DistributedOptimizer(torch.optim.SGD([{"params": [bias]}, {"params": [weight]}], lr=1.0))
            places = [flat.narrow(0, 0, length) for flat, length in
                      zip(optimizer.fp32_partitioned_groups_flat, reversed(lengths))]

            @smp.step
            def step(model, x):
                loss = model(x).sum()
                model.backward(loss)
                return loss

            step(model, torch.ones(2, 3))
            before = torch.equal(places[1], weight.ds_tensor.data)
            optimizer.step()
            same = [torch.equal(place, one.ds_tensor.data) for place, one in zip(places, (bias, weight))]
            with model.whole_parameters():
                whole = weight.flatten()[5 * smp.rank():][:5].tolist()
            part = weight.ds_tensor.data[:len(whole)].tolist()
            group = dist.get_world_size(optimizer.ds_param_shard_group)
            os.write(1, f"{early} {lengths} {before} {same} {whole == part} {group}\\n".encode())
        """)
        said = self.run_it("--sagemaker", "given.json", "-n", "2", "program.py")
        self.assertEqual(said, "True [5, 2] True [True, True] True 2\n" * 2)

    def test_a_save_behind_training_has_a_group_of_its_own(self) -> None:
        """Scripts give it the group of their model, in which training goes on meanwhile."""
        self.write("program.py", """
            import os, torch, torch.distributed as dist, torch.sagemaker as tsm
            from torch.sagemaker.distributed.checkpoint.state_dict_loader import load
            from torch.sagemaker.distributed.checkpoint.state_dict_saver import AsyncCallsQueue, async_save
            tsm.init()
            group, queue = dist.group.WORLD, AsyncCallsQueue()
            for step in range(4):
                queue.maybe_finalize_async_calls(blocking=True, process_group=group)
                async_save({"value": torch.full((1000,), float(step))}, checkpoint_id=f"kept/{step}", process_group=group,
                           coordinator_rank=0, queue=queue)
                for _ in range(50):
                    total = torch.ones(1)
                    dist.all_reduce(total, group=group)
                    assert total.item() == dist.get_world_size()
            queue.maybe_finalize_async_calls(blocking=True, process_group=group)
            held = {"value": torch.zeros(1000)}
            load(held, checkpoint_id="kept/3")
            os.write(1, f"{held['value'].sum().item()}\\n".encode())
        """)
        self.assertEqual(self.run_it("--sagemaker", "-n", "2", "program.py"), "3000.0\n" * 2)


if __name__ == "__main__":
    unittest.main()
