"""Trains a linear classifier with tf.distribute, and knows nothing of this project."""

import argparse

import tensorflow as tf
from common.data import dataset


def main() -> None:
    """Trains on all workers of TF_CONFIG in step, and continues from the newest checkpoint."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--output", required=True)
    args = parser.parse_args()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    me = strategy.cluster_resolver
    with strategy.scope():
        weights = tf.Variable(tf.zeros([64, 10]), aggregation=tf.VariableAggregation.MEAN)
        done = tf.Variable(0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
    # All replicas take part in saving; the files of the chief are those that are read.
    folder = args.output if me.task_type == "chief" else f"{args.output}/.{me.task_id}"
    checkpoints = tf.train.CheckpointManager(
        tf.train.Checkpoint(weights=weights, done=done), folder, max_to_keep=1
    )
    if newest := tf.train.latest_checkpoint(args.output):
        checkpoints.checkpoint.restore(newest)

    @tf.function
    def train(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, images @ weights)
            loss = tf.reduce_mean(losses)
        weights.assign_sub(0.5 * tape.gradient(loss, weights))
        done.assign_add(1)
        return loss

    print(f"{me.task_type} {me.task_id} begins at step {done.numpy()}", flush=True)
    batches = iter(dataset(64).shard(strategy.num_replicas_in_sync, me.task_id or 0))
    loss = tf.constant(0.0)
    while done.numpy() < args.steps:
        losses = strategy.run(train, args=next(batches))
        loss = strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)
        if done.numpy() % 100 == 0:
            checkpoints.save()
    if me.task_type == "chief":
        print(f"step {done.numpy()}, loss {loss.numpy():.4f}", flush=True)


if __name__ == "__main__":
    main()
