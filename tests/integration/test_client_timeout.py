# SPDX-License-Identifier: Apache-2.0
"""What `timeout` means: retries included."""

from __future__ import annotations

import socket
import threading
import time

import pytest

import pinq


def test_a_server_that_hangs_after_503s_is_given_up_in_time() -> None:
    """Two 503 over 1.2 s, then silence: the last attempt has only what is left of 2 s."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            begun, held = time.monotonic(), []
            while not stop.is_set():
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                held.append(connection)
                if time.monotonic() - begun < 1.2:
                    connection.recv(65536)
                    connection.sendall(
                        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    )
                    connection.close()
            for one in held:
                one.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        started = time.monotonic()
        with pytest.raises(pinq.Unavailable):
            pinq.connect(
                f"http://127.0.0.1:{listener.getsockname()[1]}/people",
                token="pinq_" + "a" * 43,
                timeout=2,
                insecure_http=True,
            )
        assert time.monotonic() - started < 3
        stop.set()
        with socket.create_connection(listener.getsockname()):
            pass
        thread.join(5)
