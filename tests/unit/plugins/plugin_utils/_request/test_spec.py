"""The request for a session: every error with its message, every conversion with its value."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from typing import Any

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._model.devices import GpuRequest
from ansible_collections.backendai.cluster.plugins.module_utils._model.validation import (
    ValidationErrors,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.containers import (
    DEFAULT_RESOURCES,
    MAX_VARIABLE,
    parse_resources,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.run_options import RunOptions, parse_run
from ansible_collections.backendai.cluster.plugins.plugin_utils._request.spec import (
    MAX_SCRIPT,
    SessionSpec,
    changed_options,
    check_spec,
    spec_from_dict,
)
from ansible_collections.backendai.cluster.plugins.plugin_utils.session_options import parse_options, specification
from tests.unit.builders import DEFAULTS, GIB, IMAGE, SESSION_ID, options, refusal, spec, variables

NAME_RULE = "must have 2 to 64 characters of a-z, 0-9 and -, and neither begin nor end with -"
BYTES_RULE = "must be bytes, such as 1g, 512m or 1073741824"
ID_RULE = "must be the id of a session, such as 5f0c6a52-3c0e-4f5e-9d0a-0f3c1d2e4b6a"
TIME_RULE = "must be whole seconds, or a time such as 30s, 90m, 12h, 7d or 1d12h"
COUNT_RULE = "must be a whole number, zero or more"
OPTIONS = ", ".join(specification())
TOPOLOGY_RULE = "must be pack, spread or within LEVEL, such as within leaf"
ONE_GPU = {"resources": {"cuda.device": 1}}


def run_of(needs_session: bool, **changes: Any) -> tuple[RunOptions, str]:
    """Return the options of a run without a new session, and the problems."""
    problems = ValidationErrors()
    about_a_session = [field.name for field in dataclasses.fields(SessionSpec)]
    values = parse_options(problems, variables(**changes), about_a_session)
    return parse_run(problems, values, needs_session=needs_session), str(problems)


def mount(**changes: Any) -> dict[str, Any]:
    return {"source": "/mnt/data", "target": "/data", **changes}


def test_defaults_of_the_role_are_what_the_code_expects() -> None:
    assert parse_resources(ValidationErrors(), "session_resources", DEFAULTS["session_resources"]) == DEFAULT_RESOURCES


@pytest.mark.parametrize("parsed_value", [SessionSpec, RunOptions])
def test_fields_have_the_names_of_options(parsed_value: Any) -> None:
    assert {f"session_{field.name}" for field in dataclasses.fields(parsed_value)} <= {*specification()}


def test_the_minimal_request_is_a_name_and_an_image() -> None:
    request = spec()
    assert dataclasses.asdict(request) == {
        "name": "train-llm",
        "image": IMAGE,
        "cluster_mode": "single-node",
        "cluster_size": 1,
        "resources": {"cpu": 1, "mem": GIB},
        "roles": (),
        "env": {},
        "mounts": (),
        "resource_group": "default",
        "architecture": "",
        "agent_selection": "concentrated",
        "designated_agents": (),
        "designated_agents_mode": "strict",
        "network_driver": "vxlan",
        "authorized_keys": (),
        "command": "",
        "command_scope": "main",
        "bootstrap_script": "",
        "apps": (),
        "uid": 1000,
        "gid": 1000,
        "infiniband": False,
        "failure_policy": "keep",
        "priority": 10,
        "pending_timeout": 0,
        "stop_grace": 30,
        "stop_command": "",
        "max_lifetime": 0,
        "idle_timeout": 0,
        "no_new_privileges": True,
        "agent_labels": (),
        "gpu": {"model": "", "memory": 0},
        "topology": "",
    }


@pytest.mark.parametrize(
    ("option", "value", "taken"),
    [
        ("cluster_size", "4", 4),
        ("cluster_size", " 4 ", 4),
        ("cluster_size", 1024, 1024),
        ("priority", "0", 0),
        ("image", " lab/busybox:1 ", "lab/busybox:1"),
        ("resources", '{"cpu": "2", "mem": "2g"}', {"cpu": 2, "mem": 2 * GIB}),
        ("resources", {"cpu": 2}, {"cpu": 2, "mem": GIB}),
        ("resources", {"mem": "16m", "shmem": "16m"}, {"cpu": 1, "mem": 16 << 20, "shmem": 16 << 20}),
        ("resources", {"cuda.device": 0, "shmem": "0"}, {"cpu": 1, "mem": GIB}),
        (
            "resources",
            {"cuda.device": "2", "shmem": "64m"},
            {"cpu": 1, "mem": GIB, "cuda.device": 2, "shmem": 64 << 20},
        ),
        ("designated_agents", "agent1, agent2,", ("agent1", "agent2")),
        ("designated_agents", '["agent1"]', ("agent1",)),
        ("designated_agents", ["agent1"], ("agent1",)),
        ("agent_labels", "h100, rack=12", ("h100", "rack=12")),
        ("gpu", "{}", GpuRequest()),
        ("topology", " pack ", "pack"),
        ("topology", "spread", "spread"),
        ("topology", "within  leaf", "within leaf"),
        ("topology", "within 2", "within 2"),
        ("topology", {"within": 2}, "within 2"),
        ("topology", '{"within": "leaf"}', "within leaf"),
        ("authorized_keys", "ssh-ed25519 A me,you\nssh-ed25519 B\n", ("ssh-ed25519 A me,you", "ssh-ed25519 B")),
        ("env", '{"A": 1}', {"A": "1"}),
        ("env", {"A": True, "B": 1.5, "C": "", "D": "a=b # c"}, {"A": "true", "B": "1.5", "C": "", "D": "a=b # c"}),
        ("architecture", " arm64 ", "arm64"),
        ("architecture", None, ""),
        ("designated_agents_mode", "preferred", "preferred"),
        ("command", " python train.py\npython report.py\n", "python train.py\npython report.py"),
        ("command", "", ""),
        ("bootstrap_script", "export A=1\n", "export A=1"),
        ("uid", "5000", 5000),
        ("gid", 5000, 5000),
        ("infiniband", "yes", True),
        ("failure_policy", "restart", "restart"),
        ("pending_timeout", "3600", 3600),
        ("stop_grace", "0", 0),
        ("stop_command", " date ", "date"),
    ],
)
def test_text_and_native_values_are_coerced_to_the_type_of_the_option(option: str, value: Any, taken: Any) -> None:
    assert getattr(spec(**{option: value}), option) == taken


@pytest.mark.parametrize("name", ["t1", "abcd", "a--b", "0000", "a" * 64])
def test_a_name_of_2_to_64_characters_is_valid(name: str) -> None:
    assert spec(name=name).name == name


@pytest.mark.parametrize(
    "name",
    [
        "a",
        "a" * 65,
        "Train",
        "train_llm",
        "-abc",
        "abc-",
        "ab.cd",
        "train llm",
        "train\n",
        "../../etc",
        "ünïcode",
    ],
)
def test_a_malformed_name_is_rejected_with_the_rule(name: str) -> None:
    assert refusal(name=name) == f"session_name: {name!r} {NAME_RULE}."


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        # Unknown options.
        ({"clustersize": 4}, "session_clustersize is not an option of a session; did you mean session_cluster_size?"),
        ({"size": 4}, "session_size is not an option of a session; did you mean session_cluster_size?"),
        ({"image_name": "x"}, "session_image_name is not an option of a session; did you mean session_image?"),
        ({"zzz": 1}, f"session_zzz is not an option of a session; allowed are {OPTIONS}."),
        # Required options.
        ({"name": None}, "session_name is required."),
        ({"image": None}, "session_image is required."),
        ({"name": 1234}, "session_name: 1234 must be a line of text."),
        ({"name": ["x"]}, "session_name: ['x'] must be a line of text."),
        ({"image": ""}, "session_image: '' must be a line of text."),
        ({"image": "a\nb"}, "session_image: 'a\\nb' must be a line of text."),
        ({"image": {"a": 1}}, "session_image: {'a': 1} must be a line of text."),
        # Choices.
        (
            {"cluster_mode": "multi"},
            "value of session_cluster_mode must be one of: single-node, multi-node, got: multi.",
        ),
        (
            {"agent_selection": "random"},
            "value of session_agent_selection must be one of: concentrated, dispersed, roundrobin, got: random.",
        ),
        (
            {"designated_agents_mode": "prefer"},
            "value of session_designated_agents_mode must be one of: strict, preferred, got: prefer.",
        ),
        (
            {"failure_policy": "retry"},
            "value of session_failure_policy must be one of: keep, restart, terminate, got: retry.",
        ),
        ({"architecture": ["arm64"]}, "session_architecture: ['arm64'] must be a line of text."),
        (
            {"network_driver": "macvlan"},
            "value of session_network_driver must be one of: vxlan, host, got: macvlan.",
        ),
        (
            {"network_driver": "swarm"},
            "session_network_driver: 'swarm' was removed: use vxlan, which needs no Docker Swarm.",
        ),
        # Numbers.
        ({"cluster_size": 0}, "session_cluster_size: 0 must be a whole number from 1 to 1024."),
        ({"cluster_size": 1025}, "session_cluster_size: 1025 must be a whole number from 1 to 1024."),
        ({"cluster_size": -1}, "session_cluster_size: -1 must be a whole number from 1 to 1024."),
        ({"cluster_size": "four"}, "session_cluster_size: 'four' must be a whole number."),
        ({"cluster_size": 1.5}, "session_cluster_size: 1.5 must be a whole number."),
        ({"cluster_size": True}, "session_cluster_size: True must be a whole number."),
        ({"cluster_size": [4]}, "session_cluster_size: [4] must be a whole number."),
        ({"cluster_size": None}, "session_cluster_size is required."),
        ({"stop_grace": 301}, "session_stop_grace: 301 must be a time from 0 to 300 seconds, such as 30s."),
        (
            {"stop_grace": 61, "claim_ttl": 60},
            (
                "session_stop_grace: 61 is longer than session_claim_ttl, 60 seconds, within which a repair has to end"
                " and replace containers."
            ),
        ),
        ({"pending_timeout": -1}, f"session_pending_timeout: -1 {TIME_RULE}."),
        ({"priority": 101}, "session_priority: 101 must be a whole number from 0 to 100."),
        # Resources.
        ({"resources": "4"}, "session_resources: '4' must be a mapping."),
        ({"resources": "{cpu: 4}"}, "session_resources: '{cpu: 4}' must be a mapping."),
        ({"resources": ["cpu"]}, "session_resources: ['cpu'] must be a mapping."),
        ({"resources": {"cpu": 0}}, "session_resources.cpu: 0 must be at least 1."),
        ({"resources": {"cpu": 0.5}}, f"session_resources.cpu: 0.5 {COUNT_RULE}."),
        ({"resources": {"cpu": "many"}}, f"session_resources.cpu: 'many' {COUNT_RULE}."),
        ({"resources": {"cpu": None}}, "session_resources.cpu is required."),
        ({"resources": {"mem": "lots"}}, f"session_resources.mem: 'lots' {BYTES_RULE}."),
        ({"resources": {"mem": "-1g"}}, f"session_resources.mem: '-1g' {BYTES_RULE}."),
        ({"resources": {"mem": 4}}, "session_resources.mem: 4 must be at least 16m."),
        ({"resources": {"cuda.device": 0.5}}, f"session_resources.cuda.device: 0.5 {COUNT_RULE}."),
        ({"resources": {"cuda.device": "1/2"}}, f"session_resources.cuda.device: '1/2' {COUNT_RULE}."),
        ({"resources": {"cuda.device": -1}}, f"session_resources.cuda.device: -1 {COUNT_RULE}."),
        ({"resources": {"cuda.device": True}}, f"session_resources.cuda.device: True {COUNT_RULE}."),
        ({"resources": {"cuda.device": "all"}}, f"session_resources.cuda.device: 'all' {COUNT_RULE}."),
        (
            {"resources": {"CPU": 1}},
            "session_resources: 'CPU' is not the name of a slot, such as cpu, mem, shmem or cuda.device.",
        ),
        (
            {"resources": {"shmem": "2g"}},
            "session_resources.shmem is part of mem and must not be larger than mem.",
        ),
        # Lists.
        ({"designated_agents": 4}, "session_designated_agents: 4 must be a list of texts."),
        (
            {"agent_labels": ["two words"]},
            (
                "session_agent_labels: 'two words' must have 1 to 63 of A-Z, a-z, 0-9, . _ = / and -,"
                " a letter or digit first."
            ),
        ),
        ({"topology": "near"}, f"session_topology: 'near' {TOPOLOGY_RULE}."),
        ({"topology": "within"}, f"session_topology: 'within' {TOPOLOGY_RULE}."),
        ({"topology": "within leaf 3"}, f"session_topology: 'within leaf 3' {TOPOLOGY_RULE}."),
        ({"topology": "within -1"}, f"session_topology: 'within -1' {TOPOLOGY_RULE}."),
        ({"topology": {"across": "leaf"}}, f"session_topology: {{'across': 'leaf'}} {TOPOLOGY_RULE}."),
        ({"topology": {"within": ["leaf"]}}, f"session_topology: {{'within': ['leaf']}} {TOPOLOGY_RULE}."),
        ({"topology": ["pack"]}, "session_topology: ['pack'] must be a line of text."),
        ({"gpu": {"model": "H100"}}, "session_gpu requires NVIDIA GPUs in session_resources, such as cuda.device: 1."),
        ({"gpu": "H100", **ONE_GPU}, "session_gpu: 'H100' must be a mapping."),
        ({"gpu": {"cores": 1}, **ONE_GPU}, "session_gpu.cores is not known; allowed are model, memory."),
        (
            {"gpu": {"model": "H100; A100"}, **ONE_GPU},
            "session_gpu.model: 'H100; A100' must be words of the name of a GPU, such as H100 or RTX 4090.",
        ),
        ({"gpu": {"memory": "lots"}, **ONE_GPU}, f"session_gpu.memory: 'lots' {BYTES_RULE}."),
        ({"designated_agents": {"a": 1}}, "session_designated_agents: {'a': 1} must be a list of texts."),
        ({"designated_agents": ["agent1", ""]}, "session_designated_agents[1]: '' must be a line of text."),
        ({"designated_agents": [["agent1"]]}, "session_designated_agents[0]: ['agent1'] must be a line of text."),
        ({"authorized_keys": ["a\nb"]}, "session_authorized_keys[0]: 'a\\nb' must be a line of text."),
        # The command of a batch session.
        ({"command": ["date"]}, "session_command must be the text of a shell script."),
        ({"command": "date\0"}, "session_command must be the text of a shell script."),
        ({"command": None}, "session_command is required."),
        ({"command_scope": "sub"}, "value of session_command_scope must be one of: main, all, got: sub."),
        ({"command_scope": "all"}, "session_command_scope: 'all' requires session_command."),
        # Inside the containers.
        ({"bootstrap_script": ["token"]}, "session_bootstrap_script must be the text of a shell script."),
        ({"uid": 0}, "session_uid: 0 must be a whole number from 1 to 2147483647."),
        ({"gid": "staff"}, "session_gid: 'staff' must be a whole number."),
        ({"infiniband": "mlx5_0"}, "session_infiniband: 'mlx5_0' must be true or false."),
        ({"wait": True}, "session_wait requires session_command."),
        ({"wait": True, "command": " \n"}, "session_wait requires session_command."),
        ({"apps": 7}, "session_apps must be a list of mappings."),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_each_invalid_option_has_one_message(changes: dict[str, Any], sentence: str) -> None:
    assert refusal(**changes) == sentence


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ("A=hunter2", "session_env must be a mapping."),
        (["A=hunter2"], "session_env must be a mapping."),
        ('{"A": hunter2', "session_env must be a mapping."),
        ({"A": "hunter2\nB=1"}, "session_env.A must be one line of text."),
        ({"A": "hunter2\r"}, "session_env.A must be one line of text."),
        ({"A": "hunter2\0"}, "session_env.A must be one line of text."),
        ({"A": ["hunter2"]}, "session_env.A must be one line of text."),
        ({"A": {"key": "hunter2"}}, "session_env.A must be one line of text."),
        ({"A": None}, "session_env.A must be one line of text."),
        ({"1A": "hunter2"}, "session_env: '1A' is not the name of an environment variable."),
        ({"A-B": "hunter2"}, "session_env: 'A-B' is not the name of an environment variable."),
        (
            {"BACKENDAI_DIST_MASTER_PORT": "65536"},
            "session_env.BACKENDAI_DIST_MASTER_PORT must be a port number from 1 to 65535.",
        ),
        (
            {"BACKENDAI_DIST_MASTER_PORT": True},
            "session_env.BACKENDAI_DIST_MASTER_PORT must be a port number from 1 to 65535.",
        ),
        (
            {"BACKENDAI_CLUSTER_SIZE": "hunter2"},
            "session_env.BACKENDAI_CLUSTER_SIZE: names that begin with BACKENDAI_ are reserved for the session.",
        ),
        ({"IFS": "hunter2"}, "session_env.IFS: would break the shell of the container."),
        ({"OPTIND": 3}, "session_env.OPTIND: would break the shell of the container."),
        ({"LOCAL_USER_ID": 1001}, "session_env.LOCAL_USER_ID is set from session_uid."),
        ({"LOCAL_GROUP_ID": 1001}, "session_env.LOCAL_GROUP_ID is set from session_gid."),
        (
            {"NVIDIA_VISIBLE_DEVICES": "hunter2"},
            "session_env.NVIDIA_VISIBLE_DEVICES is set from session_resources.",
        ),
        *(
            (
                {name: "hunter2"},
                (
                    f"session_env.{name} may be a switch of NVIDIA's container runtime, which gets none from a session:"
                    " use another name, or export it in session_bootstrap_script, which that does not read."
                ),
            )
            for name in ("NVIDIA_MOFED", "NVIDIA_IMEX_CHANNELS", "NVIDIA_API_KEY_FILE", "NVIDIA_MYAPI_KEY2")
        ),
        (
            {"HOME": "hunter2"},
            (
                "session_env.HOME is set by each login of user work; for caches elsewhere, set the program's own"
                " variable, such as XDG_CACHE_HOME."
            ),
        ),
        *(
            ({name: "hunter2"}, f"session_env.{name} is set by each login of user work.")
            for name in ("LOGNAME", "PWD", "SHELL", "TERM", "USER")
        ),
        *(
            ({name: "hunter2"}, f"session_env.{name} is set by each shell, whatever it is given.")
            for name in ("_", "OLDPWD", "PPID", "RANDOM", "SHELLOPTS", "SHLVL")
        ),
        (None, "session_env is required."),
    ],
)
def test_environment_errors_never_show_a_value(env: Any, sentence: str) -> None:
    assert refusal(env=env) == sentence


def test_a_variable_that_the_kernel_refuses_is_refused_with_its_size() -> None:
    # A program with it cannot be started: of the longest one it can.
    longest = {"LONG": "x" * (MAX_VARIABLE - len("LONG="))}
    assert spec(env=longest).env == longest
    subprocess.run(["/bin/true"], env=longest, check=True)
    longer = {"LONG": longest["LONG"] + "x"}
    with pytest.raises(OSError, match="Argument list too long"):
        subprocess.run(["/bin/true"], env=longer, check=True)
    rule = "bytes with its name, and a variable has at most 131,071: put the value into a file"
    assert refusal(env=longer) == f"session_env.LONG has 131,072 {rule}."
    in_bytes = refusal(roles={"main": {"env": {"LONG": "é" * (1 << 16)}}})
    assert in_bytes == f"session_roles.main.env.LONG has 131,077 {rule}."


def test_variables_that_are_too_many_together_are_refused_with_their_size() -> None:
    many = {f"V{number}": "x" * 100_000 for number in range(10)}
    assert spec(env=many).env == many
    subprocess.run(["/bin/true"], env=many, check=True)
    more = {"MORE": "x" * 100_000}
    rule = "bytes in all, and a container gets at most 1,048,576: put values into files."
    assert refusal(env={**many, **more}) == f"session_env has 1,100,046 {rule}"
    with_roles = refusal(env=many, roles={"main": {}, "sub": {"env": more}})
    assert with_roles == f"session_env with session_roles.sub.env has 1,100,046 {rule}"


@pytest.mark.parametrize("option", ["command", "stop_command", "bootstrap_script"])
def test_a_script_runs_by_file_and_is_refused_with_its_size_above_a_mebibyte(option: str) -> None:
    assert getattr(spec(**{option: "x" * MAX_SCRIPT}), option) == "x" * MAX_SCRIPT
    rule = "bytes, and a script has at most 1,048,576: put it into a file of the image or of a folder that is mounted"
    assert refusal(**{option: "x" * MAX_SCRIPT + "é"}) == f"session_{option} has 1,048,578 {rule}, and run that."
    app = {"name": "web", "port": 8080, "command": "x" * (MAX_SCRIPT + 1)}
    assert refusal(apps=[app]) == f"session_apps[0].command has 1,048,577 {rule}, and run that."


def test_the_environment_may_choose_the_port_of_the_master() -> None:
    assert spec(env={"BACKENDAI_DIST_MASTER_PORT": 31000}).env == {"BACKENDAI_DIST_MASTER_PORT": "31000"}


@pytest.mark.parametrize("option", ["max_lifetime", "idle_timeout", "max_lifetime_limit", "idle_timeout_limit"])
def test_times_are_at_least_a_minute(option: str) -> None:
    rule = "must be a time from 60 to 2147483648 seconds, such as 90m, 12h, 7d."
    assert refusal(**{option: 59}) == f"session_{option}: 59 {rule}"


@pytest.mark.parametrize(
    ("gpu", "taken"),
    [
        ({"model": " H100 "}, GpuRequest("H100")),
        ({"model": 4090}, GpuRequest("4090")),
        ({"memory": "80g"}, GpuRequest("", 80 * GIB)),
        ('{"model": "A100-SXM4-80GB", "memory": 1073741824}', GpuRequest("A100-SXM4-80GB", GIB)),
    ],
)
def test_gpus_are_asked_for_by_model_and_memory(gpu: Any, taken: GpuRequest) -> None:
    request = spec(gpu=gpu, **ONE_GPU)
    assert request.gpu == taken
    assert check_spec(request) == request
    assert spec_from_dict(json.loads(json.dumps(dataclasses.asdict(request)))) == request


def test_all_problems_are_reported_each_on_its_line() -> None:
    assert refusal(name="X", cluster_size=0, nmae="x").splitlines() == [
        "session_nmae is not an option of a session; did you mean session_name?",
        f"session_name: 'X' {NAME_RULE}.",
        "session_cluster_size: 0 must be a whole number from 1 to 1024.",
    ]


def test_a_private_key_given_by_mistake_is_not_shown() -> None:
    header = (
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n"
    )
    assert "hunter2" not in refusal(authorized_keys=[f"{header}hunter2\n-----END OPENSSH PRIVATE KEY-----\n"])


def test_variables_of_other_roles_are_ignored() -> None:
    problems = ValidationErrors()
    values = parse_options(problems, {**variables(), "agent_slots": [], "sessions": 1, "my_session_x": 1})
    assert (values, str(problems)) == (options()[1], "")


def test_a_request_survives_plain_data() -> None:
    request = spec(
        mounts=[mount()],
        env={"A": "1"},
        designated_agents=["agent1"],
        authorized_keys=["ssh-ed25519 A"],
        roles={"main": {}, "worker": {"replicas": 2, "env": {"B": "2"}}},
    )
    assert spec_from_dict(json.loads(json.dumps(dataclasses.asdict(request)))) == request


@pytest.mark.parametrize(
    ("changes", "needs_session", "sentence"),
    [
        ({"name": None, "id": "5f0c"}, True, f"session_id: '5f0c' {ID_RULE}."),
        ({"id": SESSION_ID.upper()}, False, f"session_id: {SESSION_ID.upper()!r} {ID_RULE}."),
        ({"nam": "x"}, False, "session_nam is not an option of a session; did you mean session_name?"),
    ],
)
def test_a_run_without_a_new_session_is_validated_too(
    changes: dict[str, Any], needs_session: bool, sentence: str
) -> None:
    assert run_of(needs_session, **changes)[1] == sentence


@pytest.mark.parametrize("changes", [{}, {"name": None, "id": SESSION_ID}])
def test_a_session_is_terminated_by_name_or_id(changes: dict[str, Any]) -> None:
    assert run_of(True, **changes, force="yes")[0].force is True
    assert run_of(True, **changes, force="yes")[1] == ""


def test_equal_requests_do_not_differ_after_storage() -> None:
    request = spec(mounts=[mount()], env={"A": "secret"}, designated_agents=["agent1"])
    stored = spec_from_dict(json.loads(json.dumps(dataclasses.asdict(request))))
    assert changed_options(stored, request) == []


@pytest.mark.parametrize(
    ("before", "after", "phrases"),
    [
        ({}, {"cluster_size": 4}, ["session_cluster_size (is 1, requested 4)"]),
        ({"image": "a"}, {"image": "b"}, ["session_image (is 'a', requested 'b')"]),
        ({"env": {"A": "x", "B": "y"}}, {"env": {"A": "z", "C": "w"}}, ["session_env (A, B, C)"]),
        ({"env": {"A": "x"}}, {"env": {}}, ["session_env (A)"]),
        ({"command": "curl -H hunter2"}, {"command": ""}, ["session_command"]),
        ({"bootstrap_script": "export A=hunter2"}, {}, ["session_bootstrap_script"]),
        ({"apps": [{"name": "web", "port": 80, "command": "serve hunter2"}]}, {}, ["session_apps"]),
        (
            {},
            {"priority": 5, "cluster_mode": "multi-node"},
            [
                "session_cluster_mode (is 'single-node', requested 'multi-node')",
                "session_priority (is 10, requested 5)",
            ],
        ),
        (
            {},
            {"mounts": [mount()]},
            [
                (
                    "session_mounts (is [], requested [{'source': '/mnt/data', 'target': '/data', 'read_only': False,"
                    " 'strict': False}])"
                )
            ],
        ),
        (
            {"roles": {"main": {}, "ps": {}, "worker": {"env": {"A": "x"}}}},
            {"roles": {"main": {}, "ps": {}, "worker": {"env": {"A": "z"}}}},
            ["session_roles (worker)"],
        ),
        (
            {"roles": {"main": {}, "ps": {}, "worker": {}}},
            {"roles": {"main": {}, "worker": {}, "ps": {}}},
            ["session_roles (their order)"],
        ),
        (
            {},
            {"roles": {"main": {}, "worker": {}}},
            ["session_cluster_size (is 1, requested 2)", "session_roles (main, worker)"],
        ),
        ({}, {"roles": {"main": {}}, "env": {"A": "z"}}, ["session_env (A)", "session_roles (main)"]),
    ],
)
def test_differences_are_named_without_secrets(
    before: dict[str, Any], after: dict[str, Any], phrases: list[str]
) -> None:
    assert changed_options(spec(**before), spec(**after)) == phrases
    assert "hunter2" not in str(changed_options(spec(**before), spec(**after)))
