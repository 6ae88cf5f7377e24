"""Log in to hosts with asyncssh, paramiko and libssh2, in their default settings, and print what they read, as JSON."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from importlib import import_module
from pathlib import Path

# By name: where types are checked there are no SSH clients.
asyncssh = import_module("asyncssh")
paramiko = import_module("paramiko")
libssh2 = import_module("ssh2.session")

KEY = Path.home() / ".ssh" / "id_ed25519"


async def with_asyncssh(host: str) -> str:
    """Run a command on a host."""
    async with asyncssh.connect(host) as connection:
        return str((await connection.run("hostname", check=True)).stdout)


def with_paramiko(host: str) -> str:
    """Write and read a file of a host over SFTP, and run a command."""
    with paramiko.SSHClient() as client:
        client.load_system_host_keys()
        client.connect(host, username="work")
        with client.open_sftp() as sftp, sftp.open("/tmp/paramiko", "w") as file:
            file.write("written over SFTP\n")
        _stdin, stdout, _stderr = client.exec_command("hostname; cat /tmp/paramiko")
        return str(stdout.read().decode())


def with_libssh2(host: str) -> str:
    """Run a command on a host. libssh2 compares no host keys unless it is told to."""
    with socket.create_connection((host, 22)) as connection:
        session = libssh2.Session()
        session.handshake(connection)
        session.userauth_publickey_fromfile("work", str(KEY))
        channel = session.open_session()
        channel.execute("hostname")
        output = b"".join(iter(lambda: channel.read()[1], b""))
        channel.close()
        return str(output.decode())


for name in sys.argv[1:]:
    outputs = {
        "asyncssh": asyncio.run(with_asyncssh(name)),
        "paramiko": with_paramiko(name),
        "libssh2": with_libssh2(name),
    }
    print(json.dumps(outputs))
