"""Notes what a process does below /gcs that Cloud Storage FUSE cannot do as a disk does.

Python imports this module before a program, as its directory is in PYTHONPATH there. The mount
renames by copying, has no locks, and writes an object anew for each append ("Cloud Storage FUSE",
Limitations). A line in `mount.log` fails the test whose bucket it names.
"""

import os
import sys

_LOG = f"{os.environ.get('LOOPBACK_CLOUD', '')}/mount.log"


def _note(event, arguments):
    match event:
        case "os.rename":
            paths = arguments[:2]
        case "fcntl.flock" | "fcntl.lockf":
            paths = [os.readlink(f"/proc/self/fd/{arguments[0]}")]
        case "open" if arguments[2] & os.O_APPEND:
            paths = arguments[:1]
        case _:
            return
    for path in paths:
        if not isinstance(path, int) and os.fsdecode(path).startswith("/gcs/"):
            with open(os.open(_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "w") as log:
                print(event, os.fsdecode(path), sys.argv, file=log)


if "LOOPBACK_CLOUD" in os.environ:
    sys.addaudithook(_note)
