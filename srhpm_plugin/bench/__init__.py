"""Paired timings with medians and spread."""
