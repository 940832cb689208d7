"""Values of the settings of a job on Vertex AI."""

ACCOUNT = "trains@p.iam.gserviceaccount.com"
BOARD = "projects/p/locations/us-central1/tensorboards/1"
NETWORK = "projects/1/global/networks/n"
# Every setting, with a value of it.
GIVEN = {
    "training_service_account": ACCOUNT,
    "network": NETWORK,
    "encryption_key": "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k",
    "labels": ("team=blue", "cost=low"),
    "env": ("LEVEL=2", "TEXT=a = b"),
    "tensorboard": BOARD,
}
