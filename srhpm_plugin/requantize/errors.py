"""What a weight type costs in quality: docs/measurements.md, "What weight types cost".

The divergence of a mix of types is estimated as the sum, over kinds of tensors, of the kind's
sensitivity times the error of its type. That ranks mixes; it does not foretell the divergence of
a model of another size, so only ratios of it are said, and the command measures the outcome.
"""

from __future__ import annotations

import re

ERRORS: dict[str, float] = {
    "Q2_K": 8.79e-2,
    "Q3_K": 2.28e-2,
    "IQ3_S": 2.75e-2,
    "MXFP4": 1.32e-2,
    "Q4_0": 7.37e-3,
    "Q4_1": 6.12e-3,
    "IQ4_XS": 5.89e-3,
    "IQ4_NL": 5.80e-3,
    "Q4_K": 5.09e-3,
    "Q5_0": 1.82e-3,
    "Q5_1": 1.43e-3,
    "Q5_K": 1.30e-3,
    "Q6_K": 3.14e-4,
    "Q8_0": 2.86e-5,
    "BF16": 2.75e-6,
    "F16": 4.3e-8,
}
"""Mean squared error over the mean square of normally distributed weights, 1024 rows of 2048,
llama-quantize without an importance matrix."""

SENSITIVITY: dict[str, float] = {
    "attn_q": 2.5,
    "attn_k": 1.8,
    "attn_v": 11.2,
    "attn_output": 2.2,
    "ffn_gate": 3.2,
    "ffn_up": 6.9,
    "ffn_down": 11.9,
    "output": 6.3,
    "token_embd": 6.3,
}
"""Divergence (nats per token) of a model of which only this kind is in another type, over the mean
squared error of its weights: SmolLM2-135M, all layers at once in Q4_0. Its table is also its output
matrix, so what is said of either is of both together."""

_ALIKE = {
    "attn_qkv": "attn_v",
    "attn_gate": "attn_q",
    "ssm_in": "attn_output",
    "ssm_out": "attn_output",
    "ffn_gate_up": "ffn_up",
}
_NAME = re.compile(r"(?:blk\.\d+\.)?(\w+?)(?:_(?:ch|sh)?exps?)?\.weight")


def kind_of(name: str) -> str | None:
    """The kind of a tensor as :data:`SENSITIVITY` has it; experts count as what they replace.
    ``None`` for one that is not to be touched."""
    found = _NAME.fullmatch(name)
    if not found:
        return None
    kind = _ALIKE.get(found[1], found[1])
    return kind if kind in SENSITIVITY else None
