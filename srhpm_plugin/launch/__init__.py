"""Starting a server and watching over it."""
