"""Certificates of servers on this machine."""

import shlex

from tests.programs import run


def make_certificate(certificate, key, names):
    """Writes a certificate, which is its own authority, and its key for the names of a server.

    Names are those of openssl, such as `DNS:localhost` and `IP:127.0.0.1`.
    """
    line = shlex.split("openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=here")
    line += ["-keyout", key, "-out", certificate, "-addext", f"subjectAltName={','.join(names)}"]
    run(*line)
