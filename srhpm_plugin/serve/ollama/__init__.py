"""Ollama's API over leased engines."""
