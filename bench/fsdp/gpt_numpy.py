"""The trainer's first values and batches, by numpy: train/model/random.hpp, train/model/gpt_units.cpp, io/order/sample_order.cpp."""

import gzip
import math

import numpy as np

VOCABULARY = 256
DEVIATION = 0.02
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
FEISTEL_ROUNDS = 6


def finalised(value):
    """SplitMix64's finaliser, of an int or of an array of uint64."""
    if isinstance(value, int):
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
        return value ^ (value >> 31)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def mixed(value: int) -> int:
    return finalised((value + GOLDEN) & MASK)


def normals(seed: int, purpose: str, count: int) -> np.ndarray:
    """RandomStream(seed, purpose).normal(0 .. count - 1), in f64."""
    name = 0xCBF29CE484222325
    for letter in purpose.encode():
        name = ((name ^ letter) * 0x100000001B3) & MASK
    key = np.uint64(finalised(name ^ finalised(seed)))
    index = np.arange(4 * count, dtype=np.uint64)
    words = finalised(key ^ finalised(index * np.uint64(GOLDEN)))
    largest = (1 << 21) - 1
    thirds = [words >> np.uint64(shift) & np.uint64(largest) for shift in (0, 21, 42)]
    sums = sum(thirds).reshape(count, 4).sum(axis=1).astype(np.int64)
    return (sums - 6 * largest) * 2.0**-21


def initial_value(name: str, shape: tuple[int, ...], layers: int, seed: int) -> np.ndarray:
    """Of one parameter: norms are 1 and 0, biases 0, matrices GPT-2's normals."""
    if len(shape) == 1:
        is_gain = "ln_" in name and name.endswith(".weight")
        return np.full(shape, 1.0 if is_gain else 0.0, dtype=np.float32)
    onto_stream = name.endswith("c_proj.weight")
    deviation = DEVIATION / math.sqrt(2.0 * layers) if onto_stream else DEVIATION
    return (deviation * normals(seed, name, math.prod(shape))).astype(np.float32).reshape(shape)


class Batches:
    """Samples of the text in the trainer's order; ranks take consecutive shares of a step's.

    encode: of a text, its tokens; by default bytes.
    """

    def __init__(self, config: dict, encode=lambda text: np.frombuffer(text, dtype=np.uint8)):
        (path,) = config["data"]["files"]
        opened = gzip.open(path) if path.endswith(".gz") else open(path, "rb")
        with opened as file:
            text = encode(file.read())
        held_out = int(len(text) * config["data"]["validation_share"])
        self.text = text[: len(text) - held_out]
        self.length = config["model"]["context"]
        self.batch = config["train"]["batch"]
        self.seed = config["train"]["seed"]
        self.per_epoch = (len(self.text) - 1) // self.length - 1

    def begin(self, sample: int) -> int:
        epoch, index = divmod(sample, self.per_epoch)
        shift = mixed((mixed(self.seed ^ self.length) + epoch) & MASK) % self.length
        return shift + self.length * self.permuted(epoch, index)

    def permuted(self, epoch: int, index: int) -> int:
        key = mixed((mixed(self.seed) + epoch) & MASK)
        half = ((self.per_epoch - 1).bit_length() + 1) // 2
        mask = (1 << half) - 1
        while True:
            left, right = index >> half, index & mask
            for number in range(FEISTEL_ROUNDS):
                turned = mixed(key ^ mixed(right + (number << 32))) & mask
                left, right = right, left ^ turned
            index = left << half | right
            if index < self.per_epoch:
                return index

    def of(self, step: int, rank: int, ranks: int) -> np.ndarray:
        """This rank's samples, of length + 1 tokens each."""
        mine = self.batch // ranks
        begins = [self.begin(step * self.batch + rank * mine + i) for i in range(mine)]
        return np.stack([self.text[begin : begin + self.length + 1] for begin in begins])
