#!/usr/bin/env python3
"""A GPT-2 of Hugging Face's transformers, into a checkpoint of ours and back: gpt2.py SPRAT.

Once of bytes, and once of the tokens of a tokenizer of Hugging Face's, in a vocabulary that is larger; each on two data ranks and on two
tensor ranks. Held: training that starts with it has transformers' loss at its first step, on the same samples; what is trained
and converted back has the loss there that we say; tensors that nothing changed come back bit by bit. Status 77
where there is no torch or no transformers.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench" / "fsdp"))

try:
    import numpy
    import tokenizers
    import torch
    from gpt_numpy import Batches
    from safetensors.torch import load_file
    from transformers import GPT2Config, GPT2LMHeadModel
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

LAYERS, WIDTH, HEADS, CONTEXT, BATCH, STEPS = 2, 64, 4, 32, 4, 3
VOCABULARY = 320  # of the second; the tokenizer has fewer tokens
TEXT = b"the quick brown fox jumps over the lazy dog. " * 200
# Sums of at most 4 * WIDTH products in another order, forward alone, in f32; losses are about log(256) and log(320).
TOLERANCE = 4 * WIDTH * 2.0**-23


def loss_of(model, samples):
    tokens = torch.from_numpy(samples).long()
    with torch.no_grad():
        logits = model(input_ids=tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).item()


def close(ours, theirs, what):
    assert abs(ours - theirs) <= TOLERANCE * abs(theirs), f"{what}: {ours} here, {theirs} there"
    print(f"{what}: {ours:.7f} here, {theirs:.7f} there")


class Folder:
    """Where one run's files are, and the command that works on them."""

    def __init__(self, path, sprat):
        self.path, self.sprat = pathlib.Path(path), pathlib.Path(sprat).resolve()

    def run(self, *arguments):
        done = subprocess.run([self.sprat, *map(str, arguments)], cwd=self.path, text=True, capture_output=True)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"

    def train(self, config, steps):
        (self.path / "config.json").write_text(json.dumps(config))
        self.run("train", "config.json", "--virtual-ranks", 2, "--steps", steps, "--start", "start", "--report", "report")
        return [json.loads(line)["loss"] for line in (self.path / "report").read_text().splitlines()]


def tokenizer():
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator([TEXT.decode()], tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY - 9, show_progress=False, initial_alphabet=alphabet))
    return made


def check(sprat, tokens, parallel):
    """Of a model of bytes, or of the tokens of a tokenizer."""
    torch.manual_seed(1)
    shape = GPT2Config(vocab_size=VOCABULARY if tokens else 256, n_positions=CONTEXT, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
                       bos_token_id=0, eos_token_id=0, attn_implementation="eager")
    theirs = GPT2LMHeadModel(shape).eval()
    with torch.no_grad():  # norms and biases that are not what everybody begins with
        for parameter in theirs.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    with tempfile.TemporaryDirectory() as name:
        folder = Folder(name, sprat)
        text = folder.path / "text.txt"
        text.write_bytes(TEXT)
        config = {"model": {"layers": LAYERS, "width": WIDTH, "heads": HEADS, "context": CONTEXT},
                  "data": {"files": [str(text)], "validation_share": 0.1},
                  "train": {"steps": STEPS, "batch": BATCH, "seed": 1, "validate_every": 0, "sample_bytes": 0},
                  "checkpoint": {"folder": "saved"}, "parallel": parallel}
        if tokens:
            tokens.save(str(folder.path / "tokenizer.json"))
            config["data"]["tokenizer"] = "tokenizer.json"
            config["model"]["vocabulary"] = VOCABULARY
        theirs.save_pretrained(folder.path / "gpt2")
        folder.run("checkpoint", "convert", "gpt2/model.safetensors", "start", "--form", "sprat")
        folder.run("checkpoint", "convert", "start", "back.safetensors", "--form", "hf-gpt2")
        original, back = (load_file(folder.path / file) for file in ("gpt2/model.safetensors", "back.safetensors"))
        assert original.keys() == back.keys(), original.keys() ^ back.keys()
        for tensor, values in original.items():
            assert torch.equal(values, back[tensor]), tensor
        print(f"{len(back)} tensors come back bit by bit")

        encode = [lambda text: numpy.array(tokens.encode(text.decode()).ids)] if tokens else []
        batches = Batches(config, *encode)
        losses = folder.train(config, STEPS)
        close(losses[0], loss_of(theirs, batches.of(0, 0, 1)), "loss of the first step")
        assert losses[-1] < losses[0], losses

        (folder.path / "gpt2/model.safetensors").unlink()
        folder.run("checkpoint", "convert", "saved/latest", "gpt2/model.safetensors", "--form", "hf-gpt2")
        trained = GPT2LMHeadModel.from_pretrained(folder.path / "gpt2", attn_implementation="eager").eval()
        (folder.path / "report").unlink()
        folder.run("checkpoint", "convert", "saved/latest", "trained", "--form", "sprat")
        (folder.path / "start").rename(folder.path / "first")
        (folder.path / "trained").rename(folder.path / "start")
        config["checkpoint"]["folder"] = "saved again"
        close(folder.train(config, 1)[0], loss_of(trained, batches.of(0, 0, 1)), "loss of the trained model")


def main():
    for tokens in (None, tokenizer()):
        for parallel in ({}, {"tensor_parallel_degree": 2}):
            print(f"{tokens.get_vocab_size()} tokens" if tokens else "bytes", parallel or "")
            check(sys.argv[1], tokens, parallel)


if __name__ == "__main__":
    main()
