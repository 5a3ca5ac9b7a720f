"""What a release needs: ``check`` its version, ``notes TAG`` for its changes; docs/releasing.md."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def version() -> str:
    """Return the one version: that of Cargo.toml."""
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    return str(cargo["package"]["version"])


def sections() -> dict[str, str]:
    """Return what the changelog says of each version, newest first."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    parts = re.split(r"^## \[([^\]]+)\].*$", text, flags=re.MULTILINE)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def problems() -> list[str]:
    """Return what keeps this checkout from being released."""
    found = []
    header = (ROOT / "python/usmq/include/usmq.h").read_text(encoding="utf-8")
    if f'#define USMQ_VERSION "{version()}"' not in header:
        found.append(f"usmq.h does not say {version()}")
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))
    locked = [package["version"] for package in lock["package"] if package["name"] == "usmq"]
    if locked != [version()]:
        found.append(f"Cargo.lock says {locked}")
    changes = sections()
    if version() not in changes:
        found.append(f"CHANGELOG.md has no section [{version()}]")
    if changes.get("Unreleased"):
        found.append("CHANGELOG.md still has changes under [Unreleased]")
    return found


def main(arguments: list[str]) -> int:
    if arguments == ["check"]:
        found = problems()
        print("\n".join(found) or f"{version()} is ready")
        return 1 if found else 0
    if len(arguments) == 2 and arguments[0] == "notes":
        name = arguments[1].removeprefix("v")
        notes = sections().get(name)
        if name != version() or not notes:
            print(f"CHANGELOG.md has no section for {name} of version {version()}", file=sys.stderr)
            return 1
        print(notes)
        return 0
    print("usage: release.py check | notes TAG", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
