"""Runs a compiled spec for another server on this machine."""

import json
import subprocess
import sys

from tests.root import ROOT

_RUN = """
import json, sys
from kfp import components, local
spec, root, values = sys.argv[1:]
local.init(local.SubprocessRunner(use_venv=False), pipeline_root=root, enable_caching=False)
components.load_component_from_file(spec)(**json.loads(values))
"""


def run_here(spec, values, root):
    """Runs a spec with arguments by kfp.local, with artifacts below `root`; returns the process."""
    line = [sys.executable, "-c", _RUN, str(spec), str(root), json.dumps(values)]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
