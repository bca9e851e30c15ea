"""GraphDefs as operations: the cut against all cuts there are, and bytes that are no GraphDef."""

import itertools
import json
import pathlib
import random
import sys
import unittest

from sprat.torch import _native

examples = pathlib.Path(__file__).parents[4] / "examples" / "tensorflow"
sys.path.insert(0, str(examples))
sys.dont_write_bytecode = True

import graphdef_to_json  # noqa: E402


def field(number: int, payload: bytes) -> bytes:
    """One of a protobuf message, shorter than 128 bytes."""
    return bytes([number << 3 | 2, len(payload)]) + payload


class GraphDef(unittest.TestCase):
    def test_no_cut_of_the_example_has_fewer_bytes_at_its_balance(self) -> None:
        text = (examples / "three_layers.json").read_text()
        model = json.loads(text)
        made = _native.partition(text, "graph", 2)
        ours = dict(zip(made["names"], made["partition"]))
        group_of = {one["name"]: one.get("group", one["name"]) for one in model["operations"]}
        groups = sorted(set(group_of.values()))
        chosen = {group_of[name]: partition for name, partition in ours.items()}
        for name, partition in ours.items():
            self.assertEqual(partition, chosen[group_of[name]], f"{name} is apart from its group")

        def figures(place: dict[str, int]) -> tuple[float, float, float] | None:
            """Bytes cut, balance of time and of memory; None if data go back."""
            cut = 0.0
            for edge in model["edges"]:
                start, end = place[group_of[edge["from"]]], place[group_of[edge["to"]]]
                if start > end:
                    return None
                cut += edge["bytes"] if start != end else 0
            times, memory = [0.0, 0.0], [0.0, 0.0]
            for one in model["operations"]:
                at = place[group_of[one["name"]]]
                times[at] += one["time"]
                memory[at] += one["parameter_bytes"] + one.get("activation_bytes", 0)
            return cut, 2 * max(times) / sum(times), 2 * max(memory) / sum(memory)

        found = figures(chosen)
        self.assertIsNotNone(found, "data go back to an earlier partition")
        for places in itertools.product(range(2), repeat=len(groups)):
            other = figures(dict(zip(groups, places)))
            if other and max(other[1:]) <= max(1.05, max(found[1:])):
                self.assertGreaterEqual(other[0], found[0], (other, found))
            if other and max(found[1:]) > 1.05:
                self.assertGreaterEqual(max(other[1:]), max(found[1:]), (other, found))

    def test_bytes_cut_off_are_refused_with_the_offset(self) -> None:
        node = field(1, field(1, b"a") + field(2, b"Const"))
        self.assertEqual(graphdef_to_json.read_graph(node)[0].name, "a")
        with self.assertRaisesRegex(graphdef_to_json.Malformed, "^byte 2: 10 bytes should follow, 9"):
            graphdef_to_json.read_graph(node[:-1])

    def test_inputs_that_are_not_there_are_named(self) -> None:
        node = field(1, field(1, b"a") + field(2, b"Relu") + field(3, b"gone:1"))
        with self.assertRaisesRegex(ValueError, '"a" takes "gone:1"'):
            graphdef_to_json.as_operations(graphdef_to_json.read_graph(node))

    def test_any_bytes_give_a_graph_or_a_refusal(self) -> None:
        shape = field(2, b"\x08\x04") + field(2, b"\x08\x03")
        attribute = field(5, field(1, b"shape") + field(2, field(7, shape)))
        good = field(1, field(1, b"v") + field(2, b"VarHandleOp") + attribute)
        draw = random.Random(17)
        for _ in range(2000):
            bad = bytearray(good)
            for _ in range(draw.randint(1, 4)):
                bad[draw.randrange(len(bad))] = draw.randrange(256)
            try:
                graphdef_to_json.as_operations(graphdef_to_json.read_graph(bytes(bad)))
            except ValueError:
                pass  # any other exception fails


if __name__ == "__main__":
    unittest.main()
