"""A file of Cloud Build, whose steps run on this machine.

After "Build configuration file schema" and "Substituting variable values": a script is run by
/bin/sh in the workspace and sees its step's `env` alone, in which substitutions are filled in. The
images that steps name cannot be fetched here: this machine stands in for them.
"""

import dataclasses
import os
import re
import shlex
import subprocess
from collections.abc import Callable

import yaml

from tests.root import ROOT

_NO_LOGS = ("CLOUD_LOGGING_ONLY", "NONE")  # What needs no bucket of logs.
BUILTIN = {"PROJECT_ID": "my-project", "BUILD_ID": "b-1", "COMMIT_SHA": "", "TAG_NAME": ""}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildFile:
    """A file with values for its substitutions.

    Attributes:
      elsewhere: Turns what names a host of Google's into one here.
    """

    path: str
    values: dict[str, str] = dataclasses.field(default_factory=dict)
    elsewhere: Callable[[str], str] = str

    @property
    def content(self):
        return yaml.safe_load((ROOT / self.path).read_text())

    def steps(self):
        """Id, line for a shell and environment of each step, in order."""
        for step in self.content["steps"]:
            line = step.get("script") or shlex.join(self._filled(word) for word in step["args"])
            env = [self.elsewhere(self._filled(setting)) for setting in step.get("env", ())]
            yield step["id"], line, dict(setting.split("=", 1) for setting in env)

    def step(self, name, workspace, **more):
        """Runs one of them; what it says is in `stdout`."""
        [(line, env)] = [(line, env) for id_, line, env in self.steps() if id_ == name]
        around = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        env = {**around, **env, **more}
        return subprocess.run(["/bin/sh", "-c", line], cwd=workspace, env=env, **streams)

    def _filled(self, text):
        values = {**BUILTIN, **self.content.get("substitutions", {}), **self.values}
        return re.sub(r"\$\{?([A-Z_][A-Z0-9_]*)\}?", lambda match: values[match[1]], text)


def refusals(content, values):
    """Yields, in words, what Cloud Build refuses of a build with values for its substitutions."""
    text = str(
        {**content, "substitutions": {}, "steps": [{**s, "script": ""} for s in content["steps"]]}
    )
    known = {*BUILTIN, *content.get("substitutions", {})}
    for name in sorted({*re.findall(r"\$\{?([A-Z_][A-Z0-9_]*)", text)} - known):
        yield f"{name} is no substitution"
    for name in sorted({*values} - known):
        yield f"{name} is not in the file"
    for name in content.get("substitutions", {}):
        if not re.fullmatch("_[A-Z0-9_]{1,99}", name):
            yield f"{name} does not begin with _, or has other characters than capitals and digits"
    limit, before = seconds(content), []
    for step in content["steps"]:
        if "script" in step and {"args", "entrypoint"} & step.keys():
            yield f"{step['id']} has a script and args"
        if unknown := {*step.get("waitFor", ())} - {"-", *before}:
            yield f"{step['id']} waits for {unknown}, which is no step before it"
        if step["id"] in before:
            yield f"{step['id']} is the id of two steps"
        if seconds(step, 0) > limit:
            yield f"{step['id']} may take longer than the build"
        before.append(step["id"])
    if not 0 < limit <= 24 * 3600:
        yield f"a build may not take {limit} s"
    # The triggers give each build an account.
    if content.get("options", {}).get("logging") not in _NO_LOGS and "logsBucket" not in content:
        yield "a build with an account of its own needs a place for its logs"


def seconds(limited, default=3600):
    return int(limited.get("timeout", f"{default}s").removesuffix("s"))
