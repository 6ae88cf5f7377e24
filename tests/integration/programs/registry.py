"""A minimal image registry: ``python3 registry.py ARCHIVE [--login FILE] [--rate BYTES]``.

It serves the images of a file in the format of `docker save`, on port 5000 of the loopback interface, where
engines accept plain HTTP. It prints its process id once it listens, and continues in the background. It needs only
Python, since it runs on an agent. (https://distribution.github.io/distribution/spec/api/)
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import tarfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ADDRESS = ("127.0.0.1", 5000)
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
# Uncompressed: other versions of zlib would produce other bytes, and so another digest.
LAYER = "application/vnd.docker.image.rootfs.diff.tar"
CHUNK = 16 << 10


class Content:
    """The registry's content: blobs and manifests by digest, and the digests of the manifests by tag."""

    def __init__(self, archive: Path) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.tags: dict[str, str] = {}
        with tarfile.open(archive) as tar:
            files = {member.name: tar.extractfile(member) for member in tar.getmembers() if member.isfile()}
            content = {name: stream.read() for name, stream in files.items() if stream}
        for image in json.loads(content["manifest.json"]):
            layers = [self._blob(content[name], LAYER) for name in image["Layers"]]
            manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "layers": layers}
            manifest["config"] = self._blob(content[image["Config"]], CONFIG)
            written = json.dumps(manifest, sort_keys=True).encode()
            digest = _digest(written)
            self.manifests[digest] = written
            self.tags.update({tag.rpartition(":")[2]: digest for tag in image["RepoTags"]})

    def _blob(self, content: bytes, kind: str) -> dict[str, Any]:
        digest = _digest(content)
        self.blobs[digest] = content
        return {"mediaType": kind, "size": len(content), "digest": digest}


class Handler(BaseHTTPRequestHandler):
    """Request handler; its class attributes configure the registry."""

    protocol_version = "HTTP/1.1"
    content: Content
    login = ""
    rate = 0

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, *_said: object) -> None:
        """Suppress the log."""

    def _answer(self, *, body: bool) -> None:
        expected = "Basic " + base64.b64encode(self.login.encode()).decode()
        if self.login and self.headers.get("Authorization") != expected:
            body_bytes = json.dumps(
                {"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]}
            ).encode()
            self._send(401, body_bytes, {"WWW-Authenticate": 'Basic realm="registry"'}, body=body)
            return
        kind, _slash, name = self.path.rpartition("/")
        if self.path == "/v2/":
            self._send(200, b"{}", {}, body=body)
        elif kind.endswith("/manifests") and self.content.tags.get(name, name) in self.content.manifests:
            digest = self.content.tags.get(name, name)
            headers = {"Content-Type": MANIFEST, "Docker-Content-Digest": digest}
            self._send(200, self.content.manifests[digest], headers, body=body)
        elif kind.endswith("/blobs") and name in self.content.blobs:
            headers = {"Content-Type": "application/octet-stream", "Docker-Content-Digest": name}
            self._send(200, self.content.blobs[name], headers, body=body)
        else:
            body_bytes = json.dumps({"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}).encode()
            self._send(404, body_bytes, {}, body=body)

    def _send(self, status: int, content: bytes, headers: dict[str, str], *, body: bool) -> None:
        self.send_response(status)
        all_headers = {"Content-Type": "application/json", "Docker-Distribution-Api-Version": "registry/2.0", **headers}
        for name, value in {**all_headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        for start in range(0, len(content) if body else 0, CHUNK):
            chunk = content[start : start + CHUNK]
            self.wfile.write(chunk)
            time.sleep(len(chunk) / self.rate if self.rate else 0)


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description="A registry to pull from.")
    parser.add_argument("archive", type=Path, help="the file of the images")
    parser.add_argument("--login", type=Path, help="a file with the USERNAME:PASSWORD required to pull")
    parser.add_argument("--rate", type=int, default=0, help="bytes per second of each connection, 0 for no limit")
    options = parser.parse_args()
    Handler.content, Handler.rate = Content(options.archive), options.rate
    Handler.login = options.login.read_text().strip() if options.login else ""
    server = ThreadingHTTPServer(ADDRESS, Handler)
    child = os.fork()
    if child:
        print(child)
        return
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    server.serve_forever()


if __name__ == "__main__":
    main()
