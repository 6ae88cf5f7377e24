"""Fake admin socket of HAProxy: maps in memory that can be listed and changed."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

Entries = list[tuple[str, str]]


class AdminSocket:
    """Listens at a path until it is closed; ``commands`` are all received ones, ``maps`` their result."""

    def __init__(self, path: Path, maps: dict[str, Entries]) -> None:
        self.maps, self.commands = maps, list[str]()
        self.answers: dict[str, str] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _address = self._listener.accept()
            except OSError:
                return
            with connection:
                command = connection.recv(1 << 16).decode().strip()
                self.commands.append(command)
                connection.sendall(f"{self.answers.get(command.split(' ')[0]) or self._answer(command)}\n".encode())

    def _answer(self, command: str) -> str:
        action, _map, path, *rest = command.split(" ")
        if path not in self.maps:
            return "Unknown map identifier. Please use #<id> or <file>.\n"
        entries = self.maps[path]
        if action == "show":
            return "".join(f"0x55be5b685f{number:02x} {key} {value}\n" for number, (key, value) in enumerate(entries))
        if action == "add":
            entries.append((rest[0], rest[1]))
            return ""
        if rest[0] not in dict(entries):
            return "Key not found.\n"
        self.maps[path] = [entry for entry in entries if entry[0] != rest[0]]
        return ""
