"""The drop-in's other half: what a host asked for becomes the command that the drop-in runs."""
