"""Building the patched server from the pinned source."""
