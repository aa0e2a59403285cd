"""How many bytes our kernels' form of a weight takes: what native/kernels/format.h lays out.

16 rows make a panel, 32 weights of each a block, 8 blocks share a super-scale. A panel is the codes
of its blocks, their scales and the super-scales, each part padded to 64 bytes; missing rows of the
last panel take their room all the same. A test compares the table with format.h.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .model import Tensor

_ROWS = 16
_BLOCK = 32
_SUPER = 8

EXPERTS = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch)?exps\.")
"""The tensors of experts, which are also those that `--cpu-moe` and `--n-cpu-moe` keep in RAM."""

# Tables that are read by row: never a factor of a product, so they keep the file's layout.
_LOOKED_UP = re.compile(r"(token_embd|position_embd|token_types|embed_tokens|attn_rel_b)\.")


class Packed(NamedTuple):
    """Bytes for 16 rows.

    Attributes:
        codes: of a block.
        scales: scales and mins of a block.
        supers: super-scales of 8 blocks.
    """

    codes: int
    scales: int
    supers: int


PACKED: dict[str, Packed] = {
    "Q4_0": Packed(256, 32, 0),
    "Q4_1": Packed(256, 64, 0),
    "Q5_0": Packed(320, 32, 0),
    "Q5_1": Packed(320, 64, 0),
    "Q8_0": Packed(512, 32, 0),
    "Q2_K": Packed(128, 32, 64),
    "Q3_K": Packed(192, 32, 32),
    "Q4_K": Packed(256, 32, 64),
    "Q5_K": Packed(320, 32, 64),
    "Q6_K": Packed(384, 32, 32),
    "IQ4_NL": Packed(256, 32, 0),
    "IQ4_XS": Packed(256, 16, 32),
    "IQ3_S": Packed(256, 16, 32),
    "IQ3_XXS": Packed(256, 16, 32),
    "IQ2_S": Packed(192, 32, 32),
    "IQ2_XS": Packed(192, 32, 32),
    "IQ2_XXS": Packed(192, 16, 32),
    "MXFP4": Packed(256, 16, 0),
    "NVFP4": Packed(256, 32, 0),
}
"""The weight types that there are kernels for in a form of ours (upper-case ggml names)."""

IN_PLACE = frozenset(("F32", "F16", "BF16"))
"""The weight types that there are kernels for as the file holds them."""


def is_factor(tensor: Tensor) -> bool:
    """Whether the server multiplies by this tensor in a way that the kernels could do.

    Products with a stack of matrices count only for experts: the others (latent attention) are not
    chosen among by token, and the kernels do not take them.
    """
    dims = len(tensor.shape)
    if dims == 2:
        return _LOOKED_UP.search(tensor.name) is None
    return dims == 3 and EXPERTS.search(tensor.name) is not None


def packed_bytes(tensor: Tensor) -> int | None:
    """Bytes of the tensor's packed form; ``None`` for a type or a row length that has none."""
    form = PACKED.get(tensor.type)
    if form is None or len(tensor.shape) < 2 or tensor.shape[0] % _BLOCK:
        return None
    blocks = tensor.shape[0] // _BLOCK
    panel = blocks * form.codes + _pad64(blocks * form.scales)
    panel += _pad64(-(-blocks // _SUPER) * form.supers)
    matrices = tensor.n_elements // (tensor.shape[0] * tensor.shape[1])
    return panel * -(-tensor.shape[1] // _ROWS) * matrices


def held_bytes(tensor: Tensor, packed: bool) -> int:
    """Bytes of a tensor in RAM: with ``packed`` in the kernels' form where it has one."""
    own = packed_bytes(tensor) if packed and is_factor(tensor) else None
    return tensor.nbytes if own is None else own


def _pad64(n: int) -> int:
    return -(-n // 64) * 64
