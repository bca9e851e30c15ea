"""Ports for jobs whose ranks have to be told one before any of them listens."""

from __future__ import annotations

import socket


def reserved_port() -> int:
    """A port of the loopback that the kernel gives to nobody for a minute, and that may be listened on by its number.

    A connection that has ended there leaves it in TIME_WAIT: who asks for any port gets another one, and who reuses
    addresses, as PyTorch's stores and Sprat's coordinator do, gets this one.
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as client:
            accepted, _ = listener.accept()
            accepted.close()  # before the client: the end that closes first is the one that waits
            client.recv(1)
        return listener.getsockname()[1]
