"""What the lab was provisioned as; the scenarios of extensions/molecule show what the roles make of a host."""

from __future__ import annotations

import pytest

from tests.integration.laboratory import run_on_all

pytestmark = pytest.mark.provisioning


def test_the_lab_has_two_engines_and_two_pythons() -> None:
    engines = [version.strip() for version in run_on_all("docker version --format '{{.Server.Version}}'")]
    assert engines[0] == engines[1] != engines[2]
    assert len(set(run_on_all("python3 -c 'import sys; print(sys.version_info[:2])'"))) == 2
