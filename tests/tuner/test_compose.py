# SPDX-License-Identifier: MIT
"""docker/compose.yaml and its helpers, as far as no Docker Engine is needed."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from typing import Any

import yaml
from conftest import ROOT

FILE = yaml.safe_load((ROOT / "docker/compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = FILE["services"]


def test_only_what_hands_the_ui_on_is_on_an_open_network() -> None:
    networks = FILE["networks"]
    opened = {name for name, options in networks.items() if not options.get("internal")}
    assert opened == {"ui"}
    masquerade = "com.docker.network.bridge.enable_ip_masquerade"
    assert networks["ui"]["driver_opts"] == {masquerade: "false"}
    on_it = {name for name, service in SERVICES.items() if opened & set(service["networks"])}
    published = {name for name, service in SERVICES.items() if "ports" in service}
    assert on_it == published == {"ui"}
    (port,) = SERVICES["ui"]["ports"]
    assert port.startswith("127.0.0.1:")
    assert SERVICES["ui"]["networks"] == ["door", "ui"]
    assert "secrets" not in SERVICES["ui"]


def test_no_variable_holds_a_secret() -> None:
    named = ("PASSWORD", "SECRET", "TOKEN")
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            assert not name.endswith(named)
            assert "$" not in value


def test_the_relay_hands_bytes_on_both_ways() -> None:
    relay = ROOT / "docker/relay.py"
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
        command = [sys.executable, "-I", str(relay), "0", "127.0.0.1", str(place[1])]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().split()[1])

            def serve() -> None:
                there, _ = server.accept()
                with there:
                    asked = b"".join(iter(lambda: there.recv(1 << 16), b""))
                    there.sendall(asked[::-1])

            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            with socket.create_connection(("127.0.0.1", port)) as client:
                asked = bytes(range(256)) * 2000
                client.sendall(asked)
                client.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: client.recv(1 << 16), b""))
            thread.join()
            assert answer == asked[::-1]
            server.close()
            with socket.create_connection(("127.0.0.1", port)) as client:
                assert client.recv(1) == b"", "nobody is there: it ends"
        finally:
            process.kill()
            process.communicate()
