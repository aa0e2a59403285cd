"""SR-HPM: exact speculative decoding that pays off for models bigger than the GPU.

Importing this package is cheap on purpose: hosts start our drop-in through it, and every
millisecond here is added to each model load. The plugin API is in :mod:`srhpm_plugin.api`.
"""

from ._version import __version__

__all__ = ["__version__"]
