"""Tests for the GPUs in CDI specifications, on a host simulated by a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.backendai.cluster.plugins.module_utils._host.accelerators import named_gpus

FOLDERS = ["/etc/cdi", "/var/run/cdi"]
YAML = """---
cdiVersion: 0.5.0
containerEdits:
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args:
    - nvidia-cdi-hook
    hookName: createContainer
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: GPU-aaaa
- name: 'GPU-bbbb' # the second one
  containerEdits: {}
- name: "GPU-cccc"
- name: all
kind: nvidia.com/gpu
"""
JSON = '{"kind": "nvidia.com/gpu", "devices": [{"name": "0"}, {"name": "GPU-dddd"}, {"name": "all"}]}'


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_gpus_are_read_from_json_and_yaml_in_all_folders(tmp_path: Path) -> None:
    write(tmp_path, "etc/cdi/nvidia.yaml", YAML)
    write(tmp_path, "var/run/cdi/nvidia.json", JSON)
    assert named_gpus(FOLDERS, tmp_path) == {"GPU-aaaa", "GPU-bbbb", "GPU-cccc", "GPU-dddd"}
    assert named_gpus(FOLDERS[:1], tmp_path) == {"GPU-aaaa", "GPU-bbbb", "GPU-cccc"}


@pytest.mark.parametrize("kind", ['"nvidia.com/gpu"', "'nvidia.com/gpu'", "nvidia.com/gpu  # all of them"])
def test_yaml_kind_may_be_quoted_and_followed_by_a_comment(tmp_path: Path, kind: str) -> None:
    write(tmp_path, "etc/cdi/nvidia.yaml", f"kind: {kind}\ndevices:\n  - name: GPU-aaaa\n")
    assert named_gpus(FOLDERS, tmp_path) == {"GPU-aaaa"}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("nvidia.yaml", YAML.replace("kind: nvidia.com/gpu", "kind: management.nvidia.com/gpu")),
        ("nvidia.yaml", YAML.replace("kind: nvidia.com/gpu", "kind: nvidia.com/gpu-other")),
        ("nvidia.yaml", YAML.replace("kind: nvidia.com/gpu", "  kind: nvidia.com/gpu")),
        ("nvidia.yaml", "kind: nvidia.com/gpu\ndevices:\n- name: '0'\n# name: GPU-aaaa\n"),
        ("nvidia.json", JSON.replace("nvidia.com/gpu", "management.nvidia.com/gpu")),
        ("nvidia.json", JSON.replace("GPU-dddd", "1")),
        ("nvidia.json", YAML),
        ("nvidia.json", "[]"),
        ("nvidia.json", '{"kind": "nvidia.com/gpu"}'),
        ("nvidia.json", '{"kind": "nvidia.com/gpu", "devices": [1]}'),
        ("nvidia.yml", YAML),
        ("nvidia.yaml.old", YAML),
        ("folder.yaml/nvidia.yaml", YAML),
    ],
)
def test_specification_of_another_kind_or_unreadable_is_ignored(tmp_path: Path, path: str, text: str) -> None:
    write(tmp_path, f"etc/cdi/{path}", text)
    assert named_gpus(FOLDERS, tmp_path) == frozenset()


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("nvidia.yaml", YAML, True),
        ("nvidia.yaml", YAML.replace("0.5.0", "0.6.0"), True),
        ("nvidia.yaml", YAML.replace("0.5.0", '"0.7.0"'), False),
        ("nvidia.yaml", YAML.replace("0.5.0", "v1.1.0"), False),
        ("nvidia.yaml", YAML.replace("cdiVersion: 0.5.0\n", ""), True),
        ("nvidia.json", JSON, True),
        ("nvidia.json", JSON.replace("{", '{"cdiVersion": "0.6.0", ', 1), True),
        ("nvidia.json", JSON.replace("{", '{"cdiVersion": "0.10.0", ', 1), False),
    ],
)
def test_specification_that_is_newer_than_the_engine_reads_names_no_gpu(
    tmp_path: Path, name: str, text: str, named: bool
) -> None:
    write(tmp_path, f"etc/cdi/{name}", text)
    assert bool(named_gpus(FOLDERS, tmp_path, (0, 6))) is named
    assert named_gpus(FOLDERS, tmp_path)


def test_missing_cdi_folders_are_ignored(tmp_path: Path) -> None:
    assert named_gpus(FOLDERS, tmp_path) == frozenset()
