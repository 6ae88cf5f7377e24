# Copyright: (c) 2026, backendai.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connection to a container of a session through its agent."""

from __future__ import annotations

DOCUMENTATION = r"""
name: container
short_description: Run commands in a container of a session
version_added: 0.1.0
description:
  - Runs commands in a container with C(docker exec) on its agent. It uses the agent's own connection plugin and
    settings; the container needs no sshd, network or Python for that.
  - A command runs with the whole environment of the session, in C(/home/work). It is run by the C(sh) of the image, or
    by that of the collection if the image has none. Modules need Python in the image, M(ansible.builtin.raw) does not.
  - The inventory plugin P(backendai.cluster.sessions#inventory) sets all options of this plugin.
author:
  - backendai.cluster contributors (!UNKNOWN)
notes:
  - Files are kept in memory while they are sent or fetched.
  - The agent is accessed as root, or with C(ansible_become).
  - To become another user in the container with C(become), the session needs C(session_no_new_privileges=false), and
    the image the program of the become plugin, such as C(sudo). O(remote_user) needs neither.
extends_documentation_fragment:
  - connection_pipelining
options:
  container:
    description: The name of the container on its agent.
    type: str
    required: true
    vars:
      - name: backendai_container
  agent:
    description: The name of the agent, for messages.
    type: str
    default: the agent
    vars:
      - name: backendai_agent
  agent_connection:
    description:
      - The connection variables of the agent, such as C(ansible_host), C(ansible_user), C(ansible_connection) and
        C(ansible_become).
    type: dict
    required: true
    vars:
      - name: backendai_agent_connection
  docker_host:
    description: The address of the agent's Docker engine, as seen on the agent.
    type: str
    default: unix:///var/run/docker.sock
    vars:
      - name: backendai_docker_host
  remote_user:
    description:
      - The user inside the container, V(work) or a number. C(ansible_container_user), which applies to containers only,
        has precedence. V(0) is root, without a capability.
    type: str
    default: work
    keyword:
      - name: remote_user
    vars:
      - name: ansible_user
      - name: ansible_container_user
"""

EXAMPLES = r"""
# ansible -i inventory/agents.yml -i inventory/sessions.yml session_train_llm -m ansible.builtin.raw -a nvidia-smi

# As the container's root, who has NET_RAW and SYS_NICE alone, once:
# ansible … session_train_llm -m ansible.builtin.raw -a id -e ansible_container_user=0

- name: Inspect the containers of a session
  hosts: session_train_llm
  gather_facts: false
  tasks:
    - name: Show the disks
      ansible.builtin.raw: df -h
      changed_when: false
"""

import re
import shlex
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError, AnsibleFileNotFound
from ansible.plugins.connection import ConnectionBase, ensure_connect
from ansible.utils.display import Display

from ..module_utils._model.errors import one_line
from ..plugin_utils.host_link import HostLink

USER = "work"
HOME = "/home/work"
# The login shell: it loads the session's environment and executes the shell of the image, or else of the kit.
SHELL = "/opt/backendai/shell/sh"
# The shell of the kit, which has a ``cat`` even if the image has none.
KIT_SHELL = "/opt/backendai/bin/sh"

# The messages of Docker clients 20.10 to 26.1, with exit code 1, when the command was not run.
_GONE = re.compile(
    r"Error(?: response from daemon)?: (?:No such container: .*|[Cc]ontainer \S+ is (?:not running|paused).*)"
)
_NO_ENGINE = re.compile(r"(?:Cannot connect to the Docker daemon|(?:Got )?permission denied while trying to connect).*")

# A terminal on the agent would mix output and errors, and change line endings.
_EXACT = {"ansible_pipelining": True, "ansible_ssh_pipelining": True, "ansible_ssh_use_tty": False}

display = Display()


class Connection(ConnectionBase):
    transport = "backendai.cluster.container"
    has_pipelining = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._agent: HostLink | None = None

    def _connect(self) -> Connection:
        self._agent_connection()
        self._connected = True
        return self

    def _agent_connection(self) -> HostLink:
        if self._agent is None:
            self._agent = HostLink({**self.get_option("agent_connection"), **_EXACT})
        return self._agent

    @ensure_connect
    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """Run a command; return its exit code, output and errors."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        display.vvv(f"EXEC {cmd}", host=self.get_option("container"))
        return self._run([SHELL, "-c", cmd], in_data)

    @ensure_connect
    def put_file(self, in_path: str, out_path: str) -> None:
        """Send a file into the container."""
        super().put_file(in_path, out_path)
        try:
            content = Path(in_path).read_bytes()
        except FileNotFoundError:
            raise AnsibleFileNotFound(f"{in_path} does not exist: it cannot be sent to {self._location}.") from None
        code, _output, errors = self._run([KIT_SHELL, "-c", f"cat > {shlex.quote(out_path)}"], content)
        if code:
            raise AnsibleError(f"{out_path} cannot be written in {self._location}: {_line(errors)}")

    @ensure_connect
    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Fetch a file from the container."""
        super().fetch_file(in_path, out_path)
        code, output, errors = self._run([KIT_SHELL, "-c", f"cat < {shlex.quote(in_path)}"])
        if code:
            raise AnsibleError(f"{in_path} cannot be read in {self._location}: {_line(errors)}")
        Path(out_path).write_bytes(output)

    def reset(self) -> None:
        """Close the connection; the next command opens it again."""
        self.close()

    def close(self) -> None:
        """Close the connection to the agent."""
        if self._agent is not None:
            self._agent.close()
        self._agent, self._connected = None, False

    @property
    def _location(self) -> str:
        return f"container {self.get_option('container')} on {self.get_option('agent')}"

    def _run(self, words: list[str], data: bytes | None = None) -> tuple[int, bytes, bytes]:
        """Run a program in the container; it has no standard input unless there is ``data``."""
        engine = ["docker", "--host", self.get_option("docker_host"), "exec", *(["--interactive"] if data else [])]
        user = self.get_option("remote_user")
        # The engine finds names in the image's own files, which do not have this one: it is the container's user.
        place = [*([] if user == USER else ["--user", user]), "--workdir", HOME, self.get_option("container")]
        code, output, errors = self._agent_connection().run(shlex.join([*engine, *place, *words]), data)
        self._raise_for_docker_error(code, _line(errors))
        return code, output, errors

    def _raise_for_docker_error(self, code: int, error: str) -> None:
        if code != 1:
            return
        if _GONE.fullmatch(error):
            raise AnsibleConnectionFailure(
                f"{self._location} is not running: its session has ended, or needs a repair."
            )
        if _NO_ENGINE.fullmatch(error):
            raise AnsibleConnectionFailure(f"{self._location} cannot be reached: {error}")


def _line(errors: bytes) -> str:
    return one_line(errors.decode(errors="replace"))
