"""Writes a TensorFlow GraphDef as the operations that `sprat partition` cuts; needs no TensorFlow.

    python3 graphdef_to_json.py model.pb > model.json && sprat partition model.json -p 2
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

# DataType of tensorflow/core/framework/types.proto: bytes of one element; handles and texts: 0.
ELEMENT_BYTES = {1: 4, 2: 8, 3: 4, 4: 1, 5: 2, 6: 1, 8: 8, 9: 8, 10: 1, 14: 2, 17: 2, 18: 16,
                 19: 2, 22: 4, 23: 8}
VARIABLES = {"VarHandleOp", "VariableV2", "Variable"}
RESOURCE = 20  # DataType of a variable's handle, which a function takes as a Placeholder
# Where an operation says of which type its outputs are, the most particular first.
TYPE_ATTRIBUTES = ("DstT", "dtype", "out_type", "output_type", "T")


class Malformed(ValueError):
    """Bytes that are no GraphDef; the text has the offset."""


@dataclass
class Attribute:
    """What is used of an AttrValue; shapes is None where it has none."""

    type: int = 0
    flag: bool = False
    shapes: list[list[int] | None] | None = None


@dataclass
class Node:
    """One operation of the graph."""

    name: str = ""
    op: str = ""
    inputs: list[str] = field(default_factory=list)
    attributes: dict[str, Attribute] = field(default_factory=dict)

    def is_variable(self) -> bool:
        """Whether it is one, or its handle."""
        kind = self.attributes.get("dtype", Attribute()).type
        return self.op in VARIABLES or (self.op == "Placeholder" and kind == RESOURCE)


class Message:
    """The fields of one protobuf message: data[begin:end]."""

    def __init__(self, data: bytes, begin: int, end: int):
        self.data, self.begin, self.end = data, begin, end

    def fields(self) -> Iterator[tuple[int, int | Message]]:
        """(number, value): a whole number, or a Message of what has a length."""
        at = self.begin
        while at < self.end:
            start = at
            key, at = self._varint(at)
            number, wire = key >> 3, key & 7
            if number == 0:
                raise Malformed(f"byte {start}: field number 0")
            if wire == 0:
                value, at = self._varint(at)
                yield number, value
            elif wire == 2:
                length, at = self._varint(at)
                self._require(at, length)
                yield number, Message(self.data, at, at + length)
                at += length
            elif wire in (1, 5):
                length = 8 if wire == 1 else 4
                self._require(at, length)
                yield number, int.from_bytes(self.data[at:at + length], "little")
                at += length
            else:
                raise Malformed(f"byte {start}: field {number} has wire type {wire}")

    def text(self) -> str:
        """The bytes as UTF-8."""
        try:
            return self.data[self.begin:self.end].decode()
        except UnicodeDecodeError as error:
            raise Malformed(f"byte {self.begin + error.start}: no UTF-8") from None

    def _require(self, at: int, length: int) -> None:
        if length > self.end - at:
            raise Malformed(f"byte {at}: {length} bytes should follow, {self.end - at} are left")

    def _varint(self, at: int) -> tuple[int, int]:
        value = 0
        for index in range(10):
            if at + index >= self.end:
                raise Malformed(f"byte {at}: a number is cut off")
            byte = self.data[at + index]
            value |= (byte & 127) << (7 * index)
            if byte < 128:
                return value & (1 << 64) - 1, at + index + 1
        raise Malformed(f"byte {at}: a number of more than ten bytes")


def message(value: int | Message, what: str, near: Message) -> Message:
    """value, which must be one with a length."""
    if isinstance(value, int):
        raise Malformed(f"byte {near.begin}: {what} is a number, not a message")
    return value


def number(value: int | Message, what: str) -> int:
    """value, which must be a number; signed, as int64 is."""
    if isinstance(value, Message):
        raise Malformed(f"byte {value.begin}: {what} is no number")
    return value - (1 << 64) if value >> 63 else value


def read_shape(shape: Message) -> list[int] | None:
    """A TensorShapeProto's sizes, -1 where unknown; None for an unknown rank."""
    sizes, unknown = [], False
    for key, value in shape.fields():
        if key == 2:
            of_dimension = message(value, "a dimension", shape).fields()
            sizes.append(next((number(v, "a size") for k, v in of_dimension if k == 1), 0))
        elif key == 3:
            unknown = bool(number(value, "unknown_rank"))
    return None if unknown else sizes


def read_attribute(attribute: Message) -> Attribute:
    """An AttrValue; of a tensor its shape and type, of a list its shapes."""
    result = Attribute()
    for key, value in attribute.fields():
        if key == 1:
            shapes = [read_shape(message(v, "a shape", attribute))
                      for k, v in message(value, "a list", attribute).fields() if k == 7]
            result.shapes = shapes
        elif key == 5:
            result.flag = bool(number(value, "a flag"))
        elif key == 6:
            result.type = number(value, "a type")
        elif key == 7:
            result.shapes = [read_shape(message(value, "a shape", attribute))]
        elif key == 8:
            result.shapes = [[]]
            for k, v in message(value, "a tensor", attribute).fields():
                if k == 1:
                    result.type = number(v, "a type")
                elif k == 2:
                    result.shapes = [read_shape(message(v, "a shape", attribute))]
    return result


def read_node(node: Message) -> Node:
    """A NodeDef."""
    result = Node()
    for key, value in node.fields():
        if key == 1:
            result.name = message(value, "a name", node).text()
        elif key == 2:
            result.op = message(value, "an operation", node).text()
        elif key == 3:
            result.inputs.append(message(value, "an input", node).text())
        elif key == 5:
            entry = dict(message(value, "an attribute", node).fields())
            if 1 in entry and 2 in entry:
                name = message(entry[1], "an attribute's name", node).text()
                result.attributes[name] = read_attribute(message(entry[2], name, node))
    if not result.name:
        raise Malformed(f"byte {node.begin}: a node has no name")
    return result


def read_graph(data: bytes) -> list[Node]:
    """The nodes of a GraphDef's bytes. Malformed, with the offset, if it is none."""
    whole = Message(data, 0, len(data))
    nodes = [read_node(message(value, "a node", whole))
             for key, value in whole.fields() if key == 1]
    if not nodes:
        raise Malformed("byte 0: there are no nodes")
    return nodes


class Sizes:
    """Bytes and operations, as far as the graph has shapes; unknown dimensions are the batch."""

    def __init__(self, nodes: dict[str, Node], batch: int):
        self.nodes, self.batch = nodes, batch
        # A function's handles do not say how large their variables are; those that read them do.
        self.read: dict[str, int] = {}
        for node in nodes.values():
            if node.op == "ReadVariableOp" and node.inputs:
                name, _ = source(node.inputs[0])
                self.read[name] = max(self.read.get(name, 0), self.bytes(node))

    def elements(self, node: Node, output: int) -> int:
        """Of one output; 0 where its shape is not known."""
        shapes = None
        for name in ("_output_shapes", "value", "shape"):
            if name in node.attributes and shapes is None:
                shapes = node.attributes[name].shapes
        if not shapes or output >= len(shapes) or shapes[output] is None:
            return 0
        return math.prod(self.batch if size < 0 else size for size in shapes[output])

    def bytes(self, node: Node, output: int = 0) -> int:
        """Of one output."""
        given = (node.attributes[name] for name in TYPE_ATTRIBUTES if name in node.attributes)
        kind = next((one.type for one in given if one.type), 0)
        return self.elements(node, output) * ELEMENT_BYTES.get(kind, 0)

    def parameter_bytes(self, node: Node) -> int:
        """Of a variable, or of a constant, which frozen graphs have instead."""
        if node.op in VARIABLES and node.attributes.get("shape", Attribute()).shapes:
            shape = Node(attributes={"shape": node.attributes["shape"],
                                     "dtype": node.attributes.get("dtype", Attribute())})
            return self.bytes(shape)
        if node.is_variable():
            return self.read.get(node.name, 0)
        return self.bytes(node) if node.op == "Const" else 0

    def time(self, node: Node) -> int:
        """Multiplications of products; of all else, elements written."""
        if holds_parameters(node):
            return 0
        elements = self.elements(node, 0)
        if node.op not in ("MatMul", "Conv2D") or len(node.inputs) < 2:
            return elements
        name, output = source(node.inputs[1])
        weights = self.elements(self.nodes[name], output)
        shapes = node.attributes.get("_output_shapes", Attribute()).shapes
        columns = shapes[0][-1] if shapes and shapes[0] else 0
        return elements * max(weights // columns, 1) if columns > 0 else elements


def holds_parameters(node: Node) -> bool:
    """Whether it computes nothing: a variable, what reads one, a constant."""
    return node.is_variable() or node.op in ("Const", "ReadVariableOp")


def source(text: str) -> tuple[str, int]:
    """The node and the output that an input names; output -1: it only waits for the node."""
    if text.startswith("^"):
        return text[1:], -1
    name, colon, output = text.rpartition(":")
    return (name, int(output)) if colon and output.isdecimal() else (text, 0)


def groups_of(nodes: list[Node], depth: int) -> dict[str, str]:
    """By name: a group for each variable with what reads it, and for each layer."""
    leader = {node.name: node.name for node in nodes}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    first_of_layer: dict[tuple[str, ...], str] = {}
    variables = {node.name for node in nodes if node.is_variable()}
    for node in nodes:
        path = node.name.split("/")
        if len(path) > depth > 0:
            first = first_of_layer.setdefault(tuple(path[:depth]), node.name)
            leader[find(node.name)] = find(first)
        for text in node.inputs:
            name, _ = source(text)
            if name in variables:
                leader[find(node.name)] = find(name)
    members: dict[str, int] = {}
    for name in leader:
        members[find(name)] = members.get(find(name), 0) + 1
    return {name: find(name) for name in leader if members[find(name)] > 1}


def as_operations(nodes: list[Node], batch: int = 1, depth: int = 2) -> dict:
    """The form "operations" of docs/partition.md. ValueError for inputs that are not there."""
    by_name = {node.name: node for node in nodes}
    if len(by_name) != len(nodes):
        raise ValueError("two nodes have one name")
    edges: dict[tuple[str, str], int] = {}
    sizes = Sizes(by_name, batch)
    for node in nodes:
        for text in node.inputs:
            name, output = source(text)
            if name not in by_name:
                raise ValueError(f'node "{node.name}" takes "{text}", which is not in the graph')
            size = sizes.bytes(by_name[name], output) if output >= 0 else 0
            edges[name, node.name] = edges.get((name, node.name), 0) + size
    groups = groups_of(nodes, depth)
    operations = []
    for node in nodes:
        operation = {"name": node.name, "time": sizes.time(node),
                     "parameter_bytes": sizes.parameter_bytes(node)}
        if not holds_parameters(node):
            operation["activation_bytes"] = sizes.bytes(node)
        if node.name in groups:
            operation["group"] = groups[node.name]
        operations.append(operation)
    model: dict = {"operations": operations}
    if edges:
        model["edges"] = [{"from": a, "to": b, "bytes": size} for (a, b), size in edges.items()]
    return model


def main() -> int:
    """Reads the file named, and writes JSON to standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graph", help="a GraphDef in protobuf's binary form")
    parser.add_argument("--batch", type=int, default=1, help="for dimensions not known [1]")
    parser.add_argument("--layer-depth", type=int, default=2,
                        help="parts of a name that are its Keras layer; 0: none [2: model/layer]")
    arguments = parser.parse_args()
    try:
        with open(arguments.graph, "rb") as file:
            nodes = read_graph(file.read())
        model = as_operations(nodes, arguments.batch, arguments.layer_depth)
    except (OSError, ValueError) as error:
        print(f"{arguments.graph}: {error}", file=sys.stderr)
        return 1
    json.dump(model, sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
