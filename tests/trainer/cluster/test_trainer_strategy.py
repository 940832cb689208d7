import subprocess
import sys

SERVES = """
import tensorflow as tf
from trainer.cluster import strategy
from trainer.cluster.member import Member

def server(*_, config, **__):
    raise SystemExit(config.intra_op_parallelism_threads)

tf.config.threading.set_intra_op_parallelism_threads(3)
tf.distribute.Server = server
addresses = {role: ["localhost:1"] for role in ("chief", "worker", "ps")}
strategy.serve(Member(role="worker", index=0, addresses=addresses), None, None)
"""


def test_server_computes_on_its_threads():
    assert subprocess.run([sys.executable, "-c", SERVES]).returncode == 3
