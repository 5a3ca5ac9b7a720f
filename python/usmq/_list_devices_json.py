"""Prints the root devices as JSON. Runs in a child process, so that the parent loads no driver."""

import json
import sys

import usmq


def main() -> int:
    """Print one object per device, in SYCL's order."""
    devices = [
        {"backend": device.backend, "type": device.device_type, "name": device.name}
        for device in usmq.devices()
    ]
    json.dump(devices, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
