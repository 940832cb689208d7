"""Every shell script of the project, and those inside Cloud Build's files, by ShellCheck."""

import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.deploy.build_file import ROOT, BuildFile

BUILDS = ("cloudbuild.yaml", "deploy/builds/promote.yaml")


def scripts() -> list[pathlib.Path]:
    listing = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True
    ).stdout.splitlines()
    paths = [
        ROOT / name
        for name in listing
        if (ROOT / name).is_file() and not (ROOT / name).is_symlink()
    ]
    return [
        path
        for path in paths
        if path.read_bytes()[:20].startswith((b"#!/bin/sh", b"#!/usr/bin/env bash", b"#!/bin/bash"))
    ]


@pytest.fixture
def shellcheck():
    beside = pathlib.Path(sys.executable).with_name("shellcheck")
    program = str(beside) if beside.exists() else shutil.which("shellcheck")
    return program or pytest.skip("no shellcheck here (make setup brings it)")


def test_shellcheck_finds_nothing_in_the_scripts(shellcheck):
    found = scripts()
    if not found:
        pytest.skip("not a git checkout")
    assert ROOT / "deploy/setup" in found
    done = subprocess.run([shellcheck, *found], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", BUILDS)
def test_shellcheck_finds_nothing_in_the_steps(shellcheck, path):
    for name, script, _ in BuildFile(path=path).steps():
        # SC2086: what is several words is meant to be; a step's variables come from its `env`,
        # which SC2154 cannot see.
        line = [shellcheck, "--shell=sh", "--exclude=SC2086,SC2154", "-"]
        done = subprocess.run(line, input=script, capture_output=True, text=True)
        assert done.returncode == 0, f"{name}\n{done.stdout}"
