"""Headers of model files, each read once per process while the file stays as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..errors import UserError
from ..gguf import read_model
from ..model import ModelInfo

_Stamp = tuple[int, int, int, int]
_read: dict[Path, tuple[_Stamp, ModelInfo | UserError]] = {}
_vocabularies: dict[str, tuple[bytes, ...]] = {}


def read_header(path: Path) -> ModelInfo:
    """``read_model`` with a memory: candidates are looked at for every model of a list.

    Raises:
        UserError: the file cannot be read as a model, now as when it was first tried.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise UserError(
            f"cannot read {path}", error.strerror or str(error), "check the path"
        ) from error
    stamp = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
    if path not in _read or _read[path][0] != stamp:
        try:
            _read[path] = (stamp, _shared(read_model(path)))
        except UserError as error:
            _read[path] = (stamp, error)
    found = _read[path][1]
    if isinstance(found, UserError):
        raise found
    return found


def _shared(model: ModelInfo) -> ModelInfo:
    # A family's models have one vocabulary of 150000 strings: keep it once.
    tokenizer = model.tokenizer
    if tokenizer is None or not tokenizer.token_spans:
        return model
    spans = _vocabularies.setdefault(tokenizer.tokens_sha256, tokenizer.token_spans)
    return replace(model, tokenizer=replace(tokenizer, token_spans=spans))
