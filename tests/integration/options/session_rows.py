"""Where the effects of options of sessions and of runs are seen."""

from __future__ import annotations

from collections.abc import Mapping

from tests.integration.options.row import Row

LAB, REPORTS = "tests/lab/inventory.py", "tests/integration/laboratory.py"
TRAIN, WHERE = "tests/acceptance/conftest.py", "tests/integration/session_requests.py"
OWN, PLACEMENT = (f"integration/options/test_{name}_options.py::test_" for name in ("session", "placement"))
ON_ALL = (
    "acceptance/test_session.py::test_each_container_runs_with_the_same_resources_and_together_they_are_on_all_agents"
)
ENVIRONMENT = "acceptance/test_session.py::test_the_environment_is_there_in_exec_in_ssh_and_in_a_login_shell"
FOLDERS = "acceptance/test_session.py::test_containers_see_the_folders_of_their_agent_and_write_where_they_may"
LISTED = "acceptance/test_session.py::test_the_list_says_what_runs_where_in_a_table_a_file_and_a_page"
TOGETHER = "acceptance/test_placement.py::test_a_session_that_fits_on_one_agent_is_on_one_that_has_its_folder"
NETWORK = f"{OWN}pools_and_ports_of_the_network_are_those_that_were_asked_for"
TEMPLATES = f"{OWN}templates_of_the_operator_are_in_force"
END = f"{OWN}logs_are_followed_to_the_end_which_comes_with_the_grace"
GROUPS = f"{PLACEMENT}a_group_of_agents_takes_its_sessions_and_preferred_agents_may_be_replaced"
RACKS = f"{PLACEMENT}a_label_and_a_rack_leave_only_the_agents_that_have_them"
NEXT = f"{PLACEMENT}patience_decides_who_may_pass_and_the_policy_who_is_next"
APPS = "integration/test_container_environment.py::test_apps_run_in_main1_restart_log_and_stop_on_sigterm"
BASE = "integration/test_access.py::test_app_that_keeps_the_path_is_at_its_base_url"
LINKS = "acceptance/test_access.py::test_an_app_opens_with_a_token_of_its_session_and_with_no_other"
RESOURCES = "integration/test_resources.py::test_each_container_gets_exactly_the_requested_resources"
SINGLE = "integration/test_container_environment.py::test_single_container_has_no_derived_variables"
IN_ORDER = "acceptance/test_placement.py::test_what_has_no_room_waits_whole_and_starts_in_the_order_of_priority"
WAITS = "integration/test_queue.py::test_pending_session_keeps_its_request_and_starts_once"
LOGS = "integration/test_logs.py::test_logs_are_available_while_the_session_lives_and_afterwards"
USERS = "integration/test_user_requests.py::test_a_users_request_is_data_and_a_setuid_program_gains_nothing"
LIMITS = "integration/test_time_limits.py::test_the_limits_of_the_operator_hold_for_new_sessions_only"
EVERYWHERE = "acceptance/test_operators.py::test_a_command_in_every_container_ends_the_session_and_its_output_is_kept"

#: What a user asks for.
REQUEST_ROWS = {
    "session_name": Row("one", "docker: the names of containers", ON_ALL, set_in="tests/integration/sessions.py"),
    "session_image": Row(
        "busybox", "its programs", "acceptance/test_placement.py::test_an_image_needs_no_sshd_no_python_and_no_bash"
    ),
    "session_cluster_mode": Row("multi-node", "docker: containers on all agents", ON_ALL, set_in=WHERE),
    "session_cluster_size": Row("4", "docker: four containers", ON_ALL, set_in=WHERE),
    "session_resources": Row("all kinds", "docker inspect, and limits inside", RESOURCES),
    "session_roles": Row(
        "two",
        "images, devices and variables of containers",
        "integration/test_roles_and_devices.py::test_roles_have_their_own_image_environment_and_devices",
    ),
    "session_env": Row("two variables", "env in exec and ssh", ENVIRONMENT, set_in=TRAIN),
    "session_mounts": Row("folders", "files of the agent", FOLDERS, set_in=TRAIN),
    "session_mounts.source": Row("folders", "files of the agent", FOLDERS, set_in=TRAIN),
    "session_mounts.target": Row("in the home", "files of the agent", FOLDERS, set_in=TRAIN),
    "session_mounts.read_only": Row("true", "nobody writes there", FOLDERS, set_in=TRAIN),
    "session_mounts.strict": Row(
        "true", "a link is refused", "integration/test_mounts.py::test_a_strict_folder_is_where_root_has_put_it"
    ),
    "session_resource_group": Row("blue", "docker: all containers are on its agent", GROUPS, "groups"),
    "session_architecture": Row(
        "s390x", "docker: no container", f"{OWN}no_agent_of_another_architecture_is_used", "refused"
    ),
    "session_agent_selection": Row("dispersed", "docker: containers on all agents", ON_ALL, set_in=WHERE),
    "session_agent_labels": Row("[ssd]", "docker: all containers are on its agent", RACKS, "racks"),
    "session_gpu": Row(
        "of models and memory",
        "one that no agent has is refused, the other is given",
        "integration/test_resources.py::test_gpus_are_passed_by_cdi_where_the_engine_supports_it",
    ),
    "session_topology": Row("within rack", "docker: containers in one rack", RACKS, "racks"),
    "session_designated_agents": Row("two", "the agents of containers", RESOURCES),
    "session_designated_agents_mode": Row("preferred", "docker: the container is elsewhere", GROUPS, "groups"),
    "session_network_driver": Row(
        "host",
        "addresses of containers are those of agents",
        "integration/test_host_driver.py::test_it_runs_on_all_agents_under_their_addresses",
    ),
    "session_apps": Row("a server", "a page of it", APPS),
    "session_apps.name": Row("web", "its log", APPS),
    "session_apps.port": Row("8888", "a page of it", APPS),
    "session_apps.protocol": Row("tcp", "the variable of apps", APPS),
    "session_apps.command": Row("a server", "a page of it", APPS),
    "session_apps.path": Row("keep", "the path that the app gets", BASE),
    "session_apps.start": Row("/lab", "the link", BASE),
    "session_apps.program": Row(
        "one that is missing",
        "the session is refused, and would start",
        f"{OWN}an_app_of_a_program_that_the_image_lacks_is_refused",
        "refused",
    ),
    "session_authorized_keys": Row(
        "a key of user1",
        "a login from user1",
        "acceptance/test_access.py::test_the_printed_ssh_configuration_logs_in_to_main1_and_on_to_the_others",
        set_in=TRAIN,
    ),
    "session_command": Row("one that prints", "its output", EVERYWHERE),
    "session_command_scope": Row("all", "its output in each container", EVERYWHERE),
    "session_bootstrap_script": Row(
        "one that prints and exports",
        "logs and variables",
        "integration/test_container_environment.py::test_bootstrap_script_is_sourced_as_work_in_its_home",
    ),
    "session_uid": Row("123456789", "id, stat", SINGLE),
    "session_gid": Row("2345", "id, stat", SINGLE),
    "session_infiniband": Row("true", "device nodes inside", RESOURCES),
    "session_failure_policy": Row(
        "restart",
        "a container that was killed runs",
        "integration/test_lifetime.py::test_failure_policy_restart_restarts_dead_containers",
    ),
    "session_priority": Row("50", "it starts before an older one", IN_ORDER),
    "session_pending_timeout": Row("1", "it is cancelled", WAITS),
    "session_stop_grace": Row("3", "the output: how long it went on", END, "end"),
    "session_stop_command": Row(
        "one that prints",
        "its output",
        "integration/test_life.py::test_two_ends_at_once_run_the_stop_command_once_and_kill_after_the_grace",
    ),
    "session_max_lifetime": Row(
        "2 hours",
        "it ends",
        "integration/test_time_limits.py::test_logins_hear_of_the_end_which_comes_with_the_next_run",
    ),
    "session_idle_timeout": Row(
        "an hour", "it ends", "integration/test_time_limits.py::test_an_idle_session_ends_with_the_next_run"
    ),
    "session_no_new_privileges": Row(
        "false", "/proc of a process", f"{OWN}setuid_programs_work_where_that_is_asked_for", "spread"
    ),
}

#: What a run is told.
RUN_ROWS = {
    "session_id": Row("one", "the logs of that session", LOGS),
    "session_request_path": Row("a file", "variables and roles of the session", USERS),
    "session_record_path": Row("a file", "the file", ON_ALL, set_in=REPORTS),
    "session_list_path": Row("a file", "the file", LISTED, set_in=REPORTS),
    "session_list_format": Row("wide, json", "what is printed", f"{OWN}the_list_has_more_columns_or_is_data", "spread"),
    "session_list_use": Row("true", "what is measured", f"{OWN}the_list_says_what_a_session_uses", "spread"),
    "session_page_path": Row("a file", "the file", LISTED),
    "session_report_path": Row(
        "a file",
        "the file",
        "integration/test_verify.py::test_healthy_session_has_a_table_and_a_report",
        set_in=REPORTS,
    ),
    "session_access_path": Row("a file", "links in the file open", LINKS, set_in=TRAIN),
    "session_logs_path": Row("a file", "the file", LOGS, set_in=REPORTS),
    "session_logs_lines": Row("6", "six lines", LOGS),
    "session_logs_follow": Row("true", "what is printed later", END, "end"),
    "session_token_path": Row("a file", "the token in it opens the app", LINKS, set_in=TRAIN),
    "session_token_ttl": Row(
        "120", "the claims of the token", f"{OWN}a_token_ends_after_the_time_that_was_asked_for", "spread"
    ),
    "session_kernel": Row("main1", "the logs of no other container", LOGS),
    "session_force": Row(
        "true",
        "it ends where it can be reached",
        "integration/test_lifetime.py::test_session_on_an_unreachable_agent_needs_force_to_terminate",
    ),
    "session_fresh_home": Row(
        "true", "a file is gone", "integration/test_homes.py::test_a_repair_keeps_the_home_unless_it_is_to_be_fresh"
    ),
    "session_wait": Row(
        "true",
        "the run fails as the command does",
        "integration/test_lifetime.py::test_session_wait_reports_a_failed_command_and_leaves_nothing",
    ),
    "session_user": Row("alice", "the list", USERS),
    "session_user_uid": Row("2001", "others of that name are refused", USERS),
    "session_registries": Row(
        "a password",
        "the image is pulled",
        "integration/test_images.py::test_agents_pull_the_same_image_with_progress_and_hidden_password",
    ),
    "session_claim_ttl": Row(
        "24",
        "a pull has several steps",
        "integration/test_images.py::test_agents_pull_the_same_image_with_progress_and_hidden_password",
    ),
    "session_claim_attempts": Row(
        "2",
        "the session waits",
        "unit/plugins/action/test_session_create.py::test_a_session_waits_after_too_many_lost_claims",
        plan="no test can have other runs win the same claims as often as it wants",
    ),
    "session_queue_path": Row("that of the lab", "the files of the queue", WAITS, set_in=LAB),
    "session_queue_policy": Row("lifo", "docker: the last one runs", NEXT, "queue"),
    "session_queue_patience": Row("0", "docker: nobody passes", NEXT, "queue"),
    "session_max_lifetime_limit": Row("an hour", "a longer one is refused", LIMITS),
    "session_idle_timeout_limit": Row("an hour", "what agents have stored", LIMITS),
    "session_agent_lost_after": Row(
        "60",
        "the session ends",
        "integration/test_time_limits.py::test_a_session_on_a_lost_agent_ends_where_it_can_be_reached",
    ),
    "session_history": Row(
        "true",
        "sessions that have ended are listed",
        "integration/test_lifetime.py::test_finished_command_is_listed_and_removed_by_the_next_run",
    ),
    "session_history_days": Row("2", "the file of the queue is gone", END, "end"),
    "session_network_pool": Row("10.201.7.0/24", "ip: addresses", NETWORK, "spread"),
    "session_vni_pool": Row("777-779", "ip: the tunnel", NETWORK, "spread"),
    "session_vxlan_port": Row("4790", "ip: the tunnel", NETWORK, "spread"),
    "session_host_port_pool": Row(
        "31500-31510",
        "ss: ports of sshds",
        f"{OWN}containers_on_the_network_of_agents_have_sshds_at_ports_of_their_pool",
        "host network",
    ),
    "session_published_port_pool": Row("30500-30520", "docker inspect: ports", NETWORK, "spread"),
    "session_hosts_template": Row(
        "a file",
        "/etc/hosts",
        "acceptance/test_placement.py::test_an_image_needs_no_sshd_no_python_and_no_bash",
    ),
    "session_ssh_config_template": Row("a file", "ssh -G", TEMPLATES, "spread"),
    "session_environment_template": Row("a file", "env in exec and ssh", TEMPLATES, "spread"),
}

SESSION_ROWS: Mapping[str, Row] = {**REQUEST_ROWS, **RUN_ROWS}
