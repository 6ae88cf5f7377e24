"""Runs on an agent: ``load_image.py TAG=ID… < FILE`` loads the file into the engine, unless it has those images.

It uses the engine's socket, because Debian 13's docker.io has no docker command.
"""

import http.client
import json
import socket
import sys


class Engine(http.client.HTTPConnection):
    """HTTP to the agent's engine."""

    def connect(self) -> None:
        """Connect to its socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect("/run/docker.sock")

    def has(self, tag: str, image_id: str) -> bool:
        """Tell whether a tag refers to an image id."""
        self.request("GET", f"/images/{tag}/json")
        answer = self.getresponse()
        body = answer.read()
        return answer.status == 200 and json.loads(body)["Id"] == image_id

    def load(self) -> None:
        """Load the images from standard input."""
        headers = {"Content-Type": "application/x-tar"}
        self.request("POST", "/images/load?quiet=1", body=sys.stdin.buffer, headers=headers)
        answer = self.getresponse()
        body = answer.read()
        if answer.status != 200 or b'"errorDetail"' in body:
            raise SystemExit(body.decode(errors="replace"))


def main(arguments: list[str]) -> str:
    """Load the images if any is missing; return a summary."""
    engine = Engine("localhost")
    missing = [
        tag for tag, _mark, digest in (argument.partition("=") for argument in arguments) if not engine.has(tag, digest)
    ]
    if not missing:
        return "present"
    engine.load()
    return f"{', '.join(missing)} loaded"


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]))
    except (FileNotFoundError, ConnectionError):
        print("no engine")
