"""The program that every replica of a training job runs."""
