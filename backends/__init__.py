"""Inference engines as plugins."""
