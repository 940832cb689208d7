"""The project's trainer on a Kubernetes cluster of this machine."""

import re

import pytest

from tests.root import ROOT

pytestmark = pytest.mark.kubernetes


def test_page_leads_to_registered_model(kubernetes_cluster, tmp_path):
    """The commands of the page, with a directory in place of its claim."""
    page = (ROOT / "docs/KUBERNETES.md").read_text().replace("/data", str(tmp_path))
    steps = dict(re.findall("^run (\\w+) '(.*)'$", page, re.MULTILINE))
    steps["a"] = f"trainer.task --data-dir {tmp_path}/digits --job-dir {tmp_path}/jobs/a"
    steps["a"] += " --train-steps 600"
    for name in ("convert", "a", "evaluate", "register", "history"):
        flags = ["--job-dir", f"{tmp_path}/jobs/{name}", "--command", f"python -m {steps[name]}"]
        cluster = ["--cluster", str(ROOT / "clusters/local.yaml"), "--image", "none"]
        code, out = kubernetes_cluster.run(*cluster, *flags)
        assert code == 0, out
    assert re.search(r"chief/0 \| .* promote +1 +accuracy", out)
