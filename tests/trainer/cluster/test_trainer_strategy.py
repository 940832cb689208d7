import pytest
import tensorflow as tf

from trainer.cluster import strategy
from trainer.cluster.member import Member

WORKER = Member(
    role="worker", index=0, addresses={role: ["localhost:1"] for role in ("chief", "worker", "ps")}
)


def test_server_computes_on_its_threads(monkeypatch):
    def server(*_, config, **__):
        raise SystemExit(config.intra_op_parallelism_threads)

    monkeypatch.setattr(tf.distribute, "Server", server)
    # They can be set before TensorFlow has started only, and in this process it has.
    threads = "get_intra_op_parallelism_threads"
    monkeypatch.setattr(tf.config.threading, threads, lambda: 3)
    with pytest.raises(SystemExit) as ended:
        strategy.serve(WORKER, None, None)
    assert ended.value.code == 3
