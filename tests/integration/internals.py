"""Internals of the project that tests rely on, beyond its contract.

Tests need them to inject faults and to interrupt runs at known tasks. A rename of one of these has to be repeated
here.
"""

from __future__ import annotations

# Names of steps, as tasks about sessions print them, at which runs are interrupted.
TASK_PULL = "Pull images"
TASK_CLAIM = "Claim resources"
TASK_APPLY = "Start the containers"
TASK_REMOVE = "Remove this agent's part of the session"
#: Approximate number of tasks and steps of a creation; random kills happen within one of them.
TASKS = 5

# Modules that tests run directly.
MODULE_ROUTES = "backendai.cluster.gateway_routes"
MODULE_AGENT = "backendai.cluster.session_agent"
MODULE_SEGMENTATION = "backendai.cluster.agent_segmentation"

# Units of systemd. Each reconcile unit is a timer and a service.
RECONCILE_AGENT = "backendai-reconcile"
RECONCILE_FIREWALL = "backendai-firewall-reconcile"
#: The unit that runs after the engine has started, as a pattern because a host may have none.
RESTORE = "backendai-restor?.service"
RECONCILE_GATEWAY = "backendai-gateway-reconcile"
UNIT_FIREWALL = "backendai-firewall"
#: The unit that removes homes of ended sessions.
HOMES_UNIT = "backendai-homes.service"
UNIT_GATEWAY = "backendai-gateway"
UNIT_WIREGUARD = "backendai-wireguard"
UNIT_SCHEDULER = "backendai-schedule"
#: The timers that roll back unconfirmed firewall rules, as a pattern of systemd.
ROLLBACK_TIMERS = "backendai-firewall-????????.timer"

# Folders and files of hosts.
AGENT_STATE = "/var/lib/backendai"
PROGRAMS = "/usr/local/lib/backendai"
SESSIONS = f"{AGENT_STATE}/sessions"
#: In the folder of a session: the ids of the containers that the agent has made for it, by hostname.
CONTAINER_IDS = "containers"
#: A part of the command line of what agents run for a task, as a pattern that does not match itself.
PROGRAM = "s=sys[.]stdin[.]buffer"
REGISTRIES = f"{AGENT_STATE}/registries"
IMAGES = f"{AGENT_STATE}/images"
#: What was seen in images; each look at one is by a container of this prefix.
LOOKS = f"{IMAGES}/looks"
LOOK_PREFIX = "backendai-look-"
#: What was on the host before it was provisioned; it grows with what another provisioning installs.
BEFORE = f"{AGENT_STATE}/before.json"
OUTPUT = f"{AGENT_STATE}/output"
#: Written again by each look at the agent, whether there are sessions or not.
HEALTH = f"{AGENT_STATE}/health"
#: With the time of the last look, whose text has more or fewer digits.
STORAGE = f"{AGENT_STATE}/storage.json"
#: Why and since when an agent is out of service.
CORDON = f"{AGENT_STATE}/cordon.json"
LIMITS_STATE = f"{AGENT_STATE}/limits.json"
FIREWALL_STATE = f"{AGENT_STATE}/firewall.json"
WIREGUARD_KEYS = f"{AGENT_STATE}/wireguard"
GATEWAY_STATE = "/var/lib/backendai-gateway"
GATEWAY_ETC = "/etc/backendai"
GATEWAY_CERTIFICATE = f"{GATEWAY_ETC}/gateway/certificate.pem"

# nftables: tables, chains, sets.
TABLE = "inet backendai"
CONNECTIONS_TABLE = "ip backendai_connections"
GATEWAY_TABLE = "inet backendai_gateway"
CHAIN_DROP_FORGED = "drop_forged"
SET_PEERS, SET_SSH_PORTS = "pinned4_{vni}", "ssh_ports"

# Networks and links.
DEFAULT_NETWORK, DEFAULT_BRIDGE = "backendai-default", "backendai0"
WIREGUARD_DEVICE = "baiwg0"
TUNNEL_PREFIX = "bax-"

#: Lists the published ports of sessions on an agent.
LIST_PUBLISHED_PORTS = "docker ps --format '{{.Ports}}' --filter label=ai.backend.session-id"


def session_link(session_id: str) -> str:
    """Return the name of a session's tunnel on its agents."""
    return f"{TUNNEL_PREFIX}{session_id.replace('-', '')[:10]}"
