#!/usr/bin/env python3
"""Files that other libraries write, read by ours. peers.py SHOW_RECORDS [CASE ...]

Each case needs its library and is left out with that reason where it is missing; 77 if all are. For all of them:
  pip install numpy webdataset tfrecord crc32c safetensors
  pip install --no-deps mosaicml-streaming && pip install brotli python-snappy zstd xxhash tqdm Pillow typing_extensions filelock

tokens       numpy's arrays of tokens, without a header and behind llm.c's
megatron     a .bin and .idx, as indexed_dataset.py packs them
webdataset   tars of webdataset and of Python's tarfile (ustar, GNU, pax, long names), against webdataset's own reader
tfrecord     Examples of the tfrecord package, against its own parser
mds          shards of mosaicml-streaming, against its own reader
safetensors  tensors of the safetensors package
jsonl        lines of Python's json
"""
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tarfile
import tempfile
import types
from unittest import mock

show_records = None


class Missing(Exception):
    pass


def library(name):
    try:
        return __import__(name, fromlist=["_"])
    except ImportError as error:
        raise Missing(f"no {error.name}") from error


def records(form, *paths):
    """What ours reads: a list of fields for each record, (name, type, shape, bytes)."""
    done = subprocess.run([show_records, form, *map(str, paths)], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        sys.exit(f"{form}: {done.stderr}")
    return [[(name, kind, shape, bytes.fromhex(data)) for name, kind, shape, data in json.loads(line)]
            for line in done.stdout.splitlines()]


def same(what, ours, theirs):
    if ours != theirs:
        for number, (one, other) in enumerate(zip(ours, theirs)):
            if one != other:
                sys.exit(f"{what}: record {number} is {one!r:.600}, theirs {other!r:.600}")
        sys.exit(f"{what}: {len(ours)} records, theirs {len(theirs)}")


def tokens(folder):
    numpy = library("numpy")
    for name, dtype, magic in [("u16", numpy.uint16, (20240520, 1)), ("u32", numpy.uint32, (20240801, 7))]:
        values = numpy.random.default_rng(1).integers(0, 2**16, 1000).astype(dtype)
        wanted = [[("tokens", name, [1], value.tobytes())] for value in values]
        values.tofile(folder / f"{name}.bin")
        same(name, records("tokens:" + name, folder / f"{name}.bin"), wanted)
        header = numpy.zeros(256, dtype=numpy.int32)
        header[:3] = [*magic, len(values)]
        (folder / f"llmc_{name}.bin").write_bytes(header.tobytes() + values.tobytes())
        same(f"llm.c's {name}", records("auto", folder / f"llmc_{name}.bin"), wanted)


def megatron(folder):
    numpy = library("numpy")
    random.seed(2)
    lengths = [random.randrange(0, 50) for _ in range(300)]
    sequences = [numpy.arange(length, dtype=numpy.int32) * 7 for length in lengths]
    pointers = numpy.cumsum([0] + [4 * length for length in lengths[:-1]], dtype=numpy.int64)
    documents = numpy.arange(len(lengths) + 1, dtype=numpy.int64)
    with open(folder / "a.idx", "wb") as index:
        index.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, len(lengths), len(documents)))
        index.write(numpy.array(lengths, dtype=numpy.int32).tobytes() + pointers.tobytes() + documents.tobytes())
    (folder / "a.bin").write_bytes(b"".join(sequence.tobytes() for sequence in sequences))
    same("megatron", records("auto", folder / "a.bin"),
         [[("tokens", "i32", [len(sequence)], sequence.tobytes())] for sequence in sequences])


def webdataset_reads(path):
    reader = library("webdataset.tariterators")
    expanded = reader.tar_file_expander([{"url": "x", "stream": open(path, "rb")}])
    return [{key: value for key, value in sample.items() if key != "__url__"}
            for sample in reader.group_by_keys(expanded)]


def compare_tar(what, path):
    ours = [{name: data.decode("utf-8", "surrogateescape") if name == "__key__" else data for name, _, _, data in fields}
            for fields in records("webdataset", path)]
    same(what, ours, webdataset_reads(path))


def webdataset(folder):
    writer = library("webdataset.writer")
    random.seed(3)
    with writer.TarWriter(str(folder / "own.tar"), encoder=False) as out:
        for sample in range(200):
            out.write({"__key__": f"{sample:06}", "jpg": random.randbytes(random.randrange(2000)), "cls": b"%d" % sample})
    compare_tar("webdataset's writer", folder / "own.tar")
    names = ["a.jpg", "a.txt", "a.b/c.jpg", "x.seg.png", "./a.jpg", "a/.x", "README", "a/b.c/d", "B.JPG", "__meta__/x.json",
             "deep/" * 30 + "name.txt", "n" * 200 + ".txt", "n" * 200 + ".cls", "ümlaut/日本.txt", "last.txt"]
    for name, form in [("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)]:
        path = folder / f"{name}.tar"
        with tarfile.open(path, "w", format=form) as tar:
            for number, member in enumerate(names):
                if form == tarfile.USTAR_FORMAT and len(pathlib.PurePath(member).name) > 100:
                    continue  # which ustar has no room for
                info = tarfile.TarInfo(member)
                info.size = number * 100
                info.mtime = 1.5
                tar.addfile(info, io.BytesIO(random.randbytes(info.size)))
                tar.addfile(folder_of_tar(f"folder{number}"))
        compare_tar(f"tarfile's {name}", path)


def folder_of_tar(name):
    info = tarfile.TarInfo(name)
    info.type = tarfile.DIRTYPE
    return info


def tfrecord(folder):
    numpy, writer, schema = library("numpy"), library("tfrecord.writer"), library("tfrecord.example_pb2")
    path = folder / "a.tfrecord"
    out = writer.TFRecordWriter(str(path))
    random.seed(4)
    for record in range(200):
        out.write({"image": (random.randbytes(random.randrange(3000)), "byte"), "label": (record - 100, "int"),
                   "ids": ([random.randrange(-2**63, 2**63) for _ in range(record % 7)], "int"),
                   "scores": ([random.random() for _ in range(record % 5)], "float")})
    out.close()
    wanted = []
    data, at = path.read_bytes(), 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        payload = data[at + 12:at + 12 + length]
        fields = {}
        for name, feature in schema.Example.FromString(payload).features.feature.items():
            if feature.WhichOneof("kind") == "bytes_list":
                fields[name] = ("bytes", [], feature.bytes_list.value[0])
            elif feature.WhichOneof("kind") == "float_list":
                value = numpy.array(feature.float_list.value, dtype=numpy.float32)
                fields[name] = ("f32", [len(value)], value.tobytes())
            else:
                value = numpy.array(feature.int64_list.value, dtype=numpy.int64)
                fields[name] = ("i64", [len(value)], value.tobytes())
        wanted.append((payload, fields))
        at += 16 + length
    ours = [(fields[0][3], {name: (kind, shape, value) for name, kind, shape, value in fields[1:]})
            for fields in records("auto", path)]
    same("tfrecord", ours, wanted)


class NoTorch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for torch, of which the writer and the reader of shards only name things."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "torch" else None

    def create_module(self, spec):
        module = mock.MagicMock()
        module.__path__ = []
        return module

    def exec_module(self, module):
        pass


def streaming_parts():
    """The writer and reader of shards alone: the package's own begin wants torch and every cloud's library."""
    spec = importlib.util.find_spec("streaming")
    if spec is None:
        raise Missing("no mosaicml-streaming")
    root = spec.submodule_search_locations[0]
    for name in ["streaming", "streaming.base", "streaming.base.format"]:
        module = types.ModuleType(name)
        module.__path__ = [os.path.join(root, *name.split(".")[1:])]
        sys.modules[name] = module
    sys.meta_path.append(NoTorch())
    return library("streaming.base.format.mds.writer").MDSWriter, library("streaming.base.format.mds.reader").MDSReader


def mds(folder):
    numpy = library("numpy")
    writer, reader = streaming_parts()
    out = folder / "shards"
    columns = {"n": "int", "s": "str", "b": "bytes", "j": "json", "f": "float32", "free": "ndarray", "typed": "ndarray:uint16",
               "fixed": "ndarray:float64:2,3"}
    types_of = {"n": "i64", "s": "text", "b": "bytes", "j": "json", "f": "f32", "typed": "u16", "fixed": "f64"}
    random.seed(5)
    with writer(columns=columns, out=str(out), size_limit=20_000) as shards:
        for sample in range(300):
            shape = [random.randrange(1, 5) for _ in range(random.randrange(1, 4))]
            dtype = random.choice([numpy.int8, numpy.int32, numpy.float16, numpy.uint64])
            shards.write({"n": sample - 150, "s": "é" * (sample % 5), "b": random.randbytes(sample % 40), "j": {"k": [sample]},
                          "f": numpy.float32(sample / 3), "free": numpy.zeros(shape, dtype) + 1,
                          "typed": numpy.arange(sample % 300 + 1, dtype=numpy.uint16), "fixed": numpy.ones((2, 3)) * sample})
    wanted = []
    for shard in json.loads((out / "index.json").read_text())["shards"]:
        one = reader.from_json(str(out), "", shard)
        for number in range(one.samples):
            sample = one.decode_sample(one.get_sample_data(number))
            fields = []
            for name in sorted(columns):
                value, kind, shape = sample[name], types_of.get(name), []
                if columns[name].startswith("ndarray"):
                    shape = list(value.shape)
                    kind = kind or {"int8": "i8", "int32": "i32", "float16": "f16", "uint64": "u64"}[value.dtype.name]
                    data = value.tobytes()
                elif name == "n":
                    data = struct.pack("<q", value)
                elif name == "f":
                    data = value.tobytes()
                elif name == "j":
                    data = json.dumps(value).encode()
                else:
                    data = value if isinstance(value, bytes) else value.encode()
                fields.append((name, kind, shape, data))
            wanted.append(fields)
    same("mds", records("auto", out), wanted)


def safetensors(folder):
    numpy, package = library("numpy"), library("safetensors.numpy")
    path = folder / "a.safetensors"
    tensors = {f"t{number}": numpy.random.default_rng(number).random((number, 3)).astype(dtype)
               for number, dtype in enumerate([numpy.float32, numpy.float16, numpy.float64, numpy.int32, numpy.uint8])}
    package.save_file(tensors, str(path))
    kinds = {"float32": "f32", "float16": "f16", "float64": "f64", "int32": "i32", "uint8": "u8"}
    ours = {fields[0][0]: fields[0][1:] for fields in records("auto", path)}
    same("safetensors", sorted(ours.items()),
         sorted((name, (kinds[tensor.dtype.name], list(tensor.shape), tensor.tobytes())) for name, tensor in tensors.items()))


def jsonl(folder):
    path = folder / "a.jsonl"
    random.seed(6)
    lines = []
    for number in range(300):
        text = "".join(chr(random.choice([10, 34, 92, 65, 233, 0x4E2D, 0x1F600])) for _ in range(number % 30))
        lines.append({"text": text, "n": number, "meta": {"a": [text, None, {"b": 1.5}]}, text[:3] + "key": True})
    with open(path, "w", encoding="utf-8") as out:
        for number, line in enumerate(lines):
            out.write(json.dumps(line, ensure_ascii=number % 2 == 0) + ("\r\n" if number % 3 == 0 else "\n"))
    ours = [{name: data.decode() if kind == "text" else json.loads(data) for name, kind, _, data in fields}
            for fields in records("auto", path)]
    same("jsonl", ours, lines)


CASES = [tokens, megatron, webdataset, tfrecord, mds, safetensors, jsonl]


def main():
    global show_records
    show_records = sys.argv[1]
    chosen = sys.argv[2:]
    done = 0
    for case in CASES:
        if chosen and case.__name__ not in chosen:
            continue
        with tempfile.TemporaryDirectory(prefix="sprat-io-") as folder:
            try:
                case(pathlib.Path(folder))
                done += 1
                print(f"{case.__name__}: the same")
            except Missing as missing:
                print(f"{case.__name__}: left out, {missing}")
    sys.exit(0 if done > 0 else 77)


if __name__ == "__main__":
    main()
