"""Addresses: which are local, which ports are free, and who listens on one."""

from __future__ import annotations

import ipaddress
import socket
import sys

import psutil

from ..errors import UserError


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _sendable(api_key: str) -> bool:
    return api_key.isascii() and api_key.isprintable()


def check_exposure(host: str, api_key: str | None) -> None:
    """Refuses to open a server to the network without a key, and keys that would not work.

    Raises:
        UserError: the address is not one, or is not loopback and there is no key.
    """
    if not host or "," in host or "/" in host or host.endswith(".sock"):
        raise UserError(f"cannot listen on {host!r}", "not one address", "name one, as 127.0.0.1")
    if api_key is not None and (not api_key.strip() or "," in api_key or not _sendable(api_key)):
        # The server reads its key as a comma-separated list, and clients send it in a header.
        raise UserError(
            "cannot use this API key",
            "it is empty or holds a comma, a control character or a letter beyond ASCII",
            "choose one of letters and digits",
        )
    if not is_loopback(host) and api_key is None:
        raise UserError(
            f"refusing to listen on {host}",
            "anyone on the network could use the server",
            "add --api-key KEY, or leave out --host",
        )


def base_url(host: str, port: int) -> str:
    """Where a client on this machine reaches a server bound to ``host``."""
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{local}]:{port}" if ":" in local else f"http://{local}:{port}"


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to the address, nobody else's.

    Raises:
        OSError, ValueError: it cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is said because asyncio switches Nagle's algorithm off only where it is: with it
    # each first piece of a stream came 40 ms late.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform == "win32":
            # There SO_REUSEADDR means "steal the port", so ask for the opposite.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            # As the server does, so that a port in TIME_WAIT counts as free.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except BaseException:
        sock.close()
        raise
    return sock


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on at this moment.

    Raises:
        UserError: this machine does not have the address.
    """
    try:
        with bind(host, 0) as sock:
            port: int = sock.getsockname()[1]
            return port
    except (OSError, ValueError) as error:  # ValueError: a name that no resolver is asked for
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UserError(f"cannot listen on {host}", why, "try --host 127.0.0.1") from error


def require_free(host: str, port: int) -> None:
    """Checks that ``port`` can be had.

    Raises:
        UserError: it is taken, or not allowed; a free one is named.
    """
    if not 0 < port < 65536:
        raise UserError(f"cannot use port {port}", "ports are 1 to 65535", "try --port 8080")
    try:
        bind(host, port).close()
    except PermissionError as error:
        raise UserError(
            f"cannot use port {port}",
            "it is reserved to the system",
            f"try --port {free_port(host)}",
        ) from error
    except (OSError, ValueError) as error:
        free = free_port(host)  # speaks up when it is the address that is wrong
        raise port_in_use(port, free) from error


def port_in_use(port: int, free: int) -> UserError:
    """The error for a port that another program holds."""
    return UserError(
        f"port {port} is in use", "another program listens there", f"try --port {free}"
    )


def listens(pid: int, port: int) -> bool | None:
    """Whether the process or one of its children listens on ``port``; ``None`` if not told.

    Another program that answers on the port must not be taken for our server.
    """
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            # psutil 6 renamed the method.
            connections = getattr(process, "net_connections", None) or process.connections
            for connection in connections(kind="tcp"):
                local = connection.laddr
                if connection.status == psutil.CONN_LISTEN and local and local.port == port:
                    return True
    except (psutil.Error, OSError):
        return None
    return False
