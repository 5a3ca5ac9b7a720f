"""Prints the root devices as JSON. Runs in a child process, so that the parent loads no driver."""

import json
import sys
import warnings

import usmq


def main() -> int:
    """Print the devices in SYCL's order, and the warnings of the query."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        devices = [
            {"backend": device.backend, "type": device.device_type, "name": device.name}
            for device in usmq.devices()
        ]
    json.dump({"devices": devices, "warnings": [str(one.message) for one in said]}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
