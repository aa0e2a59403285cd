"""The demo's two models, made once and kept under a name that says what they were made of."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gguf

from . import stretch, widen
from .files import demo_dir, require_space, sha256, sweep
from .quantize import quantize

OnPart = Callable[[str, float], None]
"""Called with what is being done and how much of it is, 0 to 1."""

_SEED = 1
# Few weights serve all heads here, and so small a model loses its English with them first (seen
# with Q4_0: "special day, special day, ..."). In eight bits they add a twentieth to the file.
_KEYS_AND_VALUES = ("--tensor-type", "attn_k=q8_0", "--tensor-type", "attn_v=q8_0")


@dataclass(frozen=True)
class Size:
    """Sizes of a wide model; all multiples of 256, so that every quantization can hold them."""

    width: int
    ffn: int
    heads: int
    kv_heads: int


SIZES = {
    "tiny": Size(768, 2048, 12, 4),  # 0.2 B parameters
    "demo": Size(1280, 5120, 24, 8),  # 0.8 B
    "wide": Size(2048, 8192, 36, 12),  # 2.0 B
}


@dataclass(frozen=True)
class Made:
    """A model file and whether it was there already."""

    path: Path
    cached: bool


def wide_model(
    source: Path,
    size: str,
    quant: str,
    *,
    program: Path,
    threads: int,
    on_part: OnPart | None = None,
) -> Made:
    """The target: ``source`` at one of :data:`SIZES`, quantized.

    Disk: for a while the F16 copy (2 bytes per weight) lies beside the result. Memory: two copies
    of the largest tensor.

    Args:
        source: a llama model in GGUF format.
        size: a name in :data:`SIZES`.
        quant: a type of llama-quantize.
        program: llama-quantize.
        threads: at work.
        on_part: progress.

    Raises:
        UserError: not such a model, no space, or quantizing failed.
    """
    to = SIZES[size]
    key = _key(source, to.width, to.ffn, to.heads, to.kv_heads, _SEED, quant, _KEYS_AND_VALUES)
    folder = demo_dir()
    target = folder / f"{_stem(source)}-{size}.{quant}.{key}.gguf"
    if target.is_file():
        return Made(target, cached=True)
    sweep(folder)
    weights = _weights(source, to)
    require_space(folder, int(weights * (2 + _bytes_per_weight(quant))))
    # Named like a part: a killed run's is swept, and two runs at once have one each.
    half = folder / f"{target.stem}.f16.part-{os.getpid()}"
    try:
        widen.widen(
            source,
            half,
            width=to.width,
            ffn=to.ffn,
            heads=to.heads,
            kv_heads=to.kv_heads,
            seed=_SEED,
            on_progress=_fraction(on_part, "widening"),
        )
        quantize(
            program,
            half,
            target,
            quant,
            threads=threads,
            options=_KEYS_AND_VALUES,
            on_progress=_fraction(on_part, f"quantizing to {quant}"),
        )
    finally:
        half.unlink(missing_ok=True)
    _supersede(target)
    return Made(target, cached=False)


def drafter(
    source: Path,
    quant: str,
    *,
    program: Path,
    threads: int,
    on_part: OnPart | None = None,
) -> Made:
    """The drafter: ``source`` in a quantization of its own.

    Args:
        quant: a type of llama-quantize, or ``original`` for the file as it is.

    Raises:
        UserError: no space, or quantizing failed.
    """
    if quant == "original":
        return Made(source, cached=True)
    folder, options = demo_dir(), ("--allow-requantize", *_KEYS_AND_VALUES)
    target = folder / f"{_stem(source)}.{quant}.{_key(source, quant, options)}.gguf"
    if target.is_file():
        return Made(target, cached=True)
    sweep(folder)
    require_space(folder, source.stat().st_size)
    quantize(
        program,
        source,
        target,
        quant,
        threads=threads,
        options=options,
        on_progress=_fraction(on_part, f"quantizing to {quant}"),
    )
    _supersede(target)
    return Made(target, cached=False)


def _supersede(target: Path) -> None:
    """Removes what the same name stood for before: another source, or older code made it."""
    name, key, _ = target.name.rsplit(".", 2)
    for old in target.parent.glob("*.gguf"):
        if old != target and re.fullmatch(
            rf"{re.escape(name)}\.[0-9a-f]{{{len(key)}}}\.gguf", old.name
        ):
            # Windows keeps a file that somebody has open: then it goes next time.
            with contextlib.suppress(OSError):
                old.unlink()


def _key(source: Path, *parts: object) -> str:
    """Of everything the result depends on, the code that makes it included."""
    digest = hashlib.sha256(repr((sha256(source), parts)).encode())
    for module in ("stretch.py", "widen.py"):
        digest.update(Path(__file__).with_name(module).read_bytes())
    return digest.hexdigest()[:10]


def _stem(source: Path) -> str:
    return source.name.removesuffix(".gguf").partition(".")[0]


def _weights(source: Path, to: Size) -> int:
    """Weights of the wide model.

    Raises:
        UserError: the source is no llama model.
    """
    reader = widen.open_model(source)
    old = widen.dims(reader, source)
    layers, vocab = widen.counts(reader, source)
    new = stretch.Dims(to.width, to.ffn, to.heads, to.kv_heads, old.head)
    return new.params(layers, vocab)


def _bytes_per_weight(quant: str) -> float:
    """Of the main type, and a tenth for the tensors that get a better one."""
    name = quant.removesuffix("_S").removesuffix("_M").removesuffix("_L")
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    return 1.1 * size / block


def _fraction(on_part: OnPart | None, what: str) -> Callable[[int, int], None] | None:
    return None if on_part is None else lambda done, total: on_part(what, done / max(total, 1))
