"""Reading GGUF headers from untrusted files.

A model file comes from the internet and may be damaged or hostile. Every count, length and offset
of its header is checked against the size of the file before it is used, nothing is allocated from
a number the header states, and tensor data is never read.
"""

from .header import Header, is_gguf, read_header
from .reading import read_model
from .values import LongString, NumberArray, StringArray

__all__ = [
    "Header",
    "LongString",
    "NumberArray",
    "StringArray",
    "is_gguf",
    "read_header",
    "read_model",
]
