#!/usr/bin/env python3
"""Writes the Parquet files beside it, by pyarrow. What they hold is said again in convert_test.cpp."""
import pathlib

import numpy
import pyarrow
import pyarrow.parquet

here = pathlib.Path(__file__).parent


def table(first, rows):
    numbers = range(first, first + rows)
    return pyarrow.table({
        "text": pyarrow.array([f"row {i} \u00fc" for i in numbers]),
        "large": pyarrow.array([f"large {i}" for i in numbers], pyarrow.large_string()),
        "score": pyarrow.array([i / 4 for i in numbers], pyarrow.float32()),
        "half": pyarrow.array([numpy.float16(i) for i in numbers], pyarrow.float16()),
        "label": pyarrow.array([i - 3 for i in numbers], pyarrow.int64()),
        "good": pyarrow.array([i % 3 == 0 for i in numbers]),
        "tokens": pyarrow.array([list(range(i % 4)) for i in numbers], pyarrow.list_(pyarrow.int32())),
        "box": pyarrow.array([[i % 200, i % 200 + 1] for i in numbers], pyarrow.list_(pyarrow.uint8(), 2)),
        "tags": pyarrow.array([["a", None, f"{i}"] for i in numbers]),
        "image": pyarrow.array([{"bytes": bytes([i % 256, 0, 255]), "path": f"{i}.png"} for i in numbers],
                               pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])),
        "kind": pyarrow.array(["cat" if i % 2 else "dog" for i in numbers]).dictionary_encode(),
    })


# More rows than are read at once, several row groups, dictionaries and pages of both versions.
pyarrow.parquet.write_table(table(0, 300), here / "a.parquet", row_group_size=128, compression="zstd")
pyarrow.parquet.write_table(table(300, 20), here / "b.parquet", row_group_size=7, compression="snappy", data_page_version="2.0",
                            use_dictionary=False)
pyarrow.parquet.write_table(pyarrow.table({
    "text": pyarrow.array(["one", None]),
    "image": pyarrow.array([None, {"bytes": b"x", "path": None}],
                           pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])),
    "tokens": pyarrow.array([None, [1]], pyarrow.list_(pyarrow.int16())),
    "label": pyarrow.array([7, None], pyarrow.int32()),
}), here / "nulls.parquet")
pyarrow.parquet.write_table(pyarrow.table({
    "text": ["one"],
    "when": pyarrow.array([0], pyarrow.timestamp("us")),
}), here / "timestamp.parquet")
