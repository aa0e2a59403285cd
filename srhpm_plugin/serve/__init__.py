"""The embedded host: Ollama's and OpenAI's APIs on one port over every model found.

:mod:`.interfaces` says what its parts are to one another.
"""
