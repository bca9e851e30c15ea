"""The GPTs whose layers are cut among two ranks, and what is asked of them."""

import math
from dataclasses import dataclass

import shapes

RANKS = 2
LEAST = 2.0  # tokens a second, ours by PyTorch's
OPTIMIZE = ["memory", "speed"]  # with sequence parallelism, and without
UNIT_ROUNDOFF = 2.0**-24


@dataclass(frozen=True)
class Case:
    """A GPT, and a step's samples, which every rank has."""

    model: shapes.Shape

    def text(self) -> str:
        return self.model.text()

    def tokens(self) -> int:
        return self.model.tokens(1)

    def config(self, optimize: str) -> dict:
        """As `sprat train` reads it; the other side reads the same."""
        return {**self.model.config(1), "parallel": {"tensor_parallel_degree": RANKS, "optimize": optimize}}

    def roundings(self) -> dict[str, int]:
        """Of what both sides are compared by: the additions on the longest way to it.

        As docs/numerics.md counts them: what products add up, in a block query, key and value, scores and their
        mean, projection and the two layers of the MLP; the head, and the sum of exponentials.
        """
        width, head = self.model.width, self.model.width // self.model.config(1)["model"]["heads"]
        block = width + head + self.model.context + width + width + 4 * width
        forward = self.model.layers * block + width + shapes.VOCABULARY
        gradient = 2 * forward + self.tokens()
        return {"first loss": forward, "first norm": gradient, "second loss": gradient + forward}

    def bounds(self) -> dict[str, float]:
        """2 sqrt(n) u, relative: two sides whose n roundings go up as often as down (Higham and Mary 2019)."""
        return {name: 2 * math.sqrt(count) * UNIT_ROUNDOFF for name, count in self.roundings().items()}


# Layers x width, samples x context: the usual one; many small calls; large products; attention that counts; few tokens.
CASES = {
    "4x256": Case(shapes.Shape(4, 256, 128, 8)),
    "8x128": Case(shapes.Shape(8, 128, 128, 8)),
    "4x512": Case(shapes.Shape(4, 512, 128, 8)),
    "long": Case(shapes.Shape(4, 256, 512, 2)),
    "few": Case(shapes.Shape(4, 256, 64, 1)),
}
