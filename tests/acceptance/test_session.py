"""A session as its user meets it: containers, names, logins, environment, data; and what asking again does."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from tests.acceptance.conftest import DATA, SECRET, Training
from tests.acceptance.hosts import containers, network_state, runs
from tests.integration.containers import LOGIN, parse_environment
from tests.integration.internals import session_link
from tests.integration.laboratory import AGENTS, Kernel, address, in_parallel, run_in, run_on, run_on_all
from tests.integration.probes import list_addresses
from tests.integration.session_requests import FOUR
from tests.integration.sessions import Sessions

HOSTNAMES = ["main1", "sub1", "sub2", "sub3"]
#: Serves a page on an outside host until it was asked once, or for a minute.
SERVE_ONCE = """timeout 60 python3 -c '
from http.server import HTTPServer, SimpleHTTPRequestHandler
HTTPServer(("", 8077), SimpleHTTPRequestHandler).handle_request()'
"""
#: What docker says of a container of that image which nobody has asked for anything.
PLAIN = """docker rm --force plain > /dev/null 2>&1; docker create --name plain lab/python:1 > /dev/null &&
docker inspect --format '{{json .HostConfig}}' plain; docker rm plain > /dev/null"""
#: What is not so in the container of a session; what these are is looked at one by one.
OTHER_THAN_PLAIN = {
    *("Memory", "MemorySwap", "CpusetCpus", "PidsLimit", "Ulimits"),
    *("CapAdd", "CapDrop", "SecurityOpt", "UsernsMode"),
    *("LogConfig", "Mounts", "NetworkMode"),
}
#: Where a container keeps what it is told, and logs of its apps.
OWN_FOLDERS = {"/var/lib/backendai", "/var/log/backendai"}
#: Asks each container to let in a stranger, six times; without the settings that log in by themselves.
REFUSED = f"""PATH=$PATH:/opt/backendai/bin; rm -f /tmp/stranger
ssh-keygen -q -t ed25519 -N '' -f /tmp/stranger
options='-F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -i /tmp/stranger'
for name in {" ".join(HOSTNAMES)}; do
    for time in 1 2 3 4 5 6; do ssh $options $name true 2>&1; done &
done
wait"""
#: Takes more memory than the container has.
GREEDY = "python3 -c 'bytearray(400 << 20)'; echo ended with $?"


def in_all(kernels: list[Kernel], line: str) -> list[str]:
    """Run a shell line in each container, at the same time, and return what each printed."""
    return in_parallel(*[partial(run_in, kernel, "sh", "-c", line, check=False) for kernel in kernels])


def test_each_container_runs_with_the_same_resources_and_together_they_are_on_all_agents(train: Training) -> None:
    found = containers(train.name)
    assert sorted(found) == HOSTNAMES
    assert {container["agent"] for container in found.values()} == {*AGENTS}
    assert {container["State"]["Status"] for container in found.values()} == {"running"}
    assert len({container["Image"] for container in found.values()}) == 1
    plain_on = dict(zip(AGENTS, map(json.loads, run_on_all(PLAIN)), strict=True))
    for container in found.values():
        settings, plain = container["HostConfig"], plain_on[container["agent"]]
        assert (settings["Memory"], settings["MemorySwap"]) == (256 << 20, 256 << 20)
        assert settings["ShmSize"] == 64 << 20
        assert settings["CpusetCpus"].isdecimal()
        assert settings["PidsLimit"] == 4096 + 512
        assert settings["LogConfig"]["Config"] == {"max-size": str(20 << 20), "max-file": "5"}
        other = {name for name, value in settings.items() if (value or None) != (plain.get(name) or None)}
        assert other - {"PortBindings"} == OTHER_THAN_PLAIN
        assert (settings["CapDrop"], sorted(settings["CapAdd"])) == (["ALL"], ["NET_RAW", "SYS_NICE"])
        assert settings["SecurityOpt"] == ["no-new-privileges"]
        assert bool(settings["PortBindings"]) is (container["Config"]["Hostname"] == "main1")
        writable = {mount["Destination"] for mount in container["Mounts"] if mount["RW"]}
        assert writable - OWN_FOLDERS == {"/home/work", "/home/work/data", "/home/work/shared"}
    # Those of one agent have cores of their own, as long as there are some.
    for agent, cores in zip(AGENTS, map(int, run_on_all("nproc")), strict=True):
        given = [each["HostConfig"]["CpusetCpus"] for each in found.values() if each["agent"] == agent]
        assert len({*given}) == min(len(given), cores)


def test_names_resolve_to_addresses_on_the_network_of_the_session(train: Training) -> None:
    kernels = train.session.kernels
    own = in_all(kernels, "ip -4 -oneline address show dev cluster0 | awk '{print $4}' | cut -d / -f 1")
    look = "for name in main1 sub1 sub2 sub3; do getent ahostsv4 $name | awk 'NR == 1 {print $1}'; done"
    assert in_all(kernels, look) == ["".join(own)] * 4
    assert len({*own}) == 4
    # Who listens on IPv6 and IPv4 sees such an address, and looks it up; no name server would answer.
    mapped = f"import socket; print(socket.getnameinfo(('::ffff:{own[2].strip()}', 1), socket.NI_NAMEREQD)[0])"
    assert in_all(kernels, f'timeout 5 python3 -c "{mapped}"') == ["sub2.ipv4-mapped\n"] * 4
    assert in_all(kernels, "ls /sys/class/net | sort") == ["cluster0\neth0\nlo\n"] * 4
    assert in_all(kernels, "(echo 192.0.2.9 main1 >> /etc/hosts) 2> /dev/null || echo refused") == ["refused\n"] * 4
    # Each agent sends what is for a container of another one there, and nothing elsewhere.
    macs = in_all(kernels, "cat /sys/class/net/cluster0/address")
    device = session_link(train.session.record["id"])
    for agent in AGENTS:
        forwarding, neighbours = [], []
        for kernel, mac, inner in zip(kernels, macs, own, strict=True):
            if kernel["agent"] != agent:
                forwarding.append(f"{mac.strip()} {address(kernel['agent'])}")
                neighbours.append(f"{inner.strip()} {mac.strip()}")
        listed = run_on(agent, f"bridge fdb show dev {device} | awk '/ dst / {{print $1, $3}}'")
        assert sorted(listed.splitlines()) == sorted(forwarding)
        listed = run_on(agent, f"ip neigh show dev {device} nud permanent | awk '{{print $1, $3}}'")
        assert sorted(listed.splitlines()) == sorted(neighbours)


def test_an_agent_has_no_address_in_the_network_of_a_session(train: Training, sessions: Sessions) -> None:
    network = f"{train.session.record['network']['subnet'].rpartition('.')[0]}."
    for agent in AGENTS:
        addresses = list_addresses(agent)
        assert address(agent) in addresses
        assert [each for each in addresses if each.startswith(network)] == []
    # Nor is a session in the network of its agents, unless they allow it.
    refused = sessions.create(**FOUR, network_driver="host")
    assert refused.code != 0
    assert "agent_allow_host_network" in refused.text


def test_every_container_logs_in_to_every_other_without_a_prompt(train: Training) -> None:
    line = "; ".join(f"{' '.join(LOGIN)} {name} 'hostname; id -un'" for name in HOSTNAMES)
    # All users come from one address, that of the gateway: who is refused again and again keeps nobody else out.
    (refusals,) = in_all(train.session.kernels[:1], REFUSED)
    assert refusals.count("Permission denied (publickey)") == 6 * len(HOSTNAMES), refusals
    expected = "".join(f"{name}\nwork\n" for name in HOSTNAMES)
    assert in_all(train.session.kernels, line) == [expected] * 4


def test_the_environment_is_there_in_exec_in_ssh_and_in_a_login_shell(train: Training) -> None:
    workers = [f"{host}:{29500 + rank}" for rank, host in enumerate(HOSTNAMES)]
    for rank, kernel in enumerate(train.session.kernels):
        expected = {
            "BACKENDAI_CLUSTER_SIZE": "4",
            "BACKENDAI_CLUSTER_HOSTS": "main1,sub1,sub2,sub3",
            "BACKENDAI_CLUSTER_REPLICAS": "main:1,sub:3",
            "BACKENDAI_CLUSTER_HOST": HOSTNAMES[rank],
            "BACKENDAI_CLUSTER_IDX": str(max(1, rank)),
            "BACKENDAI_CLUSTER_ROLE": "sub" if rank else "main",
            "BACKENDAI_CLUSTER_LOCAL_RANK": str(rank),
            "BACKENDAI_CLUSTER_MODE": "multi-node",
            "BACKENDAI_CLUSTER_HOSTFILE": "/var/lib/backendai/hostfile",
            "BACKENDAI_KERNEL_ID": kernel["id"],
            "BACKENDAI_SESSION_ID": train.session.record["id"],
            "BACKENDAI_KERNEL_IMAGE": "lab/python:1",
            "BACKENDAI_SESSION_NAME": train.name,
            "MASTER_ADDR": "main1",
            "MASTER_PORT": "29500",
            "NCCL_SOCKET_IFNAME": "cluster0",
            "GLOO_SOCKET_IFNAME": "cluster0",
            "OMP_NUM_THREADS": "1",
            "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}),
            "GREETING": "hello world",
            "TOKEN": SECRET,
        }
        login = ("ssh", kernel["hostname"])
        main = train.session.kernels[0]
        for text in (run_in(kernel, "env"), run_in(main, *login, "env"), run_in(main, *login, "sh -lc env")):
            environment = parse_environment(text)
            assert {name: environment.get(name) for name in expected} == expected
            assert not {"WORLD_SIZE", "RANK", "LOCAL_RANK"} & {*environment}
        # What the bootstrap script exports is there in logins.
        assert parse_environment(run_in(main, *login, "env"))["GREETED"] == HOSTNAMES[rank]
    output = train.session.run.output
    assert "backendai-" in output
    assert [value for value in (SECRET, "hello world") if value in output] == []


def test_full_frames_pass_between_all_containers_and_larger_ones_do_not(train: Training) -> None:
    # 1,450 bytes less the headers of IP and ICMP.
    ping = "ping -c 1 -W 2 -M do -q -s {size} {name} > /dev/null 2>&1 && echo {name}"
    full = "; ".join(ping.format(size=1422, name=name) for name in HOSTNAMES)
    own_names = in_all(train.session.kernels, full)
    assert [text.split() for text in own_names] == [HOSTNAMES] * 4
    larger = ping.format(size=1423, name="sub1")
    assert in_all(train.session.kernels[:1], larger) == [""]
    (length,) = in_all(train.session.kernels[:1], "ssh sub1 'head -c 20000000 /dev/zero' | wc -c")
    assert int(length) == 20_000_000


def test_containers_see_the_folders_of_their_agent_and_write_where_they_may(train: Training) -> None:
    kernels = train.session.kernels
    texts = in_all(
        kernels,
        'cd; cat given/whose; touch given/mine 2>&1; echo "$(hostname)" >> data/present; stat -c %U data/present',
    )
    for kernel, text in zip(kernels, texts, strict=True):
        whose, refused, owner = text.splitlines()
        assert (whose, owner) == (kernel["agent"], "work")
        assert "Read-only file system" in refused
    present = [text.split() for text in run_on_all(f"cat {DATA}/present")]
    assert sorted(name for names in present for name in names) == HOSTNAMES
    for agent, names in zip(AGENTS, present, strict=True):
        assert {*names} == {kernel["hostname"] for kernel in kernels if kernel["agent"] == agent}


def test_all_containers_see_the_same_data_where_agents_share_a_file_system(train: Training) -> None:
    line = 'cd ~/shared; echo "$(hostname)" >> present; for n in $(seq 100); do [ $(wc -l < present) -lt 4 ] || break; '
    texts = in_all(train.session.kernels, f"{line} sleep 0.1; done; sort present; stat -c %U present")
    assert [text.split() for text in texts] == [[*HOSTNAMES, "work"]] * 4


def test_a_container_reaches_the_world_over_eth0(train: Training) -> None:
    main = train.session.kernels[0]
    assert "dev eth0" in run_in(main, "ip", "route", "show", "default")
    fetch = f"import urllib.request as u; print(u.urlopen('http://{address('user1')}:8077/', timeout=5).status)"
    served, status = in_parallel(
        lambda: run_on("user1", SERVE_ONCE, check=False),
        lambda: run_in(
            main, "sh", "-c", f'for n in $(seq 50); do python3 -c "{fetch}" 2> /dev/null && break; sleep 0.1; done'
        ),
    )
    assert status.strip() == "200"
    assert '"GET / HTTP' in served


def test_a_process_that_takes_too_much_memory_ends_and_its_container_lives(train: Training) -> None:
    sub = train.session.kernels[1]
    before = containers(train.name)["sub1"]
    assert "ended with 137" in run_in(sub, "sh", "-c", GREEDY)
    assert runs(containers(train.name)["sub1"]) == runs(before)


def test_the_user_inside_is_work_without_capabilities(train: Training) -> None:
    kernels = train.session.kernels
    shown = in_all(kernels, "id -un; id -u; awk '/^(Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs)/ {print $2}' /proc/self/status")
    # NET_RAW and SYS_NICE are in the bounding set, and nobody can get them.
    none, bound = "0" * 16, f"{0x802000:016x}"
    assert [text.split() for text in shown] == [["work", "1000", none, none, bound, none, "1"]] * 4
    listed = [partial(run_on, each["agent"], f"docker top {each['container']} -eo pid,uid") for each in kernels]
    owners = in_parallel(*listed)
    assert [{line.split()[1] for line in text.splitlines()} for text in owners] == [{"UID", "1000"}] * 4
    cores = "ulimit -Hc; ssh sub1 ulimit -Hc; awk '$2 == \"/home/work\" {print $4}' /proc/mounts | tr , '\\n'"
    for text in in_all(kernels, cores):
        here, there, *options = text.split()
        assert (here, there, {"nosuid", "nodev"} <= {*options}) == ("0", "0", True)


def test_the_same_command_again_changes_nothing(train: Training) -> None:
    before = {name: runs(container) for name, container in containers(train.name).items()}
    network = network_state()
    again = train.session.create_again()
    assert (again.code, again.changed) == (0, 0), again.output
    assert again.record == train.session.record
    assert train.access["apps"][0]["url"] in again.output
    assert {name: runs(container) for name, container in containers(train.name).items()} == before
    assert network_state() == network


def test_check_mode_shows_the_plan_and_creates_nothing(train: Training, sessions: Sessions) -> None:
    network = network_state()
    checked = sessions.create("--check", "--diff", **FOUR)
    assert checked.code == 0, checked.output
    for hostname in HOSTNAMES:
        assert (
            f"+container backendai-{sessions.name}-{hostname}: running, image lab/python:1, address 10." in checked.text
        )
    assert containers(sessions.name) == {}
    assert network_state() == network
    assert len(containers(train.name)) == 4


def test_another_request_under_a_taken_name_is_refused_and_says_what_differs(train: Training) -> None:
    before = {name: runs(container) for name, container in containers(train.name).items()}
    refused = train.session.create_again(cluster_size=2, env={"GREETING": "another secret"})
    assert (refused.code != 0, refused.record["status"]) == (True, "ERROR")
    assert f"session_name: '{train.name}' is taken by a session (RUNNING)" in refused.text
    assert "session_cluster_size (is 4, requested 2)" in refused.text
    assert "session_env (GREETING, TOKEN)" in refused.text
    assert not [secret for secret in ("another secret", "hello world", SECRET) if secret in refused.output]
    assert {name: runs(container) for name, container in containers(train.name).items()} == before


def test_the_list_says_what_runs_where_in_a_table_a_file_and_a_page(train: Training, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    listed = train.session.sessions.run("list_sessions", page_path=str(page))
    assert listed.code == 0, listed.output
    engines = containers(train.name)
    (row,) = [line.split() for line in listed.output.splitlines() if line.startswith(f"{train.name} ")]
    agents = dict.fromkeys(engines[name]["agent"] for name in HOSTNAMES)
    assert row[1:7] == ["root", "Multi-node", "4", "4/0", "RUNNING", ",".join(agents)]
    (record,) = [record for record in listed.record if record["name"] == train.name]
    for kernel in record["kernels"]:
        engine = engines[kernel["hostname"]]
        seen = (engine["agent"], engine["Name"].lstrip("/"), engine["State"]["Status"], engine["Image"])
        assert tuple(kernel[field] for field in ("agent", "container", "status", "image_digest")) == seen
    network = record["network"]
    tunnel = run_on("agent1", f"ip -d link show {session_link(record['id'])}")
    assert (network["driver"], f" mtu {network['mtu']} " in tunnel, network["mtu"]) == ("vxlan", True, 1450)
    assert f"vxlan id {network['vni']} " in tunnel
    assert record["resources"]["total"] == {"cpu": 4, "mem": 1 << 30, "shmem": 4 * (64 << 20)}
    assert train.name in page.read_text()
