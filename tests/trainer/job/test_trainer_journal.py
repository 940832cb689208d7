from trainer.job.journal import Journal, last


def test_tenth_attempt_is_newer_than_ninth(tmp_path):
    for seed in range(11):
        Journal(str(tmp_path), "chief-0").event("start", 0, seed=seed)
    assert len([*tmp_path.iterdir()]) == 11
    assert last(str(tmp_path), "chief-0", "start")["seed"] == 10
