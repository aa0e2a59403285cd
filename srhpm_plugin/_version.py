"""The one place that names the version; the build reads it without importing anything else."""

__version__ = "0.1.0"
