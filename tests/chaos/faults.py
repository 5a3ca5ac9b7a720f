"""What disturbs a round: workers are killed, paused, restarted or run out of memory."""

import signal
import threading
import time

import psutil

# The fault, how often it is chosen, and the range of its duration in seconds.
KINDS = {
    "kill": (4, (0.0, 0.0)),
    "pause": (4, (0.2, 2.0)),
    # The scheduler gives a worker up after 5 seconds without a message.
    "long pause": (1, (6.0, 8.0)),
    "restart": (2, (0.0, 0.0)),
    "memory": (2, (0.5, 1.5)),
}


def crowd(nbytes, seconds):
    """Hold host memory for a while, in a thread; dask kills a worker far above its limit."""

    def hold():
        held = bytearray(b"x") * nbytes
        time.sleep(seconds)
        del held

    threading.Thread(target=hold, daemon=True).start()


class Fault:
    """One disturbance of one worker, after a delay."""

    def __init__(self, chance, workers, horizon):
        kinds, weights = list(KINDS), [weight for weight, _ in KINDS.values()]
        self.kind = chance.choices(kinds, weights)[0]
        self.worker = chance.randrange(workers)
        self.after = chance.uniform(0, horizon)
        self.seconds = chance.uniform(*KINDS[self.kind][1])
        # The share of the worker's memory limit that "memory" takes in addition.
        self.share = chance.choice([0.3, 1.0])

    def __str__(self):
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.kind} {self.worker} at {self.after:.1f} s{lasting}"

    def run(self, cluster, client, ended, done):
        """Wait, disturb the worker, and count it, unless the round has ended before."""
        if ended.wait(self.after):
            return
        nanny = cluster.workers.get(self.worker)
        if nanny is None or not nanny.pid:
            done["absent"] += 1  # The worker is starting after an earlier fault.
            return
        try:
            # psutil compares the start time: no signal reaches a process that reuses the number.
            process = psutil.Process(nanny.pid)
            self.disturb(process, nanny, cluster, client)
        except (psutil.NoSuchProcess, OSError, TimeoutError, ValueError):
            done["absent"] += 1
            return
        done[self.kind] += 1

    def disturb(self, process, nanny, cluster, client):
        """Disturb the worker now."""
        if self.kind == "kill":
            process.send_signal(signal.SIGKILL)
        elif self.kind == "restart":
            client.restart_workers([nanny.worker_address], timeout=60, raise_for_error=False)
        elif self.kind == "memory":
            nbytes = int(self.share * nanny.memory_manager.memory_limit)
            client.run(
                crowd, nbytes, self.seconds, workers=[nanny.worker_address], on_error="ignore"
            )
        else:
            process.send_signal(signal.SIGSTOP)
            try:
                time.sleep(self.seconds)
            finally:
                process.send_signal(signal.SIGCONT)
