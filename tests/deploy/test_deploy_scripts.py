"""Every shell script of the project, and those inside Cloud Build's files, by ShellCheck."""

import pathlib
import subprocess
import sys

import pytest

from tests.deploy.build_file import ROOT, BuildFile
from tests.programs import run


def check(*words, script=""):
    program = pathlib.Path(sys.executable).with_name("shellcheck")
    run(program, *words, typed=script)


def test_scripts_pass_shellcheck():
    shebang = ["git", "grep", "-lE", "^#!/(usr/bin/env bash|bin/(ba)?sh)", ":!*.md"]
    scripts = subprocess.run(shebang, cwd=ROOT, capture_output=True, text=True).stdout.split()
    if not scripts:
        pytest.skip("not a git checkout")
    assert "deploy/setup" in scripts
    check(*(ROOT / name for name in scripts))


@pytest.mark.parametrize("path", ["cloudbuild.yaml", "deploy/builds/promote.yaml"])
def test_build_steps_pass_shellcheck(path):
    for _, script, _ in BuildFile(path=path).steps():
        # SC2086: what is several words is meant to be; a step's variables come from its `env`,
        # which SC2154 cannot see.
        check("--shell=sh", "--exclude=SC2086,SC2154", "-", script=script)
