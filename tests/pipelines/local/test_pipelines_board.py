"""What TensorBoard shows of runs."""

import pathlib
import re
import subprocess
import sys

import pytest
import requests

from pipelines.local import history


@pytest.mark.cluster  # it takes seconds to start TensorBoard
def test_tensorboard_has_the_runs_by_readable_names_with_settings_and_test_metrics(make, tmp_path):
    from pipelines.local import board

    make("1", accuracy=0.75, settings={"learning_rate": 0.001, "optimizer": "adam"})
    make("2", None, settings={"learning_rate": 0.01, "optimizer": "adam"})
    with board.laid_out(history.runs_in(tmp_path / "runs")) as directory:
        line = [sys.executable, "-m", "tensorboard.main", "--logdir", directory, "--port", "0", "--load_fast", "false"]
        with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as server:
            try:
                url = next(found[0] for line in server.stderr if (found := re.search(r"http://localhost:\d+", line)))
                asked = {"experimentName": "", "colParams": [], "startIndex": 0, "sliceSize": 10}
                asked["allowedStatuses"] = ["STATUS_SUCCESS", "STATUS_RUNNING", "STATUS_UNKNOWN"]
                groups = []
                while len(groups) < 2:  # it is still reading
                    groups = requests.post(f"{url}/data/plugin/hparams/session_groups", json=asked).json()[
                        "sessionGroups"
                    ]
            finally:
                server.kill()
    shown = {group["sessions"][0]["name"]: group for group in groups}
    assert shown.keys() == {"1 digits local", "2 digits local"}
    one, two = (shown[name] for name in sorted(shown))
    assert one["hparams"].items() >= {"learning_rate": 0.001, "optimizer": "adam", "cluster.ps.n": 1}.items()
    assert two["hparams"]["learning_rate"] == 0.01
    assert one["sessions"][0]["status"] == "STATUS_SUCCESS" and two["sessions"][0]["status"] != "STATUS_SUCCESS"
    assert {(value["name"]["tag"], value["value"]) for value in one["metricValues"]} == {("test/accuracy", 0.75)}
    assert not pathlib.Path(directory).exists()
