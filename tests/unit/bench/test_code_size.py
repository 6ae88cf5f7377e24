"""What is counted as code, as configuration, and as what explains both."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.bench import code_size, figures

PYTHON = '''#!/usr/bin/python3
"""A module.

Its docstring.
"""

import os  # for its name


class Value:
    """One value."""

    # No comment: "# text".
    text = "# text"
    """What it is."""
'''
YAML = """---
# A comment.

name: value  # beside
"""
JINJA = """{# A comment
   of two lines #}
[Unit]
# Another one.

{% if true %}Description={# here #}text{% endif %}
"""


def test_statements_are_those_that_are_no_docstrings() -> None:
    # import, class, text.
    assert code_size.python_statements(PYTHON) == 3


def test_comments_and_docstrings_are_counted_by_lines() -> None:
    assert code_size.python_explanation(PYTHON) == {1, 2, 4, 5, 7, 11, 13, 15}


def test_lines_of_other_languages_are_code_or_comments() -> None:
    assert code_size.other_lines(YAML) == (2, 1)
    assert code_size.other_lines(JINJA) == (2, 3)


def test_tracked_files_of_all_folders_are_counted_by_their_suffix_or_their_interpreter(tmp_path: Path) -> None:
    files = {
        "plugins/modules/one.py": "x = 1\ny = 2\n",
        "plugins/filter/two.py": "z = 3\n",
        "roles/manager/files/program": "#!/usr/bin/env python3\nx = 1\n",
        "roles/agent/files/check": "#!/bin/sh\nexit 0\n",
        "roles/agent/templates/unit.j2": "[Unit]\n",
        "playbooks/play.yml": "---\n",
        "extensions/notes.txt": "not counted\n",
        "tests/test.py": "x = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "plugins/untracked").write_text("#!/bin/sh\n")
    for words in (["init", "--quiet"], ["add", *files]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    result = code_size.measure(tmp_path)
    assert result.keys() == figures.of_part("code")
    assert result == {
        "lines_plugins": [3],
        "modules": [1],
        "statements": [4],
        "lines_yaml_shell_jinja": [3],
        "lines_docstrings_comments": [2],
    }
