import pytest

from trainer.cluster import exit_codes


@pytest.mark.parametrize(("platform", "codes"), [({}, (143, 1, 1)), ({"CLOUD_ML_JOB_ID": "7"}, (134, 134, 1))])
def test_what_may_go_on_ends_so_that_the_platform_tries_it_again(monkeypatch, platform, codes):
    monkeypatch.delenv("CLOUD_ML_JOB_ID", raising=False)
    for name, value in platform.items():
        monkeypatch.setenv(name, value)
    assert (exit_codes.saved(), exit_codes.failed(others=True), exit_codes.failed(others=False)) == codes
