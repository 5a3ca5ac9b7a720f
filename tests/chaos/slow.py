"""A dask preload that delays messages at random; the other processes read the delay from a file.

The scheduler, the nannies and the workers send through one method of dask's TCP comm. `Delay` is
the writer's side of the file, `install` the patch of a process that sends.
"""

import asyncio
import faulthandler
import mmap
import os
import random
import signal
import struct
from pathlib import Path

# The variable that names the file.
FILE = "USMQ_CHAOS_DELAY"
# The probability that a message is delayed, and the longest delay in seconds.
FORM = struct.Struct("dd")


class Delay:
    """The delay of the messages of every process that has called `install`."""

    def __init__(self, path):
        path.write_bytes(FORM.pack(0.0, 0.0))
        os.environ[FILE] = str(path)
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), FORM.size)

    def set(self, probability, seconds):
        """Delay this fraction of the messages by up to this time."""
        self._memory[:] = FORM.pack(probability, seconds)


def install(seed=None):
    """Delay the messages that this process sends over TCP."""
    from distributed.comm.tcp import TCP

    with Path(os.environ[FILE]).open("rb") as file:
        memory = mmap.mmap(file.fileno(), FORM.size, access=mmap.ACCESS_READ)
    chance = random.Random(seed)
    write = TCP.write

    async def delayed(self, *args, **kwargs):
        probability, seconds = FORM.unpack(memory[:])
        if chance.random() < probability:
            await asyncio.sleep(chance.random() * seconds)
        return await write(self, *args, **kwargs)

    TCP.write = delayed


def dask_setup(worker):
    """Start to delay; called by dask in each worker. The watchdog's signal prints its stacks.

    A report about memory that is still held names the lines that have allocated it.
    """
    import usmq

    faulthandler.register(signal.SIGUSR1)
    usmq.record_allocations()
    install()
