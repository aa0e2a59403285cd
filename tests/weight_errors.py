"""Measures the tables of srhpm_plugin/requantize/errors.py:

    python tests/weight_errors.py FOLDER_OF_PROGRAMS MODEL.gguf

FOLDER_OF_PROGRAMS holds llama-quantize and llama-perplexity. The first table is of normally
distributed weights; the second is MODEL's, whose rows need be whole blocks of 32 only.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

from srhpm_plugin.model import Tensor
from srhpm_plugin.planner.headers import read_header
from srhpm_plugin.requantize.errors import ERRORS, kind_of
from srhpm_plugin.requantize.mix import Mix
from srhpm_plugin.requantize.quality import Comparison
from srhpm_plugin.requantize.reading import as_type, bits
from srhpm_plugin.requantize.run import write

_TRIED = ("Q4_0", "Q5_0")


def main(programs: Path, model: Path) -> None:
    """Prints both tables."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        errors(programs, folder)
        sensitivities(programs, model, folder)


def errors(programs: Path, folder: Path) -> None:
    """Mean squared error over the mean square, per type."""
    weights = np.random.default_rng(7).standard_normal((1024, 2048)).astype(np.float32)
    source = folder / "normal.gguf"
    w = gguf.GGUFWriter(source, "llama")
    w.add_block_count(1)
    w.add_context_length(64)
    w.add_embedding_length(2048)
    w.add_feed_forward_length(1024)
    w.add_head_count(16)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model("gpt2")
    w.add_token_list(["a", "b"])
    w.add_tensor("token_embd.weight", np.zeros((2, 2048), np.float16))
    w.add_tensor("blk.0.ffn_up.weight", weights)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    for kind in ERRORS:
        found = quantized(programs, source, {"blk.0.ffn_up.weight": kind}, folder)
        made = found["blk.0.ffn_up.weight"].reshape(weights.shape)
        print(
            f"{kind:8} {bits(kind):6.3f} {((made - weights) ** 2).mean() / (weights**2).mean():.3g}"
        )


def sensitivities(programs: Path, model: Path, folder: Path) -> None:
    """Divergence over error, per kind of tensor, with all of that kind in one type."""
    comparison = Comparison(programs / "llama-perplexity", folder, 2)
    comparison.take(model)
    header = read_header(model)
    own = dequantized(model)
    kinds: dict[str, list[Tensor]] = {}
    for t in header.tensors:
        if len(t.shape) > 1 and (kind := kind_of(t.name)):
            kinds.setdefault(kind, []).append(t)
    for kind, tensors in kinds.items():
        for name in _TRIED:
            to = {t.name: name for t in tensors if bits(t.type) > bits(name)}
            if not to:
                continue
            made = quantized(programs, model, to, folder)
            lost = sum(float(((made[n] - own[n]) ** 2).sum()) for n in to)
            error = lost / sum(float((own[t.name] ** 2).sum()) for t in tensors)
            found = comparison.of(folder / "made.gguf")
            print(
                f"{kind:12} {name} {found.mean:.4f} {error:.5f} {found.mean / error:.2f}",
                flush=True,
            )


def quantized(
    programs: Path, source: Path, to: dict[str, str], folder: Path
) -> dict[str, np.ndarray]:
    """The weights after these tensors got these types and came back."""
    target = folder / "made.gguf"
    target.unlink(missing_ok=True)
    before = read_header(source).tensors
    after = tuple(as_type(t, to.get(t.name, t.type)) or t for t in before)
    write(programs / "llama-quantize", source, target, Mix(before, after, 0, 0), threads=2)
    return dequantized(target)


def dequantized(path: Path) -> dict[str, np.ndarray]:
    """All matrices as floats."""
    return {
        t.name: gguf.dequantize(t.data, t.tensor_type)
        for t in gguf.GGUFReader(path).tensors
        if len(t.shape) > 1
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
