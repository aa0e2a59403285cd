"""The reader agrees with gguf-py's on every field and tensor."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
from gguf.constants import GGML_QUANT_SIZES

from srhpm_plugin.gguf import LongString, NumberArray, StringArray, read_header, read_model
from srhpm_plugin.gguf.ggml_types import GGML_TYPES


def compare(path: Path) -> None:
    """Fail on the first difference to gguf-py."""
    reader = gguf.GGUFReader(path)
    fields = {k: v for k, v in reader.fields.items() if not k.startswith("GGUF.")}
    names = [k for k, v in fields.items() if v.types[-1] == gguf.GGUFValueType.STRING]
    header = read_header(path, keep=names)
    assert list(header.kv) == list(fields)
    assert header.data_offset == reader.data_offset
    assert header.alignment == reader.alignment
    for key, field in fields.items():
        ours = header.kv[key]
        if isinstance(ours, StringArray):
            assert ours.items is not None
            strings = [bytes(field.parts[i]) for i in field.data]
            assert list(ours.items) == strings
            joined = b"".join(struct.pack("<Q", len(s)) + s for s in strings)
            assert ours.sha256 == hashlib.sha256(joined).hexdigest()
            assert ours.nbytes == len(joined)
        elif isinstance(ours, NumberArray):
            assert ours.count == len(field.data)
            if ours.items is not None:
                assert list(ours.items) == field.contents()
        else:
            assert not isinstance(ours, LongString)
            assert ours == field.contents()
    assert len(header.tensors) == len(reader.tensors)
    for mine, other in zip(header.tensors, reader.tensors, strict=True):
        assert mine.name == other.name
        assert mine.shape == tuple(int(d) for d in other.shape)
        assert mine.type == other.tensor_type.name
        assert mine.nbytes == int(other.n_bytes)
        assert mine.offset == int(other.data_offset)
        assert mine.n_elements == int(other.n_elements)


def test_real_model(smollm2: Path) -> None:
    compare(smollm2)


@pytest.mark.parametrize("arch", ["llama", "qwen3", "qwen3moe", "qwen35", "gemma3", "lfm2"])
def test_tiny_models(arch: str, tiny: Callable[..., Path]) -> None:
    compare(tiny(arch))


def test_every_kind_of_field(tiny: Callable[..., Path]) -> None:
    plain = {
        "x.flags": [True, False, True],
        "x.ints": [-3, 4],
        "x.floats": [0.5, -1.25],
        "x.words": ["", "a", "ü" * 40],
        "x.long": list(range(5000)),
        "x.yes": True,
        "x.half": 0.5,
        "general.name": "Modèle 7B",
    }
    compare(tiny("llama", plain=plain))


def test_other_alignment(tmp_path: Path, tiny: Callable[..., Path]) -> None:
    import numpy as np

    path = tmp_path / "wide.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(256)
    for i in range(3):
        writer.add_tensor(f"t{i}", np.zeros(3, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    compare(path)
    assert read_header(path).alignment == 256


def test_version_2(smollm2: Path, tiny: Callable[..., Path]) -> None:
    path = tiny("qwen3")
    whole = read_model(path)
    data = bytearray(path.read_bytes())
    data[4:8] = struct.pack("<I", 2)
    path.write_bytes(data)
    assert read_header(path).version == 2
    assert read_model(path) == whole


def test_type_table_is_that_of_gguf_py() -> None:
    ours = {n: (t.name, t.block, t.nbytes) for n, t in GGML_TYPES.items()}
    theirs = {int(t): (t.name, *size) for t, size in GGML_QUANT_SIZES.items()}
    assert {n: ours.get(n) for n in theirs} == theirs
    assert len({t.name for t in GGML_TYPES.values()}) == len(GGML_TYPES)
