"""A headless Chromium, driven through its DevTools pipe: pages, scripts and screenshots."""

import base64
import json
import os
import select
import shutil
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
# Without a sandbox, since tests may run as root, and without network access.
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
SECONDS = 60
PROBLEMS = ("error", "warning", "assert")


class Browser:
    """One window. `problems` has the errors of console and loader since the last `open`."""

    def __init__(self, profile):
        assert CHROMIUM is not None
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        # Chromium reads file descriptor 3 and writes 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_child} 4>&{from_child}', "browser", *command],
            pass_fds=(to_child, from_child),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child)
        os.close(from_child)
        self._pending = b""
        self._calls = 0
        self._session = None
        self._events = []
        self.problems = []
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close()

    def close(self):
        """End the browser, and its helpers with it."""
        try:
            self._session = None
            self.call("Browser.close")
            self._process.wait(SECONDS)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._write)
            os.close(self._read)

    def open(self, url, width=1280, height=900):
        """Show a page in a window of this size, and wait until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self._events.clear()
        self.problems.clear()
        self.call("Page.navigate", url=url)
        end = time.monotonic() + SECONDS
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._receive(end)
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")

    def evaluate(self, expression):
        """Return the value of a JavaScript expression, which may be a promise."""
        done = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def picture(self, *, whole=False):
        """Return a screenshot as PNG: of the window, or of the whole page."""
        made = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(made["data"])

    def call(self, method, **params):
        """Call a method of the DevTools protocol and return its result."""
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + SECONDS
        while True:
            answer = self._receive(end)
            if answer.get("id") == self._calls:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result = answer["result"]
                return result

    def _receive(self, end):
        while b"\0" not in self._pending:
            left = end - time.monotonic()
            assert left > 0, "the browser does not answer"
            ready, _, _ = select.select([self._read], [], [], left)
            if ready:
                data = os.read(self._read, 1 << 16)
                assert data, "the browser has ended"
                self._pending += data
        text, _, self._pending = self._pending.partition(b"\0")
        message = json.loads(text)
        if "method" in message:
            self._events.append(message)
            self._note(message["method"], message["params"])
        return message

    def _note(self, method, params):
        if method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in PROBLEMS:
            self.problems.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"]["text"])
        elif method == "Network.loadingFailed" and not params.get("canceled"):
            self.problems.append(params["errorText"])


def open_browser(tmp_path_factory):
    """Yield a browser, for a fixture; skip where Chromium is not installed."""
    import pytest

    if CHROMIUM is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser
