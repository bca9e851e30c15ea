"""Small data sets of the kinds that a loader takes, by Python's own library; and the options that read them."""
import array
import io
import pathlib
import random
import struct
import tarfile

BATCH = 13  # that most numbers of ranks do not divide


def write_tokens(folder, draw, files=3, tokens=5000):
    """Headerless 16-bit tokens, as nanoGPT's."""
    for number in range(files):
        values = array.array("H", (draw.randrange(50_000) for _ in range(tokens + draw.randrange(500))))
        (folder / f"tokens{number}.bin").write_bytes(values.tobytes())


def write_tars(folder, draw, shards=4, samples=40):
    """Webdataset's: members of one sample have one stem."""
    for shard in range(shards):
        with tarfile.open(folder / f"shard-{shard:04}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for sample in range(samples + shard):
                for ending, content in ((".jpg", draw.randbytes(draw.randrange(10, 3000))),
                                        (".cls", str(draw.randrange(10)).encode()),
                                        (".json", b'{"width": %d}' % draw.randrange(100))):
                    member = tarfile.TarInfo(f"{shard:02}/{sample:05}{ending}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))


def write_documents(folder, draw, documents=400):
    """Megatron's .bin and .idx: sequences of 16-bit tokens."""
    lengths = [min(400, int(draw.expovariate(1 / 40)) + 1) for _ in range(documents)]
    tokens = array.array("H", (draw.randrange(50_000) for _ in range(sum(lengths))))
    (folder / "documents.bin").write_bytes(tokens.tobytes())
    starts = [0]
    for length in lengths[:-1]:
        starts.append(starts[-1] + 2 * length)
    uint16 = 8
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, uint16, documents, documents + 1)
    (folder / "documents.idx").write_bytes(
        head + array.array("i", lengths).tobytes() + array.array("q", starts).tobytes()
        + array.array("q", range(documents + 1)).tobytes())


def make(kind, folder, seed):
    """Writes the data of a kind into `folder`; the options as what JSON has, without rank and ranks."""
    folder, draw = pathlib.Path(folder), random.Random(seed)
    order = {"seed": seed}
    if kind in ("records", "chunks"):
        write_tars(folder, draw)
        sources = [{"paths": [f"{folder}/*.tar"], "format": "webdataset"}]
        order |= {"shuffle": "chunks", "chunk": 10, "mixed_chunks": 4} if kind == "chunks" else {}
    elif kind == "windows":
        write_tokens(folder, draw)
        sources = [{"paths": [f"{folder}/*.bin"], "format": "tokens", "token_type": "u16"}]
        order |= {"length": 63}
    elif kind in ("packed", "packed_whole"):
        write_documents(folder, draw)
        sources = [{"paths": [f"{folder}/documents.bin"], "format": "megatron"}]
        order |= {"samples": kind, "length": 127}
    elif kind == "mixture":
        for name, weight in (("many", 3), ("few", 1)):
            (folder / name).mkdir()
            write_tars(folder / name, draw, shards=2)
        sources = [{"paths": [f"{folder}/{name}"], "format": "webdataset", "weight": weight}
                   for name, weight in (("many", 3), ("few", 1))]
    else:
        raise ValueError(f"no kind {kind}; there are {', '.join(KINDS)}")
    return {"sources": sources, "batch": BATCH, "order": order, "reading": {"memory_bytes": 8 << 20, "timeout_ms": 60_000}}


KINDS = ("records", "chunks", "windows", "packed", "packed_whole", "mixture")
