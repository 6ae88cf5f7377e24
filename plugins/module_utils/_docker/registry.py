# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask an image registry whether a login may read an image: HEAD of its manifest, as in Docker's Registry HTTP API V2.

The connection is that of the engine: its certificates, its insecure registries and its proxies. An answer has a time
limit and a size limit, and the text of an answer is never part of an error message.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import http.client
import ipaddress
import json
import re
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from .._model.errors import ClusterError, one_line
from .._model.images import DOCKER_HUB, TOKEN_USERNAME, Credential
from .sdk import docker

# Seconds for all questions about a session, and for each operation of a connection.
SECONDS, OPERATION_SECONDS = 20, 8

# The maximum size of a token server's answer.
MAX_ANSWER_BYTES = 256 << 10

CERTIFICATES = Path("/etc/docker/certs.d")
"""The engine's folder of certificates: a folder for each registry, by its host and port."""

HUB_HOST = "registry-1.docker.io"

_MANIFESTS = ", ".join(
    (
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
    )
)

_MAX_MESSAGE = 200


class RegistryError(ClusterError):
    """A registry gave no usable answer. The message is a phrase that follows the name of the registry."""


@dataclasses.dataclass(frozen=True)
class RegistryConnections:
    """How the engine connects to registries.

    ``insecure_hosts`` have a certificate that is not verified, or none, and so have hosts with an address in
    ``insecure_networks``, unless they are among the ``secure_hosts``. ``proxies`` are by scheme; hosts of ``no_proxy``,
    separated by commas, are connected to directly.
    """

    insecure_hosts: frozenset[str] = frozenset()
    secure_hosts: frozenset[str] = frozenset()
    insecure_networks: tuple[str, ...] = ()
    proxies: Mapping[str, str] = dataclasses.field(default_factory=dict)
    no_proxy: str = ""

    @classmethod
    def of_engine(cls, client: docker.APIClient) -> RegistryConnections:
        """Return those of an engine."""
        info = client.info()
        config = info.get("RegistryConfig") or {}
        indexes = {str(host): bool(index.get("Secure")) for host, index in (config.get("IndexConfigs") or {}).items()}
        proxies = {"http": info.get("HttpProxy"), "https": info.get("HttpsProxy")}
        return cls(
            insecure_hosts=frozenset(host for host, secure in indexes.items() if not secure),
            secure_hosts=frozenset(host for host, secure in indexes.items() if secure),
            insecure_networks=tuple(config.get("InsecureRegistryCIDRs") or ()),
            proxies={scheme: proxy for scheme, proxy in proxies.items() if proxy},
            no_proxy=info.get("NoProxy") or "",
        )

    def is_insecure(self, host: str) -> bool:
        """Return whether the engine connects to a registry without verifying it, if need be over plain HTTP."""
        if host in self.insecure_hosts | self.secure_hosts:
            return host in self.insecure_hosts
        name = urlsplit(f"//{host}").hostname or ""
        try:
            addresses = {str(found[4][0]) for found in socket.getaddrinfo(name, None)}
        except OSError:
            # The host may be known to a proxy only.
            return False
        return any(_in_network(address, network) for address in addresses for network in self.insecure_networks)

    def proxies_to(self, host: str) -> dict[str, str]:
        """Return the proxies for a host, by scheme."""
        entries = ["localhost", "127.0.0.0/8", *(entry.strip() for entry in self.no_proxy.split(",") if entry.strip())]
        direct = any(
            entry == "*" or f".{host}".endswith(f".{entry.lstrip('.')}") or _in_network(host, entry)
            for entry in entries
        )
        return {} if direct else dict(self.proxies)


def agent_login(registry: str) -> Credential | None:
    """Return the login to a registry that root has on this host (``docker login``); ``None`` without one.

    Raises :class:`RegistryError` if it cannot be read.
    """
    try:
        found = docker.auth.resolve_authconfig(docker.auth.load_config(), None if registry == DOCKER_HUB else registry)
    except docker.errors.DockerException:
        raise RegistryError("cannot be asked, because the docker login of this host cannot be read") from None
    values = {str(key).lower(): str(value) for key, value in (found or {}).items() if value}
    if "identitytoken" in values:
        return Credential(TOKEN_USERNAME, values["identitytoken"])
    if "username" in values and "password" in values:
        return Credential(values["username"], values["password"])
    return None


def may_read(
    connections: RegistryConnections,
    repository: str,
    references: Sequence[str],
    credential: Credential | None,
    seconds: float,
) -> bool:
    """Return whether a login, or anybody if there is none, may read an image of a repository.

    ``references`` are digests and tags of the image; one that the registry has is sufficient. Raises
    :class:`RegistryError` if that is not known after ``seconds``.
    """
    answers: list[bool | RegistryError] = []

    def ask() -> None:
        try:
            answers.append(_Question(connections, repository, credential).may_read(references))
        except RegistryError as error:
            answers.append(error)
        # HTTP and sockets raise many, and so do damaged addresses in an answer.
        except (OSError, http.client.HTTPException, ValueError) as error:
            answers.append(RegistryError(f"does not answer ({_describe(error)})"))

    # A thread, because neither the resolver nor a slow answer has a time limit. It ends with this process.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    answer = answers[0] if answers else RegistryError(f"does not answer within {round(seconds, 1):g} seconds")
    if isinstance(answer, RegistryError):
        raise answer
    return answer


class _Question:
    """The requests about one repository, with one login."""

    def __init__(self, connections: RegistryConnections, repository: str, credential: Credential | None) -> None:
        self._host, _slash, self._path = repository.partition("/")
        self._connections, self._credential = connections, credential
        self._insecure = connections.is_insecure(self._host)
        self._context = _tls_context(self._host, verify=not self._insecure)

    def may_read(self, references: Sequence[str]) -> bool:
        """Return whether one of the references can be read."""
        base, challenges = self._connect()
        authorization = self._authorize(challenges) if challenges is not None else ""
        if authorization is None:
            return False
        for reference in references:
            url = f"{base}{quote(self._path)}/manifests/{quote(reference, safe=':')}"
            answer = self._send(_request("HEAD", url, authorization, {"Accept": _MANIFESTS}), redirects=True)
            if answer.status in (200, 401, 403):
                return answer.status == 200
            if answer.status != 404:
                raise RegistryError(f"answers with status {answer.status}")
        return False

    def _connect(self) -> tuple[str, Sequence[str] | None]:
        """Return the base address, and the challenges of a registry that requires a token or a password."""
        host = HUB_HOST if self._host == DOCKER_HUB else self._host
        if self._insecure:
            with contextlib.suppress(OSError, http.client.HTTPException):
                return self._ask_for_challenges(f"https://{host}/v2/")
        return self._ask_for_challenges(f"{'http' if self._insecure else 'https'}://{host}/v2/")

    def _ask_for_challenges(self, base: str) -> tuple[str, Sequence[str] | None]:
        answer = self._send(_request("GET", base))
        if answer.status not in (200, 401):
            raise RegistryError(f"answers with status {answer.status}")
        return base, answer.challenges if answer.status == 401 else None

    def _authorize(self, challenges: Sequence[str]) -> str | None:
        """Return the header ``Authorization`` for a challenge; ``None`` if the login is not sufficient."""
        schemes = {text.partition(" ")[0].lower(): text for text in challenges}
        if "bearer" in schemes:
            parameters = {name.lower(): value for name, value in re.findall(r'(\w+)="([^"]*)"', schemes["bearer"])}
            return self._fetch_token(parameters.get("realm", ""), parameters.get("service", ""))
        if "basic" in schemes:
            login = self._credential
            return _basic(login) if login and login.username != TOKEN_USERNAME else None
        raise RegistryError("requires a login of a kind that is not supported")

    def _fetch_token(self, realm: str, service: str) -> str | None:
        """Return the header with the token of a token server; ``None`` if that refuses the login."""
        schemes = ("https", "http") if self._insecure else ("https",)
        if urlsplit(realm).scheme not in schemes:
            raise RegistryError(f"names a token server that is not reached over {' or '.join(schemes)}")
        login = self._credential
        query = {"service": service, "scope": f"repository:{self._path}:pull"}
        if login and login.username == TOKEN_USERNAME:
            form = {**query, "grant_type": "refresh_token", "client_id": "backendai", "refresh_token": login.password}
            request = _request("POST", realm, body=urlencode(form).encode())
        else:
            separator = "&" if urlsplit(realm).query else "?"
            request = _request("GET", f"{realm}{separator}{urlencode(query)}", _basic(login) if login else "")
        answer = self._send(request, content=True)
        if answer.status in (401, 403):
            return None
        if answer.status != 200:
            raise RegistryError(f"has a token server that answers with status {answer.status}")
        if len(answer.content) > MAX_ANSWER_BYTES:
            raise RegistryError(f"has a token server that answers with more than {MAX_ANSWER_BYTES >> 10} kB")
        try:
            reply = json.loads(answer.content)
            token = reply.get("token") or reply["access_token"]
        except (ValueError, AttributeError, KeyError, RecursionError):
            token = None
        if not isinstance(token, str) or not re.fullmatch(r"[!-~]+", token):
            raise RegistryError("has a token server that answers without a token")
        return f"Bearer {token}"

    def _send(self, request: urllib.request.Request, *, redirects: bool = False, content: bool = False) -> _Answer:
        """Send a request and return the answer, whatever its status; the ``content`` only on demand."""
        host = urlsplit(request.full_url).hostname or ""
        opener = urllib.request.OpenerDirector()
        opener.addheaders = [("User-Agent", "backendai.cluster")]
        handlers = [
            urllib.request.ProxyHandler(self._connections.proxies_to(host)),
            urllib.request.HTTPHandler(),
            urllib.request.HTTPSHandler(context=self._context),
            urllib.request.UnknownHandler(),
        ]
        if redirects:
            handlers += [urllib.request.HTTPErrorProcessor(), _Redirects(), urllib.request.HTTPDefaultErrorHandler()]
        for handler in handlers:
            opener.add_handler(handler)
        try:
            response = opener.open(request, timeout=OPERATION_SECONDS)
        except urllib.error.HTTPError as error:
            response = error
        with response:
            body = response.read(MAX_ANSWER_BYTES + 1) if content else b""
            return _Answer(response.status, response.headers.get_all("WWW-Authenticate") or (), body)


@dataclasses.dataclass(frozen=True)
class _Answer:
    """The status of an answer, its headers ``WWW-Authenticate``, and its content, cut above the maximum."""

    status: int
    challenges: Sequence[str]
    content: bytes


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects of HEAD requests, without the login or token of the request, and never to plain HTTP."""

    max_redirections = 3

    def redirect_request(
        self, req: urllib.request.Request, _stream: Any, _code: int, _message: str, _headers: Any, newurl: str
    ) -> urllib.request.Request:
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            raise RegistryError("redirects to an address that is not reached over https")
        # The header ``Authorization`` is not among these headers: see _request.
        return urllib.request.Request(newurl, headers=dict(req.headers), method=req.get_method())


def _request(
    method: str, url: str, authorization: str = "", headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> urllib.request.Request:
    request = urllib.request.Request(url, data=body, headers=dict(headers or {}), method=method)
    if authorization:
        request.add_unredirected_header("Authorization", authorization)
    return request


def _basic(credential: Credential) -> str:
    login = f"{credential.username}:{credential.password}"
    return f"Basic {base64.b64encode(login.encode()).decode()}"


def _tls_context(host: str, *, verify: bool) -> ssl.SSLContext:
    """Return the TLS settings for a registry: the host's authorities, and the engine's certificates for it."""
    context = ssl.create_default_context()
    folder = CERTIFICATES / host
    for authority in sorted(folder.glob("*.crt")):
        context.load_verify_locations(authority)
    for certificate in sorted(folder.glob("*.cert")):
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _in_network(address: str, network: str) -> bool:
    """Return whether an address is in a network; not if either is something else."""
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _describe(error: Exception) -> str:
    """Return a short phrase for why there is no answer, without the text of an answer."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {cause.verify_message}"
    if isinstance(cause, OSError):
        # A proxy can have written it.
        text = one_line(cause.strerror or cause)[:_MAX_MESSAGE]
        return "".join(character for character in text if character.isprintable())
    return "its answer is not HTTP"
