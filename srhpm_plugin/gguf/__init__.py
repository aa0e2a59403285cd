"""Reading GGUF headers from untrusted files."""
