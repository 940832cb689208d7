"""Values of the settings of a job on Vertex AI."""

ACCOUNT = "trains@p.iam.gserviceaccount.com"
BOARD = "projects/p/locations/us-central1/tensorboards/1"
NETWORK = "projects/1/global/networks/n"
ATTACHMENT = "projects/p/regions/us-central1/networkAttachments/n"
RESERVATION = "projects/p/zones/us-central1-a/reservations/r"
# Every setting, with a value of it.
GIVEN = {
    "training_service_account": ACCOUNT,
    "network": NETWORK,
    "reserved_ip_ranges": ("range-1", "range-2"),
    "network_attachment": ATTACHMENT,
    "encryption_key": "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k",
    "labels": ("team=blue", "cost=low"),
    "env": ("LEVEL=2", "TEXT=a = b"),
    "tensorboard": BOARD,
    "persistent_resource": "pool-1",
    "reservation": RESERVATION,
    "max_wait": "6h",
    "web_access": True,
    "restart": "one",
}
