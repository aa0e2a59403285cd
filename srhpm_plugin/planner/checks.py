"""Whether a request makes sense, before anything is computed from it."""

from __future__ import annotations

import math

from ..errors import UserError
from ..files import not_a_file
from ..model import ModelInfo
from ..plan import HostRequest
from .kv import KV_TYPES, block_size

_MOST_CTX = 1 << 27
_MOST_SLOTS = 256  # LLAMA_MAX_SEQ
_MOST_THREADS = 512  # GGML_MAX_N_THREADS


def check_request(request: HostRequest) -> None:
    """Ranges and names.

    Raises:
        UserError: a value is out of range or unknown.
    """
    _whole("--ctx", request.ctx, _MOST_CTX)
    _whole("--parallel", request.parallel, _MOST_SLOTS)
    _whole("--threads", request.threads, _MOST_THREADS)
    if not (math.isfinite(request.relax) and request.relax >= 0):
        raise UserError(
            f"cannot use --relax {request.relax}",
            "it is a distance in nats",
            "give 0 for exact output or a small positive number, e.g. 0.2",
        )
    for option, value in (("k", request.cache_type_k), ("v", request.cache_type_v)):
        if value is not None and value not in KV_TYPES:
            raise UserError(
                f"cannot use --cache-type-{option} {value}",
                "the server keeps no KV cache of this type",
                f"give one of: {', '.join(KV_TYPES)}",
            )
    if request.mmproj is not None and (why := not_a_file(request.mmproj)):
        raise UserError(f"no projector {request.mmproj}", why, "check the path")


def _whole(option: str, value: int | None, most: int) -> None:
    if value is not None and not 1 <= value <= most:
        raise UserError(f"cannot use {option} {value}", "it is out of range", f"give 1 to {most}")


def check_cache_types(request: HostRequest, model: ModelInfo) -> None:
    """Quantized KV needs heads of whole blocks.

    Raises:
        UserError: the model's heads are of another length.
    """
    lengths = (
        ("k", request.cache_type_k, model.key_length),
        ("v", request.cache_type_v, model.value_length),
    )
    for option, kv_type, length in lengths:
        if kv_type and length % block_size(kv_type):
            raise UserError(
                f"cannot use --cache-type-{option} {kv_type}",
                f"the model's heads have {length} elements, not whole blocks of "
                f"{block_size(kv_type)}",
                f"leave --cache-type-{option} out",
            )
