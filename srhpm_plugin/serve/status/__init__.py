"""The page at ``/srhpm``, the same as JSON, and ``/metrics``."""
