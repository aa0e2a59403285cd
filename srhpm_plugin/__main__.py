"""``python -m srhpm_plugin`` is ``srhpm-plugin``."""

from .cli import main

main()
