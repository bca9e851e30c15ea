"""What torchtitan trains on here: a tokenizer of words, rows of text, and the options that say so."""

from __future__ import annotations

import json
import pathlib

STEPS, ROWS, LENGTH = 3, 4, 64  # Rows of one step, over all ranks.
DEGREES = {"alone": [], "fsdp": ["--parallelism.data_parallel_shard_degree=2"],
           "tp": ["--parallelism.tensor_parallel_degree=2"], "pp": ["--parallelism.pipeline_parallel_degree=2"]}
WORDS = [f"w{number}" for number in range(40)]


def write_tokenizer(folder: pathlib.Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder.mkdir()
    names = ["<unknown>", "<begin>", "<end>", *WORDS]
    tokenizer = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(names[:3])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<begin>", "eos_token": "<end>"}))


def write_texts(folder: pathlib.Path, shares: int) -> None:
    """Texts of one row each, in such an order that a step has the same rows whoever reads them.

    torchtitan gives each of its readers a part of the texts, one part behind the other.
    """
    folder.mkdir()
    row_of = [[step * ROWS + row for step in range(STEPS) for row in range(ROWS) if row * shares // ROWS == share]
              for share in range(shares)]
    with open(folder / "texts.json", "w") as file:
        for row in sum(row_of, []):
            words = [WORDS[(row + place * (1 + row % 3)) % len(WORDS)] for place in range(LENGTH - 1)]
            file.write(json.dumps({"text": " ".join(words)}) + "\n")


def options(how: str, folder: pathlib.Path) -> list[str]:
    """Writes both to the folder. how: a key of DEGREES."""
    shares = 2 if how == "fsdp" else 1
    write_tokenizer(folder / "tokenizer")
    write_texts(folder / "texts", shares)
    return [f"--model.hf_assets_path={folder / 'tokenizer'}", f"--training.dataset_path={folder / 'texts'}",
            f"--job.dump_folder={folder}", f"--training.steps={STEPS}", f"--training.seq_len={LENGTH}",
            f"--training.local_batch_size={ROWS // shares}", "--training.mixed_precision_param=float32",
            "--lr_scheduler.warmup_steps=1", "--optimizer.implementation=for-loop", "--metrics.log_freq=1",
            "--comm.trace_buf_size=0", *DEGREES[how]]
