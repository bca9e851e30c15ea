"""Holds sprat's tokenizer against Hugging Face's `tokenizers`, trained on a small text made here.

Use: python tests/system/torch/tokenizer_test.py [build/release/bin/tokenizer_worker]. Downloads
nothing; without the package `tokenizers` (`pip install tokenizers`) it says so and checks nothing.
"""

from __future__ import annotations

import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
WORKER = ROOT / "build/release/bin/tokenizer_worker"

try:
    import tokenizers
except ImportError:
    tokenizers = None

WORDS = (
    "the shard of a model isn't what you'd gather; it's summed over 1024 ranks, and we'll see "
    "that they're Größe naïve café 数据 并行 训练 данные 😀 (x+y)*2 == 4\n\tif rank: return"
).split(" ")
END = "<|endoftext|>"


def small_text(seed: int, words: int) -> str:
    """Words in a random order, with blanks of several kinds between."""
    chooser = random.Random(seed)
    blanks = [" "] * 12 + ["  ", "\n", "\n\n", "\t", "   ", "\u00a0", "\r\n"]
    return "".join(chooser.choice(WORDS) + chooser.choice(blanks) for _ in range(words))


def random_text(seed: int) -> str:
    """Characters of all planes, more of those that people write."""
    chooser = random.Random(seed)
    ranges = [(0, 0x80)] * 6 + [(0x80, 0x250), (0x300, 0x600), (0x2000, 0x2100), (0x4E00, 0x5000),
                                (0x1F600, 0x1F650), (0xE000, 0x10000)]
    return "".join(chr(chooser.randrange(*chooser.choice(ranges)))
                   for _ in range(chooser.randrange(1, 60)))


@unittest.skipIf(tokenizers is None, "needs the package tokenizers: pip install tokenizers")
class Agreement(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=700, special_tokens=[END], show_progress=False,
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
        tokenizer.train_from_iterator([small_text(1, 3000)], trainer)
        cls.theirs = tokenizer

    def ours(self, path: pathlib.Path, texts: list[str]) -> list[list[int]]:
        """The tokens of each text by the worker."""
        encoded = [text.encode() for text in texts]
        given = b"".join(b"%d\n%s" % (len(text), text) for text in encoded)
        done = subprocess.run([WORKER, path], input=given, capture_output=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        return [[int(token) for token in line.split()] for line in done.stdout.decode().splitlines()]

    def agree(self, path: pathlib.Path, theirs, texts: list[str]) -> None:
        ours = self.ours(path, texts)
        self.assertEqual(len(ours), len(texts))
        for text, tokens, encoding in zip(texts, ours, theirs.encode_batch(texts)):
            self.assertEqual(tokens, encoding.ids, repr(text[:200]))

    def saved(self, folder: str) -> pathlib.Path:
        path = pathlib.Path(folder) / "tokenizer.json"
        self.theirs.save(str(path))
        return path

    def test_texts_give_the_same_tokens(self):
        texts = [small_text(seed, 400) for seed in range(2, 12)]
        texts += [random_text(seed) for seed in range(3000)]
        texts += ["", " ", "\0", END, f"a{END} b{END}{END}c", END[:-1], "x" * 5000, " " * 5000]
        with tempfile.TemporaryDirectory() as folder:
            self.agree(self.saved(folder), self.theirs, texts)

    def test_every_character_is_of_the_same_kind(self):
        """Letter, digit, white space or neither, by the words that it makes with others.

        Not of characters that Python's Unicode does not know: libraries that are newer may.
        """
        known = [code for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
        texts = ["".join(f"a{chr(code)}1{chr(code)} {chr(code)}  " for code in known[first : first + 64])
                 for first in range(0, len(known), 64)]
        with tempfile.TemporaryDirectory() as folder:
            self.agree(self.saved(folder), self.theirs, texts)

    def test_the_older_pair_of_files_gives_the_same_tokens(self):
        with tempfile.TemporaryDirectory() as folder:
            self.theirs.model.save(folder)
            texts = [small_text(20, 400), *(random_text(seed) for seed in range(500))]
            self.agree(pathlib.Path(folder), self.theirs, texts)

    def test_merges_written_as_lines_are_read_too(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.saved(folder)
            root = json.loads(path.read_text())
            root["model"]["merges"] = [" ".join(merge) for merge in root["model"]["merges"]]
            path.write_text(json.dumps(root))
            self.agree(path, self.theirs, [small_text(21, 400)])


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        WORKER = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
