"""Starting servers: supervised (:func:`serve`) or by becoming one (:func:`exec_server`)."""

from .become import exec_server
from .server import Progress, Server, serve

__all__ = ["Progress", "Server", "exec_server", "serve"]
