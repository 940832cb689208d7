"""What every replica executes."""
