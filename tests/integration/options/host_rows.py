"""Where the effects of options of agents, accelerators, firewalls, gateways, managers and schedulers are seen."""

from __future__ import annotations

from collections.abc import Mapping

from tests.integration.options.row import Row

LAB = "tests/lab/inventory.py"
AGENT, GATEWAY, MANAGER, OPERATOR, PLACEMENT = (
    f"integration/options/test_{name}_options.py::test_"
    for name in ("agent", "gateway", "manager", "operator", "placement")
)
PACKAGES = f"{AGENT}packages_and_kernel_settings_are_those_that_were_asked_for"
LOOKS = f"{AGENT}the_agent_looks_at_what_it_was_told_to_and_as_often"
PLACES = f"{AGENT}state_homes_and_network_of_sessions_are_where_they_were_asked_for"
GPUS = f"{AGENT}gpus_are_set_up_before_the_driver_is_there_if_that_is_asked_for"
RULES = f"{AGENT}the_firewall_has_the_addresses_ports_and_interfaces_that_were_asked_for"
LISTENS = f"{GATEWAY}it_listens_where_it_was_asked_to_and_for_as_many"
FOLDERS = f"{GATEWAY}its_folders_and_timers_are_those_that_were_asked_for"
LINKS = f"{GATEWAY}links_have_its_names_and_ports"
APPS = f"{GATEWAY}apps_are_at_their_own_names_alone_and_may_be_shown_in_the_portal"
LOGINS = f"{GATEWAY}one_user_has_no_more_logins_than_were_asked_for_and_begins_no_more"
ACCOUNT = f"{MANAGER}its_account_and_groups_are_those_that_were_asked_for"
SETTINGS = f"{MANAGER}its_limits_inventory_and_policy_are_those_that_were_asked_for"
TIMER = f"{MANAGER}its_timer_runs_as_often_and_as_long_as_was_asked_for"
OF_MANAGER = f"{MANAGER}packages_are_those_that_were_asked_for"
GROUPS = f"{PLACEMENT}a_group_of_agents_takes_its_sessions_and_preferred_agents_may_be_replaced"
RACKS = f"{PLACEMENT}a_label_and_a_rack_leave_only_the_agents_that_have_them"
DEVICES = "integration/test_roles_and_devices.py::test_roles_have_their_own_image_environment_and_devices"
APART = (
    "integration/test_verify_isolation.py::"
    "test_ssh_answers_on_management_alone_tunnels_on_compute_alone_and_the_checklist_says_so"
)
CLOSED = "integration/test_closed_networks.py::test_closed_network_is_silent_but_for_exceptions_and_name_servers"
PROCESSES = "integration/test_limits.py::test_processes_stop_at_the_limit_while_neighbours_work"
ROTATED = "integration/test_limits.py::test_log_is_rotated_and_readable"
REPEATED = "integration/test_scheduler.py::test_timer_repeats_the_playbook_without_overlap"
REMOVED = "integration/test_scheduler.py::test_failed_runs_are_repeated_and_absent_removes_everything"
PROBED = f"{OPERATOR}isolation_is_probed_from_the_hosts_and_as_fast_as_was_asked_for"
CORDONED = "acceptance/test_operators.py::test_a_cordoned_agent_takes_no_session_until_it_is_resumed"
CERTIFICATE = "integration/test_gateway.py::test_configured_certificate_is_used_and_its_key_never_printed"
OPENED = "integration/test_firewall.py::test_ipv6_is_closed_and_firewall_allow_opens_ports"
OTHER = "hosts/test_other_linux.py::test_it_is_provisioned_beside_a_usual_agent_and_a_second_time_changes_nothing"
BUILT = "hosts/test_other_linux.py::test_a_kit_says_what_it_is_made_of"
KITS = "tests/hosts/kits.py"
#: An old index of packages, and a source that nobody can read: who updates the index fails.
INDEX = "a host whose index is old and cannot be updated is provisioned"

ACCELERATOR_ROWS = {
    "accelerator_nvidia": Row("always", "systemctl: the unit, without a driver", GPUS, "agent"),
    "accelerator_packages": Row("[iperf3]", "dpkg: the package", PACKAGES, "agent"),
    "accelerator_docker_host": Row(
        "unix:///run/nowhere.sock", "no daemon.json, since no engine knows CDI", GPUS, "agent"
    ),
}

AGENT_ROWS = {
    "agent_resource_group": Row("blue", "docker: all containers are on its agent", GROUPS, "groups"),
    "agent_schedulable": Row("false", "docker: its agent gets no container", GROUPS, "groups"),
    "agent_labels": Row("[ssd]", "docker: all containers are on its agent", RACKS, "racks"),
    "agent_topology": Row("[rack2]", "docker: containers are on its agents alone", RACKS, "racks"),
    "agent_topology_levels": Row("[rack]", "a session asks for the level by its name", RACKS, "racks"),
    "agent_list_path": Row(
        "a path",
        "the file",
        "integration/test_cordon.py::test_the_list_of_agents_says_what_is_free_and_what_would_start",
    ),
    "agent_names": Row("agent1", "the other agents are not cordoned", CORDONED),
    "agent_all_confirmed": Row(
        "true",
        "the file of each agent that keeps sessions away",
        f"{OPERATOR}all_agents_are_taken_out_of_service_if_that_is_confirmed",
        "service",
    ),
    "agent_cordon_reason": Row("disk", "who waits is told", CORDONED),
    "agent_drain_deadline": Row(
        "3600",
        "sessions run on, until then",
        "integration/test_cordon.py::test_a_drain_ends_the_sessions_of_the_agent_everywhere",
    ),
    "agent_reboot_timeout": Row(
        "1",
        "the run fails, the agent stays out of service",
        f"{AGENT}a_reboot_that_takes_longer_than_was_asked_for_stops_the_run",
        "agent",
    ),
    "agent_images": Row(
        "the image of a registry",
        "docker: the image is there, a session pulls nothing",
        "integration/test_images.py::test_prefetched_image_is_private_and_makes_a_session_that_pulls_nothing",
    ),
    "agent_image_unused_days": Row(
        "1",
        "docker: an image of two days ago is gone",
        "integration/test_images.py::test_images_are_pruned_but_not_those_of_sessions_and_of_the_queue",
    ),
    "agent_image_free_space": Row(
        "900t",
        "docker: the image is gone",
        "integration/test_images.py::test_images_are_pruned_but_not_those_of_sessions_and_of_the_queue",
    ),
    "agent_image_others": Row(
        "true",
        "docker: an imported image is gone",
        f"{AGENT}images_that_did_not_come_with_sessions_are_pruned_if_that_is_asked_for",
        "agent",
    ),
    "agent_disk_reserve": Row(
        "900t",
        "a session waits until homes are removed",
        "integration/test_homes.py::test_no_session_starts_below_the_reserve_until_homes_are_removed",
    ),
    "agent_slots": Row("lab.device", "docker: the devices of a container", DEVICES, set_in=LAB),
    "agent_slots.name": Row("lab.device", "docker: the devices of a container", DEVICES, set_in=LAB),
    "agent_slots.devices": Row("two", "docker: two containers have one each", DEVICES, set_in=LAB),
    "agent_reserved": Row(
        "mem 2g", "the list of agents offers less", f"{PLACEMENT}what_is_reserved_for_the_host_is_not_offered", "groups"
    ),
    "agent_reserved_devices": Row(
        "a node",
        "the list of agents offers less",
        "integration/test_foreign.py::test_device_nodes_that_are_reserved_are_not_offered",
    ),
    "agent_cpu_overcommit": Row(
        "8",
        "of each core eight are offered",
        "integration/test_foreign.py::test_containers_of_others_are_warned_of_and_not_counted",
        set_in=LAB,
    ),
    "agent_max_containers": Row("1", "docker: a second container is not there", GROUPS, "groups"),
    "agent_pids_limit": Row("700", "processes that a container starts", PROCESSES),
    "agent_pids_per_core": Row("10", "processes that a container starts", PROCESSES),
    "agent_log_max_size": Row("64k", "stat: the files of a log", ROTATED),
    "agent_log_max_files": Row("2", "stat: the files of a log", ROTATED),
    "agent_connection_limit": Row(
        "50", "ss at the neighbour", "molecule agent::A container has no more connections than it may"
    ),
    "agent_underlay_address": Row(
        "an IPv6 address",
        "bridge: tunnels lead to it",
        "integration/test_underlay.py::test_a_session_crosses_an_ipv6_underlay",
    ),
    "agent_underlay_encryption": Row(
        "wireguard",
        "a sniffer sees WireGuard alone",
        "integration/test_wireguard.py::test_nothing_but_wireguard_crosses_the_underlay",
    ),
    "agent_wireguard_port": Row(
        "51830",
        "a sniffer sees that port",
        "integration/test_wireguard.py::test_nothing_but_wireguard_crosses_the_underlay",
    ),
    "agent_management_networks": Row("the network of the lab", "SSH answers there alone", APART),
    "agent_compute_networks": Row("a network of its own", "ports of peers answer there alone", APART),
    "agent_network_separation": Row(
        "warn",
        "the agent is provisioned, which the default refuses",
        f"{AGENT}an_agent_whose_networks_are_not_apart_is_provisioned_with_a_warning",
        "agent",
    ),
    "agent_allow_host_network": Row(
        "true",
        "containers have the addresses of agents",
        "integration/test_host_driver.py::test_it_runs_on_all_agents_under_their_addresses",
    ),
    "agent_allow_infiniband": Row(
        "true",
        "containers open the device nodes",
        "integration/test_resources.py::test_each_container_gets_exactly_the_requested_resources",
    ),
    "agent_registry_check": Row(
        "[registry.invalid]",
        "an image that is there is refused",
        f"{PLACEMENT}images_of_a_registry_that_is_to_be_asked_are_not_used_without_its_answer",
        "registry",
    ),
    "agent_allow_registry_login": Row(
        "true",
        "the image is pulled",
        "integration/test_images.py::test_docker_login_of_an_agent_is_used_only_if_it_allows_that",
    ),
    "agent_mount_roots": Row(
        "a folder",
        "others are refused",
        "integration/test_mounts.py::test_folders_outside_of_the_roots_are_refused",
    ),
    "agent_health_checks": Row("[disk, engine]", "ls: the checks", LOOKS, "agent"),
    "agent_health_interval": Row("7min", "systemctl: the timer", LOOKS, "agent"),
    "agent_reconcile_interval": Row("41s", "systemctl: the timer", LOOKS, "agent"),
    "agent_docker_host": Row(
        "another path", "without it the engine is away", f"{AGENT}the_engine_is_asked_where_it_was_said_to_be", "agent"
    ),
    "agent_state_path": Row("/srv/own-state", "ls: the session", PLACES, "agent"),
    "agent_home_path": Row("/var/lib/own-homes", "docker inspect: the source of /home/work", PLACES, "agent"),
    "agent_default_network": Row("own-network", "docker inspect: the network", PLACES, "agent"),
    "agent_default_subnet": Row("172.29.7.0/24", "ip: the address of the bridge", PLACES, "agent"),
    "agent_closed_networks": Row("a host", "nothing answers a container", CLOSED),
    "agent_open_storage": Row(
        "a host", "its NFS answers", "integration/test_closed_networks.py::test_operators_open_storage"
    ),
    "agent_egress_allow": Row("services of the host", "they answer, and no others", CLOSED),
    "agent_egress_allow.protocol": Row("udp", "UDP answers, and TCP at that port does not", CLOSED),
    "agent_egress_allow.ports": Row("one of each protocol", "these answer", CLOSED),
    "agent_egress_allow.destinations": Row("the host", "it answers", CLOSED),
    "agent_install": Row("false", "a host without apt and dpkg is an agent", OTHER),
    "agent_python": Row("of a virtual environment", "a host whose own Python has no SDK is an agent", OTHER),
    "agent_kit": Row("a file", "a host without the programs of the kit has sessions", OTHER),
    "agent_kit_host": Row("localhost", "the file", BUILT, set_in=KITS),
    "agent_kit_path": Row("a path", "the file", BUILT, set_in=KITS),
    "agent_engine": Row(
        "docker-ce",
        "an agent with another engine is refused",
        "integration/test_provision.py::test_all_that_a_host_lacks_is_said_in_one_run_and_nothing_is_changed",
    ),
    "agent_packages": Row("with ethtool", "dpkg: the package", PACKAGES, "agent"),
    "agent_apt_cache_valid_time": Row("ten years", INDEX, PACKAGES, "agent"),
    "agent_sysctls": Row("tcp_fin_timeout", "sysctl", PACKAGES, "agent"),
    "agent_end_sessions": Row(
        "true",
        "a removal in check mode is not refused",
        f"{AGENT}check_mode_of_a_removal_goes_on_if_sessions_are_to_be_ended",
        "agent",
        set_in="playbooks/remove_agents.yml",
    ),
}

FIREWALL_ROWS = {
    "firewall_enabled": Row(
        "false",
        "nft: no chain of the host",
        f"{AGENT}a_host_without_the_firewall_drops_nothing_that_is_for_itself",
        "agent",
    ),
    "firewall_mode": Row(
        "enforce",
        "connections are dropped",
        "integration/test_firewall_report.py::test_an_enforced_host_drops_reports_nothing_and_keeps_its_mode",
    ),
    "firewall_ssh_sources": Row("an IPv6 network too", "sshd answers there", OPENED),
    "firewall_gateways": Row("an address", "nft: the address", RULES, "agent"),
    "firewall_agents": Row("an address", "nft: the address, and not those of agents", RULES, "agent"),
    "firewall_ssh_ports": Row("[22, 2222]", "nft: the ports", RULES, "agent"),
    "firewall_allow": Row("a port", "it answers user1, and no other host", OPENED),
    "firewall_allow.protocol": Row("udp", "nft: the protocol", RULES, "agent"),
    "firewall_allow.ports": Row("one", "it answers", OPENED),
    "firewall_allow.sources": Row("user1", "others are not answered", OPENED),
    "firewall_interfaces": Row("[eth0]", "nft: the interface", RULES, "agent"),
    "firewall_foreign": Row(
        "open",
        "firewall-cmd, ufw: our rules; sessions run",
        "hosts/test_foreign_firewalls.py::test_opened_firewalls_let_sessions_on_three_agents_and_on_one_work",
    ),
    "firewall_confirm_timeout": Row(
        "10",
        "nft: rules are rolled back sooner",
        f"{AGENT}rules_on_trial_end_after_the_time_that_was_asked_for",
        "agent",
    ),
    "firewall_confirm_force": Row(
        "true",
        "nft: rules stay without SSH",
        f"{MANAGER}rules_are_confirmed_without_ssh_if_that_is_asked_for",
        "manager",
    ),
    "firewall_reconcile_interval": Row("43s", "systemctl: the timer", FOLDERS, "gateway"),
    "firewall_state_path": Row("/srv/own-firewall", "ls: the state", FOLDERS, "gateway"),
    "firewall_packages": Row("with tcpdump", "dpkg: the package", PACKAGES, "agent"),
    "firewall_apt_cache_valid_time": Row("ten years", INDEX, PACKAGES, "agent"),
    "firewall_probe_hosts": Row("user1", "the other host of users is not asked", PROBED, "service"),
    "firewall_probe_ports": Row("eight", "the report: these ports", PROBED, "service"),
    "firewall_probe_rate": Row("12", "ss at the probing host: as many connections at a time", PROBED, "service"),
    "firewall_report_path": Row(
        "a path",
        "the file",
        "integration/test_firewall_report.py::test_the_report_names_who_connects_to_what_and_the_lines_that_allow_it",
        set_in="tests/integration/laboratory.py",
    ),
}

GATEWAY_ROWS = {
    "gateway_address": Row("its address", "ss: no other address", LISTENS, "gateway"),
    "gateway_hostname": Row("access.example.org", "the name in links", LINKS, "gateway"),
    "gateway_domain": Row("apps.example.org", "curl: the app at its own name", APPS, "gateway"),
    "gateway_path_links": Row("false", "curl: 404 by path", APPS, "gateway"),
    "gateway_frame_ancestors": Row("a portal", "curl: the header", APPS, "gateway"),
    "gateway_log_all_requests": Row(
        "true", "journalctl: each request", f"{GATEWAY}every_request_is_in_the_journal", "gateway"
    ),
    "gateway_https_port": Row("8443", "ss", LISTENS, "gateway"),
    "gateway_ssh_ports": Row("32001-32010", "ss", LISTENS, "gateway"),
    "gateway_source_address": Row(
        "an address",
        "nft of an agent: the address",
        f"{AGENT}gateways_are_known_by_the_address_that_they_come_from",
        "agent",
    ),
    "gateway_certificate": Row("one of a given name", "openssl: the name", CERTIFICATE),
    "gateway_certificate_key": Row("its key", "openssl: a connection", CERTIFICATE),
    "gateway_max_connections": Row("400", "systemctl: the limit of open files", LISTENS, "gateway"),
    "gateway_source_connections": Row("20", "curl: 429", "molecule gateway::One user cannot take all connections"),
    "gateway_source_rate": Row(
        "3", "curl: 429", f"{GATEWAY}one_user_opens_no_more_connections_than_were_asked_for", "gateway"
    ),
    "gateway_source_ssh_connections": Row("2", "a third login is closed", LOGINS, "gateway"),
    "gateway_source_ssh_rate": Row("1", "one of twelve logins is closed", LOGINS, "gateway"),
    "gateway_state_path": Row("/srv/own-gateway", "ls: the key of tokens", FOLDERS, "gateway"),
    "gateway_packages": Row("with ethtool", "dpkg: the package", LISTENS, "gateway"),
    "gateway_apt_cache_valid_time": Row("ten years", INDEX, LISTENS, "gateway"),
}

MANAGER_ROWS = {
    "manager_state": Row(
        "absent",
        "ls: no command",
        f"{MANAGER}what_is_to_be_absent_is_removed_and_the_account_stays",
        "manager",
    ),
    "manager_account": Row("clusterer", "getent, sudo, the owner of the key", ACCOUNT, "manager"),
    "manager_users_group": Row("cluster-users", "sudo: its users may run the command", ACCOUNT, "manager"),
    "manager_operators_group": Row("cluster-operators", "sudo: its users may run the command", ACCOUNT, "manager"),
    "manager_inventory": Row("that of the lab", "cat: the inventory", SETTINGS, "manager", set_in=LAB),
    "manager_policy": Row("that of the lab", "cat: the policy", SETTINGS, "manager", set_in=LAB),
    "manager_wheels": Row(
        "those of the lab", "packages of a host without a way out", OF_MANAGER, "manager", set_in=LAB
    ),
    "manager_runs_per_user": Row("1", "cat: the settings of the service", SETTINGS, "manager"),
    "manager_runs": Row("2", "cat: the settings of the service", SETTINGS, "manager"),
    "manager_orphan_after": Row("86400", "cat: the settings of the service", SETTINGS, "manager"),
    "manager_source_addresses": Row(
        "an address",
        "cat: the line of authorized_keys",
        f"{GATEWAY}it_admits_a_manager_from_the_addresses_that_it_was_said_to_log_in_from",
        "gateway",
    ),
    "manager_timer": Row("true", "systemctl: the timer", TIMER, "manager"),
    "manager_interval": Row("52w", "systemctl: the timer", TIMER, "manager"),
    "manager_timeout": Row("7min", "systemctl: the limit of a run", TIMER, "manager"),
    "manager_python": Row("/usr/bin/python3.11", "readlink: that of the environment", OF_MANAGER, "manager"),
    "manager_packages": Row("with ethtool", "dpkg: the package", OF_MANAGER, "manager"),
    "manager_apt_cache_valid_time": Row("ten years", INDEX, OF_MANAGER, "manager"),
    "manager_end_sessions": Row(
        "true",
        "the arguments of the program that ends them",
        f"{MANAGER}sessions_are_ended_before_a_removal_if_that_is_asked_for",
        "manager",
        set_in="playbooks/remove_managers.yml",
    ),
}

SCHEDULER_ROWS = {
    "scheduler_inventory": Row("a file", "the arguments of the program", REPEATED),
    "scheduler_command": Row("a program", "it runs", REPEATED),
    "scheduler_options": Row("words", "the arguments of the program", REPEATED),
    "scheduler_page_path": Row("a path", "the arguments of the program", REPEATED),
    "scheduler_user": Row("daemon", "the environment of the program", REPEATED),
    "scheduler_directory": Row("a folder", "the folder of the program", REPEATED),
    "scheduler_environment": Row("two variables", "the environment of the program", REPEATED),
    "scheduler_interval": Row("100ms", "the pauses between runs", REPEATED),
    "scheduler_timeout": Row(
        "5s",
        "the journal: a run is stopped",
        "molecule scheduler::A run that hangs is stopped, and one that fails is said to",
    ),
    "scheduler_state": Row("absent", "find: no unit", REMOVED),
}

HOST_ROWS: Mapping[str, Row] = {
    **ACCELERATOR_ROWS,
    **AGENT_ROWS,
    **FIREWALL_ROWS,
    **GATEWAY_ROWS,
    **MANAGER_ROWS,
    **SCHEDULER_ROWS,
}
