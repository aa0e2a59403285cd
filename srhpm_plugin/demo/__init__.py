"""The demo: a wide model that computes what a small one does, and the table it prints."""
