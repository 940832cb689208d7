"""Every shell script of the project, and those inside Cloud Build's files, by ShellCheck."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.deploy.build_file import ROOT, BuildFile


def check(*words, script=""):
    folder = pathlib.Path(sys.executable).parent
    program = shutil.which("shellcheck", path=f"{folder}:{os.environ['PATH']}")
    if not program:
        pytest.skip("no shellcheck here (make setup brings it)")
    done = subprocess.run([program, *words], input=script, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


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
