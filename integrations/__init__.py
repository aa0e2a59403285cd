"""Hosts as plugins, one module each."""
