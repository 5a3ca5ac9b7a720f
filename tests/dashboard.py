"""Reads dask's dashboard and Prometheus endpoint of a cluster; with a path, saves a screenshot.

    python tests/dashboard.py [--screenshot docs/images/dask-dashboard.png]

It needs bokeh and prometheus_client, as `tests/run environments --only dashboard` installs them.
The screenshot needs Chromium, too.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

os.environ.setdefault("USMQ_EMULATE_GPUS", "2")
os.environ.setdefault("USMQ_EMULATE_GPU_MEMORY", "256MiB")

import usmq
from usmq.dask import LocalUsmCluster

SIZE = 1 << 20
PARTS = 6


def part(number: int) -> usmq.Array:
    """Make 8 MiB on the worker's device."""
    return usmq.arange(number * SIZE, (number + 1) * SIZE, dtype="i8")


def total(*arrays: usmq.Array) -> int:
    """Add up arrays of all workers."""
    return sum(int(array.to_numpy().sum()) for array in arrays)


def text(url: str) -> str:
    """Return a page of this machine."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        body: bytes = answer.read()
    return body.decode()


def check(cluster: Any, client: Any) -> None:
    """Compare what the scheduler, the worker's endpoint and the dashboard say."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    for worker in workers.values():
        metrics = worker["metrics"]
        assert metrics["usmq queue"].startswith("in-order, Emulated GPU"), metrics["usmq queue"]
        assert " MiB" in metrics["usmq device memory"], metrics["usmq device memory"]
        assert metrics["usmq spilled"].endswith(" in all"), metrics["usmq spilled"]
        numbers = metrics["usmq"]
        port = worker["services"]["dashboard"]
        page = text(f"http://127.0.0.1:{port}/metrics")
        for line in (
            f'dask_worker_usmq_device_memory_bytes{{device="{numbers["device"]}"',
            'dask_worker_usmq_result_bytes{place="device"}',
            'dask_worker_usmq_spilled_bytes_total{direction="from-device"}',
            'dask_worker_usmq_copied_bytes_total{way="same-host"}',
        ):
            assert line in page, f"{line} is not in\n{page}"
    shared = [each["metrics"]["usmq"]["copies"].get("same-host", 0) for each in workers.values()]
    moved = [each["metrics"]["usmq"]["results"]["moved-from-device"] for each in workers.values()]
    assert sum(shared) >= 8 * SIZE, shared
    assert sum(moved) >= 8 * SIZE, moved
    page = text(cluster.dashboard_link.replace("/status", "/workers"))
    assert "bokeh.min.js" in page, page[:500]
    print(f"{len(workers)} workers: {sum(shared):,} bytes shared, {sum(moved):,} bytes spilled")


def screenshot(url: str, path: Path) -> None:
    """Save the page as Chromium shows it."""
    sys.path.insert(0, str(Path(__file__).parent / "python"))
    import browser

    with tempfile.TemporaryDirectory() as profile, browser.Browser(Path(profile)) as window:
        window.open(url, 1500, 700)
        deadline = time.monotonic() + 15
        # The table comes over a websocket; its cells are in shadow roots of bokeh.
        while not window.evaluate(FOUND) and time.monotonic() < deadline:
            time.sleep(0.5)
        path.write_bytes(window.picture())
        assert window.evaluate(FOUND), (
            f"the page does not show the columns of usmq: {window.problems}"
        )


FOUND = """
(() => {
  const texts = [];
  const visit = (node) => {
    if (node.shadowRoot) node.shadowRoot.childNodes.forEach(visit);
    if (node.nodeType === Node.TEXT_NODE) texts.push(node.textContent);
    node.childNodes.forEach(visit);
  };
  visit(document.body);
  return texts.some((text) => text.includes("usmq device memory"));
})()
"""


def main() -> int:
    """Run tasks on two workers, check what they report, and return the exit status."""
    about = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    about.add_argument("--screenshot", type=Path)
    given = about.parse_args()
    with (
        LocalUsmCluster(
            ["opencl:gpu"], device_memory_limit="16 MiB", dashboard_address=":0"
        ) as cluster,
        cluster.get_client() as client,
    ):
        parts = client.map(part, range(PARTS), pure=False)
        for _ in range(3):
            found = client.submit(total, *parts, pure=False).result(timeout=60)
            assert found == sum(range(SIZE * PARTS)), found
        time.sleep(2)  # The workers report with their next heartbeats.
        check(cluster, client)
        if given.screenshot is not None:
            screenshot(cluster.dashboard_link.replace("/status", "/workers"), given.screenshot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
