"""Tests of SMP's surface without processes: reading, placement of ranks, learning rate, documentation.

Use: python tests/system/torch/smp_test.py. Needs sprat.torch; keys are the core's, which its own tests
(tests/unit/mp/smp_test.cpp) iterate.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import pathlib
import re
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]

config = importlib.import_module("sprat.torch.smp.config")
placement = importlib.import_module("sprat.torch.smp.placement")
learning_rate = importlib.import_module("sprat.torch.learning_rate")

CommGroup = placement.CommGroup


class Reading(unittest.TestCase):
    def values(self, given) -> dict:
        return config.resolve(given).values

    def refuses(self, given, *words: str) -> None:
        with self.assertRaises(ValueError) as caught:
            config.resolve(given)
        for word in words:
            self.assertIn(word, str(caught.exception))

    def test_nothing_gives_the_defaults_of_v2(self):
        settings = config.resolve(None)
        self.assertEqual(settings.generation, "v2")
        self.assertEqual(settings.values["activation_loading_horizon"], 2)
        self.assertIsNone(settings.values["random_seed"])

    def test_all_documented_keys_have_a_value(self):
        documented = (ROOT / "docs/smp/configuration.md").read_text()
        for generation, given in (("v2", {}), ("v1", {"ddp": True})):
            with self.subTest(generation):
                table = documented.partition(f"SMP {generation}:\n\n")[2].partition("\n\n")[0]
                names = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
                self.assertEqual(list(config.resolve(given).values), names)

    def test_values_have_the_types_of_python(self):
        for name, value in (
            ("placement_strategy", "cluster"),
            ("sdp_gradient_clipping", 1.0),
            ("microbatches", 1),
            ("ddp", True),
            ("ddp_port", None),
        ):
            read = self.values({"ddp": True})[name]
            self.assertEqual((read, type(read)), (value, type(value)), name)
        self.assertIs(type(self.values({"sdp_gradient_clipping": 2})["sdp_gradient_clipping"]), float)

    def test_a_value_of_another_kind_is_refused_with_the_legal_ones(self):
        for value in ("1", True, 1.5, [], {}, None, float("nan"), object(), pathlib.Path("x")):
            self.refuses({"hybrid_shard_degree": value}, "hybrid_shard_degree = ", "integer, at least 0")

    def test_a_value_that_is_not_served_is_refused_with_what_to_do_instead(self):
        self.refuses({"fp16_params": True},
                     "fp16_params = true of SMP v1 is not served yet, only false is: make")

    def test_all_forms_of_one_configuration_agree(self):
        plain = {"ddp": True, "sharded_data_parallel_degree": 2, "placement_strategy": "spread"}
        options = {"enabled": True, "parameters": plain}
        mpi = {"enabled": True, "processes_per_host": 8, "custom_mpi_options": "-verbose"}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "smp.json"
            path.write_text(json.dumps(plain))
            forms = {
                "JSON text": json.dumps(plain),
                "path": path,
                "name of a file": str(path),
                "parameters": {"parameters": plain},
                "options": options,
                "modelparallel": {"modelparallel": options},
                "distribution": {"smdistributed": {"modelparallel": options}, "mpi": mpi},
                "distribution as text": json.dumps({"smdistributed": {"modelparallel": options}}),
                "parameters in a file": {
                    "smdistributed": {"modelparallel": {"enabled": True, "parameters": str(path)}}
                },
            }
            for name, form in forms.items():
                with self.subTest(name):
                    self.assertEqual(self.values(form), self.values(plain))

    def test_v1_fills_in_defaults_that_follow_from_other_keys(self):
        self.assertEqual(self.values({"ddp": True})["active_microbatches"], 3)
        self.assertEqual(self.values({"ddp": True})["memory_weight"], 0.8)

    def test_an_integer_may_be_written_with_an_exponent(self):
        value = self.values('{"sdp_reduce_bucket_size": 5e8}')["sdp_reduce_bucket_size"]
        self.assertEqual((value, type(value)), (500_000_000, int))

    def test_an_unknown_key_is_refused_with_the_nearest_known_one(self):
        self.refuses({"hybrid_shard_degre": 2}, "hybrid_shard_degre", '"hybrid_shard_degree"?')
        self.refuses({"microbatch": 2, "ddp": True}, '"microbatch"', '"microbatches"?')

    def test_every_unknown_key_is_named(self):
        self.refuses({"zz": 1, "random_sed": 2}, '"zz"', '"random_sed"', '"random_seed"?')

    def test_keys_of_both_generations_are_refused_naming_both(self):
        self.refuses(
            {"hybrid_shard_degree": 2, "microbatches": 1},
            "microbatches (v1)",
            "hybrid_shard_degree (v2)",
        )

    def test_nesting_that_sagemaker_does_not_have_is_refused(self):
        self.refuses({"smdistributed": {"dataparallel": {}}}, "dataparallel", "modelparallel")
        self.refuses({"smdistributed": {"modelparallel": {}}, "mpirun": {}}, "mpirun", '"mpi"?')
        self.refuses({"parameters": {}, "ddp": True}, '"ddp"', "modelparallel")
        self.refuses({"parameters": 3}, "parameters = 3", "object")

    def test_a_section_that_is_not_enabled_is_refused(self):
        self.refuses({"enabled": False, "parameters": {}}, "enabled", "set it to true")

    def test_what_is_no_configuration_is_refused(self):
        self.refuses("no_such_file.json", "no_such_file.json", "brace")
        self.refuses("{not json", "JSON", "line 1")
        self.refuses('{"parameters": "[1]"}', "[1]", "brace")
        self.refuses('{"ddp": true, "ddp": false}', "ddp", "twice")


class KeysTogether(unittest.TestCase):
    CONFLICTS = (
        ({"partitions": 1, "pipeline_parallel_degree": 1}, "two names of one key"),
        ({"auto_partition": False}, "needs default_partition"),
        ({"default_partition": 1}, "less than pipeline_parallel_degree = 1"),
        ({"ddp": True, "horovod": True}, "both true"),
        ({"ddp_port": 1234}, "ddp_port needs ddp"),
        ({"ddp_dist_backend": "auto"}, "ddp_dist_backend needs ddp"),
        ({"tensor_parallel_degree": 2, "prescaled_batch": True}, "needs ddp = true"),
        ({"sharded_data_parallel_degree": 2, "shard_optimizer_state": True}, "already"),
        ({"bf16": True}, "sharded_data_parallel_degree above 1"),
        ({"hybrid_shard_degree": 2, "context_parallel_degree": 4}, "at most hybrid_shard_degree"),
    )

    def test_keys_that_do_not_go_together_are_refused(self):
        for given, words in self.CONFLICTS:
            with self.subTest(given), self.assertRaises(ValueError) as caught:
                config.resolve(given)
            self.assertIn(words, str(caught.exception))


class Degrees(unittest.TestCase):
    def placed(self, given: dict, size: int):
        return placement.place(config.resolve(given), size)

    def test_degree_zero_shards_over_all_data_parallel_ranks(self):
        for size, tensor in itertools.product(range(1, 25), range(1, 25)):
            if size % tensor == 0:
                made = self.placed({"tensor_parallel_degree": tensor}, size)
                self.assertEqual((made.shard, made.replicas), (size // tensor, 1))

    def test_degrees_are_taken_exactly_if_they_divide_the_world(self):
        for size, shard, tensor in itertools.product(range(1, 17), repeat=3):
            given = {"hybrid_shard_degree": shard, "tensor_parallel_degree": tensor}
            with self.subTest(size=size, **given):
                fits = size % (shard * tensor) == 0
                context = contextlib.nullcontext() if fits else self.assertRaises(ValueError)
                with context:
                    made = self.placed(given, size)
                    self.assertEqual(made.replicas * shard * tensor, size)

    def test_a_degree_that_does_not_fit_is_refused_with_those_that_do(self):
        for given, words in (
            ({"hybrid_shard_degree": 3}, "hybrid_shard_degree = 3"),
            ({"sharded_data_parallel_degree": 3}, "sharded_data_parallel_degree = 3"),
            ({"tensor_parallel_degree": 3}, "tensor_parallel_degree = 3"),
        ):
            with self.subTest(given), self.assertRaises(ValueError) as caught:
                self.placed(given, 8)
            self.assertIn(words, str(caught.exception))
            self.assertIn("choose one of 1, 2, 4, 8", str(caught.exception))


def all_placements(largest: int):
    """Every placement of at most that many ranks."""
    for size, shard, pipeline, tensor in itertools.product(range(1, largest + 1), repeat=4):
        if size % (shard * pipeline * tensor) == 0:
            for strategy in map("".join, itertools.permutations("DPT")):
                yield placement.Placement(size, shard, pipeline, tensor, strategy)


class Placements(unittest.TestCase):
    def test_groups_of_every_kind_part_the_world_in_equal_rising_groups(self):
        for made in all_placements(12):
            for kind in CommGroup:
                groups = made.groups(kind)
                self.assertEqual(sorted(itertools.chain(*groups)), list(range(made.size)), made)
                self.assertEqual(len({len(group) for group in groups}), 1, (made, kind))
                self.assertEqual(groups, sorted(map(sorted, groups)), (made, kind))

    def test_sizes_keep_the_identities_of_smp(self):
        for made in all_placements(12):
            pp, tp, rdp, dp, mp = (
                len(made.group(kind, 0))
                for kind in (
                    CommGroup.PP_GROUP,
                    CommGroup.TP_GROUP,
                    CommGroup.RDP_GROUP,
                    CommGroup.DP_GROUP,
                    CommGroup.MP_GROUP,
                )
            )
            sizes = (pp * tp * rdp, pp * dp, mp * rdp)
            self.assertEqual(sizes, (made.size, made.size, made.size), made)
            self.assertEqual((pp, tp), (made.pipeline, made.tensor), made)

    def test_a_rank_is_its_place_in_its_group(self):
        kinds = {
            "P": CommGroup.PP_GROUP,
            "T": CommGroup.TP_GROUP,
            "S": CommGroup.SHARD_GROUP,
            "R": CommGroup.REPLICATE_GROUP,
        }
        for made in all_placements(12):
            for rank in range(made.size):
                place = made.coordinates(rank)
                ranks = {axis: made.group(kind, rank).index(rank) for axis, kind in kinds.items()}
                self.assertEqual(ranks, place, (made, rank))

    def test_groups_that_cross_meet_in_one_rank(self):
        crossing = (
            (CommGroup.PP_GROUP, CommGroup.DP_GROUP),
            (CommGroup.MP_GROUP, CommGroup.RDP_GROUP),
            (CommGroup.SHARD_GROUP, CommGroup.REPLICATE_GROUP),
        )
        for made in all_placements(10):
            for (one, other), rank in itertools.product(crossing, range(made.size)):
                met = set(made.group(one, rank)) & set(made.group(other, rank))
                self.assertEqual(met, {rank}, (made, one, other))

    def test_the_mesh_has_the_groups_as_its_axes(self):
        for made in all_placements(12):
            for stage, replica, shard, tensor in itertools.product(
                *map(range, (made.pipeline, made.replicas, made.shard, made.tensor))
            ):
                of_stage = made.group(CommGroup.PP_GROUP, 0)[stage]
                rank = made.mesh(of_stage)[replica][shard][tensor]
                self.assertEqual(
                    made.coordinates(rank),
                    {"R": replica, "S": shard, "P": stage, "T": tensor},
                    made,
                )

    def test_the_placements_that_smp_documents(self):
        def columns(strategy: str) -> list[tuple[int, int, int]]:
            made = placement.Placement(8, 1, pipeline=2, tensor=2, strategy=strategy)
            return [tuple(made.coordinates(rank)[axis] for axis in "RPT") for rank in range(8)]

        self.assertEqual(
            columns("DPT"),
            [
                (0, 0, 0),
                (0, 0, 1),
                (0, 1, 0),
                (0, 1, 1),
                (1, 0, 0),
                (1, 0, 1),
                (1, 1, 0),
                (1, 1, 1),
            ],
        )
        self.assertEqual(
            columns("PTD"),
            [
                (0, 0, 0),
                (1, 0, 0),
                (0, 0, 1),
                (1, 0, 1),
                (0, 1, 0),
                (1, 1, 0),
                (0, 1, 1),
                (1, 1, 1),
            ],
        )

    def test_cluster_and_spread_put_replicas_near_and_far(self):
        cluster = placement.Placement(8, 1, pipeline=2, strategy=placement.STRATEGIES["cluster"])
        spread = placement.Placement(8, 1, pipeline=2, strategy=placement.STRATEGIES["spread"])
        self.assertEqual(cluster.groups(CommGroup.MP_GROUP), [[0, 1], [2, 3], [4, 5], [6, 7]])
        self.assertEqual(cluster.groups(CommGroup.DP_GROUP), [[0, 2, 4, 6], [1, 3, 5, 7]])
        self.assertEqual(spread.groups(CommGroup.MP_GROUP), [[0, 4], [1, 5], [2, 6], [3, 7]])
        self.assertEqual(spread.groups(CommGroup.DP_GROUP), [[0, 1, 2, 3], [4, 5, 6, 7]])

    def test_shards_over_four_with_tensor_parallelism_over_four_as_aws_draws_it(self):
        settings = config.resolve(
            {
                "ddp": True,
                "prescaled_batch": True,
                "tensor_parallel_degree": 4,
                "sharded_data_parallel_degree": 4,
            }
        )
        made = placement.place(settings, 32)
        self.assertEqual(made.groups(CommGroup.TP_GROUP)[:2], [[0, 1, 2, 3], [4, 5, 6, 7]])
        self.assertEqual(made.group(CommGroup.RDP_GROUP, 0), list(range(0, 32, 4)))
        self.assertEqual(made.group(CommGroup.SHARD_GROUP, 0), [0, 4, 8, 12])
        self.assertEqual(made.group(CommGroup.SHARD_GROUP, 16), [16, 20, 24, 28])
        self.assertEqual(made.group(CommGroup.REPLICATE_GROUP, 4), [4, 20])


class LearningRate(unittest.TestCase):
    def test_the_target_grows_with_the_batch(self):
        rate = learning_rate.scaled_learning_rate
        self.assertEqual(rate(0.1, 256, 8192), 3.2)  # section 5.1 of the paper
        self.assertEqual(rate(0.5, 64, 32), 0.25)
        self.assertEqual(rate(0.1, 256, 256, warmup_steps=10, step=0), 0.1)
        self.assertEqual(rate(0.25, 8, 64, step=0), 2.0)  # without a warm-up, from the first step

    def test_warm_up_goes_from_the_base_to_the_target_in_equal_steps(self):
        rates = [
            learning_rate.scaled_learning_rate(0.25, 8, 64, warmup_steps=7, step=step)
            for step in range(10)
        ]
        self.assertEqual(rates, [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.0, 2.0])

    def test_a_smaller_batch_needs_no_warm_up(self):
        rate = learning_rate.scaled_learning_rate(0.5, 64, 32, warmup_steps=10, step=0)
        self.assertEqual(rate, 0.25)

    def test_what_is_not_positive_is_refused_with_its_value(self):
        for base, base_batch, batch, more, word in (
            (0, 1, 1, {}, "base 0,"),
            (1, 0, 1, {}, "base_batch 0"),
            (1, 1, 0, {}, "batch 0"),
            (1, 1, 1, {"warmup_steps": -1}, "warmup_steps -1"),
            (1, 1, 1, {"step": -2}, "step -2"),
        ):
            with self.subTest(word), self.assertRaises(ValueError) as caught:
                learning_rate.scaled_learning_rate(base, base_batch, batch, **more)
            self.assertIn(word, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
