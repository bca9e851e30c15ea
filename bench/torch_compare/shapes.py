"""The GPT shapes whose FSDP2 steps are compared, by the share of gloo's communication in them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """A GPT over bytes, and each rank's part of a batch."""

    layers: int
    width: int
    context: int
    sequences: int

    @property
    def heads(self) -> int:
        return self.width // 64

    def text(self) -> str:
        return f"{self.layers}x{self.width}, {self.sequences}x{self.context} tokens"


# By number of ranks and name: the share of a step that gloo's communication takes on two cores.
SHAPES = {
    2: {"20%": Shape(4, 256, 128, 8), "40%": Shape(4, 512, 128, 1), "60%": Shape(12, 128, 64, 1)},
    4: {"20%": Shape(4, 256, 128, 6), "40%": Shape(4, 256, 128, 2), "60%": Shape(12, 128, 64, 1)},
}
# One rank on each of four hosts at 1 Gbit/s, all on two cores; even: a step without communication
# takes as long as a wire needs.
BETWEEN_HOSTS = {"communication-bound": Shape(4, 512, 64, 2), "even": Shape(8, 384, 128, 3)}
# How many times faster than gloo's a step has to be.
BARS = {"20%": 1.1, "40%": 1.3, "60%": 1.6, "communication-bound": 1.25, "even": 1.6}
