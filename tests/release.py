"""Prepare a release: ``check`` its version, ``notes TAG`` for its changes, ``readme`` for links.

``readme`` makes the relative links of README.md absolute, in place: a registry shows the page
outside of the repository. See docs/releasing.md.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def manifest() -> dict[str, dict[str, Any]]:
    """Read Cargo.toml."""
    return tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))


def version() -> str:
    """Return the one version: that of Cargo.toml."""
    return str(manifest()["package"]["version"])


def repository() -> str | None:
    """Return the address of the project: that of Cargo.toml, the one place that has it."""
    address = manifest()["package"].get("repository")
    return str(address).removesuffix("/").removesuffix(".git") if address else None


LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?![a-z]+:|#)(?P<path>[^)\s]+)\)")


def absolute_links(text: str, address: str, tag: str) -> str:
    """Return the page with links to the files of this tag; those in blocks of code stay."""

    def link(found: re.Match[str]) -> str:
        kind = "raw" if found["image"] else "blob"
        return f"{found['image']}[{found['text']}]({address}/{kind}/{tag}/{found['path']})"

    # Every second part is a block of code.
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def sections() -> dict[str, str]:
    """Return what the changelog says of each version, newest first."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    parts = re.split(r"^## \[([^\]]+)\].*$", text, flags=re.MULTILINE)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


NO_ADDRESS = "Cargo.toml has no `repository`: set it to the address of the project"


def problems() -> list[str]:
    """Return what keeps this checkout from being released."""
    found = []
    header = (ROOT / "python/usmq/include/usmq.h").read_text(encoding="utf-8")
    if f'#define USMQ_VERSION "{version()}"' not in header:
        found.append(f"usmq.h does not say {version()}")
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text(encoding="utf-8"))
    ours = ("usmq", "usmq-derive")
    locked = [package["version"] for package in lock["package"] if package["name"] in ours]
    if locked != [version()] * len(ours):
        found.append(f"Cargo.lock says {locked}")
    required = manifest()["dependencies"]["usmq-derive"]["version"]
    if required != f"={version()}":
        found.append(f"Cargo.toml requires usmq-derive {required}")
    changes = sections()
    if version() not in changes:
        found.append(f"CHANGELOG.md has no section [{version()}]")
    if not repository():
        found.append(NO_ADDRESS)
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
    if arguments == ["readme"]:
        address = repository()
        if not address:
            print(NO_ADDRESS, file=sys.stderr)
            return 1
        readme = ROOT / "README.md"
        text = absolute_links(readme.read_text(encoding="utf-8"), address, f"v{version()}")
        readme.write_text(text, encoding="utf-8")
        return 0
    print("usage: release.py check | notes TAG | readme", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
