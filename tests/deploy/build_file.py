"""A file of Cloud Build, run step by step on this machine.

After "Build configuration file schema" and "Substituting variable values": a script is run by
/bin/sh in the workspace and sees its step's `env` alone, in which substitutions are filled in; a
step starts when those that it waits for have ended well, or else all before it. The images that
steps name cannot be fetched here: this machine stands in for them.
"""

import dataclasses
import os
import re
import shlex
import subprocess
from collections.abc import Callable

import yaml

from tests.root import ROOT

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
        return subprocess.run(
            ["/bin/sh", "-c", line], cwd=workspace, env={**around, **env, **more},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900,
        )  # fmt: skip

    def run(self, workspace):
        """Runs them until one fails. Returns the ids of those that ended well, and the output."""
        done, output = [], ""
        for name, _, _ in self.steps():
            step = self.step(name, workspace)
            output += step.stdout
            if step.returncode:
                break
            done.append(name)
        return done, output

    def _filled(self, text):
        values = {**BUILTIN, **self.content.get("substitutions", {}), **self.values}
        return re.sub(r"\$\{?([A-Z_][A-Z0-9_]*)\}?", lambda match: values[match[1]], text)
