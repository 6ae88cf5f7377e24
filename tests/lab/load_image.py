"""Runs on an agent: ``load_image.py TAG=ID… < FILE`` gives the file to the engine there, unless it has those images.

By the engine's own socket, because Debian 13's docker.io comes without the docker command.
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
        """Tell whether a name stands for a certain image."""
        self.request("GET", f"/images/{tag}/json")
        answer = self.getresponse()
        body = answer.read()
        return answer.status == 200 and json.loads(body)["Id"] == image_id

    def load(self) -> None:
        """Load the images of standard input."""
        headers = {"Content-Type": "application/x-tar"}
        self.request("POST", "/images/load?quiet=1", body=sys.stdin.buffer, headers=headers)
        answer = self.getresponse()
        body = answer.read()
        if answer.status != 200 or b'"errorDetail"' in body:
            raise SystemExit(body.decode(errors="replace"))


def main(arguments: list[str]) -> str:
    """Load what is asked for when any of it is missing; return what was done."""
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
