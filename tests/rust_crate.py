"""Build new Rust applications that depend on this checkout by path.

``check_pages``: the commands of README and of two pages, as written, and the tutorial's program.
``check_message``: without a runtime the build prints one command; after that command it succeeds.
``check_traced``: the subscriber of an application prints usmq's events and uses usmq in each.
``check_members``: two members of a workspace with different features do not rebuild usmq in turn.

Nothing is set but HOME and PATH. All of it is outside of the checkout, whose .venv would be found.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What the pages have in place of a path of the user.
PLACEHOLDER = "path/to/usmq"


class Failed(Exception):
    """A step that did not end as it must."""


def shell(
    command: str, folder: Path, variables: dict[str, str] | None = None, *, fails: bool = False
) -> str:
    """Run a command with HOME and PATH only, and return what it printed on both channels."""
    kept = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    done = subprocess.run(
        ["bash", "-euc", command],
        cwd=folder,
        env=kept | (variables or {}),
        timeout=1800,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if (done.returncode != 0) != fails:
        raise Failed(f"{command} in {folder} ended with {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


def blocks(page: Path, language: str) -> list[str]:
    """Return the blocks of code of a page in one language."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def copy_of_checkout(place: Path) -> Path:
    """Copy what git would have in a clone, as the working tree has it."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    copy = place / "usmq"
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    return copy


def no_runtime(place: Path) -> dict[str, str]:
    """Return variables for a PATH whose python3 has no package; the folders below have no .venv."""
    for folder in place.parents:
        for name in (".venv", "venv"):
            if (folder / name).exists():
                raise Failed(f"{folder / name} exists, and a build in {place} would use it")
    python = place / "python"
    shell(f"{sys.executable} -m venv --without-pip {python}", place)
    return {"PATH": f"{python / 'bin'}:{os.environ['PATH']}"}


def unused_libraries(target: Path) -> list[Path]:
    """Return the libraries of usmq, except the layer, which the OpenCL loader opens."""
    return [path for path in target.rglob("libusmq*.so") if path.name != "libusmq_layers.so"]


def check_pages(place: Path) -> None:
    """Run the commands of README and of docs/building.md, then the program of the tutorial."""
    usmq = copy_of_checkout(place)
    steps = [
        next(block for block in blocks(usmq / page, "sh") if block.startswith("cargo new first"))
        for page in ("docs/building.md", "docs/tutorial-rust.md", "README.md")
    ]
    plain = {re.sub(r"\s+#.*", "", step) for step in steps}
    if len(plain) != 1:
        raise Failed("the pages differ in the commands:\n" + "\n".join(sorted(plain)))
    printed = shell(steps[-1].replace(PLACEHOLDER, str(usmq)), place)
    if "Hello, world!" not in printed:
        raise Failed(f"`cargo run` printed {printed[-2000:]}")
    first = place / "first"
    programs = blocks(usmq / "docs" / "tutorial-rust.md", "rust")
    program = next(text for text in programs if "from_sycl" in text and "with_queue" in text)
    (first / "src" / "main.rs").write_text(program)
    shell("cargo run", first)
    # Started by hand, with the build script of the tutorial.
    build = next(text for text in programs if "DEP_USMQ_LIBDIR" in text)
    (first / "build.rs").write_text(build)
    shell("cargo build", first)
    shell("target/debug/first", first)
    if shared := unused_libraries(first / "target"):
        raise Failed(f"the application has built a library that it does not use: {shared}")


def check_message(place: Path) -> None:
    """Follow the message in an application, in a workspace, and with a target folder elsewhere."""
    usmq = copy_of_checkout(place)
    variables = no_runtime(place)
    first, environment = place / "first", None
    cases: list[tuple[str, Path, str, dict[str, str]]] = [
        ("an application", first, "first", {}),
        ("a member of a workspace", place / "workspace", "workspace/member", {}),
        ("a target folder elsewhere", place / "third", "third/src", {"CARGO_TARGET_DIR": "t"}),
    ]
    shell(f"cargo new first; cd first; cargo add --path {usmq}", place, variables)
    shell("cargo new third", place, variables)
    shell(f"cargo add --path {usmq}", place / "third", variables)
    (place / "workspace").mkdir()
    (place / "workspace" / "Cargo.toml").write_text('[workspace]\nresolver = "3"\nmembers = []\n')
    shell(f"cargo new member; cd member; cargo add --path {usmq}", place / "workspace", variables)
    for name, application, started_in, extra in cases:
        given = variables | {key: str(place / value) for key, value in extra.items()}
        if environment:  # The crates of others are built already, usmq is not.
            target = place / "t" if extra else application / "target"
            shutil.copytree(
                first / "target",
                target,
                symlinks=True,
                ignore=shutil.ignore_patterns("usmq-*", "libusmq-*"),
            )
        printed = shell("cargo build", place / started_in, given, fails=True)
        if printed.count("usmq: no SYCL runtime was found") != 1 or "panicked" in printed:
            raise Failed(f"{name}: the build prints another message:\n{printed[-4000:]}")
        [command] = re.findall(r"Run this, and build again:\n\n +(.*)\n", printed)
        wanted = application / ".venv"
        if not command.startswith(f"python3 -m venv {wanted} && {wanted}/bin/python -m pip"):
            raise Failed(f"{name}: the command is {command}")
        tried = printed.partition("Looked at, in this order:\n")[2]
        for folder in (place / started_in, application, place):
            if f"  {folder}: has no environment .venv or venv\n" not in tried:
                raise Failed(f"{name}: {folder} is not among the places:\n{tried}")
        if environment is None:
            shell(command, place / started_in, given)
            environment = wanted
        else:  # The same packages, without another download.
            wanted.symlink_to(environment)
        shell("cargo build", place / started_in, given)
        print(f"  {name}: after the command of the message the build succeeds", flush=True)
    check_watch(place / "first", variables)


def check_watch(first: Path, variables: dict[str, str]) -> None:
    """A second build is fresh; one after an update of the runtime is not; removal is noticed."""
    if "usmq" not in fresh(first, "", variables):
        raise Failed("a second build compiles usmq again")
    library = first / ".venv" / "lib" / "libsycl.so"
    library.touch()
    if "usmq" in fresh(first, "", variables):
        raise Failed("after an update of libsycl.so, usmq is not built again")
    (first / ".venv").rename(first / "gone")
    printed = shell("cargo build", first, variables, fails=True)
    if "usmq: no SYCL runtime was found" not in printed:
        raise Failed(f"without its runtime the build prints:\n{printed[-4000:]}")
    (first / "gone").rename(first / ".venv")
    shell("cargo build", first, variables)


def fresh(folder: Path, options: str, variables: dict[str, str]) -> set[str]:
    """Build, and return the packages of which nothing was compiled."""
    printed = shell(f"cargo build --message-format=json {options}", folder, variables)
    states: dict[str, bool] = {}
    for line in printed.splitlines():
        found = json.loads(line) if line.startswith("{") else {}
        target = found.get("target", {"name": "", "kind": []})
        # After a build script that ran again the package is compiled again, too.
        if found.get("reason") == "compiler-artifact" and "custom-build" not in target["kind"]:
            states[target["name"]] = found["fresh"]
    if not states:
        raise Failed(f"cargo says nothing of its artifacts:\n{printed[-4000:]}")
    return {name for name, is_fresh in states.items() if is_fresh}


def check_members(place: Path) -> None:
    """Build two members in turn; the second time nothing is compiled."""
    usmq = copy_of_checkout(place)
    workspace = place / "workspace"
    workspace.mkdir()
    (workspace / "Cargo.toml").write_text('[workspace]\nresolver = "3"\nmembers = []\n')
    variables = no_runtime(place)
    for member, features in (("plain", ""), ("columns", "--features arrow")):
        shell(f"cargo new {member}; cd {member}; cargo add --path {usmq} {features}", workspace)
    runtime = (ROOT / ".venv").resolve()
    (workspace / ".venv").symlink_to(runtime)
    for member in ("plain", "columns"):
        shell(f"cargo build -p {member}", workspace, variables)
    for member in ("plain", "columns", "plain"):
        compiled = {"usmq", member} - fresh(workspace, f"-p {member}", variables)
        if compiled:
            raise Failed(f"`cargo build -p {member}` compiles {sorted(compiled)} again")
    if shared := unused_libraries(workspace / "target"):
        raise Failed(f"a shared library that no member uses: {shared}")


PROGRAM = """fn main() -> usmq::Result<()> {
    let layers = usmq::layers()?;
    assert!(layers.waits && layers.emulator, "{layers:?}");
    let devices = usmq::devices()?;
    let names: Vec<_> = devices.iter().filter_map(|device| device.filter_string()).collect();
    assert_eq!(names, ["opencl:gpu:0", "opencl:gpu:1", "opencl:cpu:0"]);
    for target in names {
        usmq::with_queue(target, || -> usmq::Result<()> {
            let x = usmq::Array::from_slice(&[1f32, 2.0, 3.0])?;
            // SAFETY: it reads and writes elements of x only.
            unsafe { usmq::Elementwise::new("float *x", "x[i] *= 2") }?.launch((&x,))?;
            assert_eq!(x.to_vec::<f32>()?, [2.0, 4.0, 6.0]);
            Ok(())
        })?;
    }
    Ok(())
}
"""


def build_with(environment: Path, place: Path) -> Path:
    """Build an application with the runtime of an environment, and return its path.

    `place` is outside of the checkout, to whose workspace cargo would add the application. It has
    no run path: LD_LIBRARY_PATH chooses the runtime that it uses.
    """
    application = place / "layers"
    if not application.exists():
        shell(f"cargo new layers; cd layers; cargo add --path {ROOT}", place)
        (application / "src" / "main.rs").write_text(PROGRAM)
    shell("cargo build", application, {"VIRTUAL_ENV": str(environment)})
    built = place / environment.name
    shutil.copy2(application / "target" / "debug" / "layers", built)
    return built


# Each event is printed, and a layer uses the devices in it.
TRACED = """use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use usmq::{Array, Elementwise, Result, collocate, current_queue, with_queue};

thread_local!(static INSIDE: Cell<bool> = const { Cell::new(false) });
static SEEN: AtomicU32 = AtomicU32::new(0);

struct UsesUsmq;

fn use_usmq() {
    SEEN.fetch_add(1, Ordering::Relaxed);
    if !INSIDE.replace(true) {
        let x = Array::from_slice(&[1i32, 2]).and_then(|x| x.copy());
        assert_eq!(x.and_then(|x| x.to_vec::<i32>()).ok(), Some(vec![1, 2]));
        INSIDE.set(false);
    }
}

impl<S: Subscriber> Layer<S> for UsesUsmq {
    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        use_usmq();
    }

    fn on_new_span(&self, _: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        use_usmq();
    }
}

fn work() -> Result<()> {
    // SAFETY: it reads and writes elements of its arrays only.
    let add = unsafe { Elementwise::new("const int *x, int *y", "y[i] += x[i]") }?;
    for number in 0..100 {
        let (x, y) = (Array::full(1000, number)?, Array::zeros::<i32>(1000)?);
        let event = add.launch((&x, &y))?;
        event.on_complete(use_usmq);
        assert_eq!(collocate(&y, &current_queue()?)?.to_vec::<i32>()?, [number; 1000]);
    }
    current_queue()?.wait()
}

fn main() -> Result<()> {
    let printed = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let all = tracing_subscriber::filter::LevelFilter::TRACE;
    tracing_subscriber::registry().with(all).with(printed).with(UsesUsmq).init();
    let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(|| with_queue("cpu", work))).collect();
    for thread in threads {
        thread.join().expect("a thread panicked")?;
    }
    println!("{} events", SEEN.load(Ordering::Relaxed));
    Ok(())
}
"""


def check_traced(place: Path) -> None:
    """Print the events of usmq in an application, which also uses usmq in its subscriber."""
    shell(f"cargo new traced; cd traced; cargo add --path {ROOT}", place)
    application = place / "traced"
    shell("cargo add tracing tracing-subscriber", application)
    (application / "src" / "main.rs").write_text(TRACED)
    variables = {"VIRTUAL_ENV": str(ROOT / ".venv"), "LD_LIBRARY_PATH": str(ROOT / ".venv" / "lib")}
    shell("cargo build", application, variables)
    for checks in {}, {"USMQ_CHECKS": "1"}:
        printed = shell("timeout 120 target/debug/traced", application, variables | checks)
        lines = printed.splitlines()
        if "events" not in lines[-1] or int(lines[-1].split()[0]) < 1000:
            raise Failed(f"with {checks} it ends with {lines[-1]}")
        for text in ("usmq", "launch"):
            if not any(text in line for line in lines):
                raise Failed(f"with {checks} no event names {text}:\n{printed[:2000]}")


CHECKS: dict[str, tuple[Callable[[Path], None], str]] = {
    "rust-crate": (check_pages, "cargo new, cargo add --path, the commands of the pages"),
    "rust-message": (check_message, "cargo build without a runtime, then the command it prints"),
    "rust-traced": (
        check_traced,
        "an application that prints usmq's events, and uses usmq in them",
    ),
    "rust-members": (check_members, "two members with different features, built in turn"),
}


def check(name: str) -> None:
    """Run one check in a folder of its own, and delete the folder."""
    with tempfile.TemporaryDirectory(prefix="usmq-rust-") as folder:
        CHECKS[name][0](Path(folder).resolve())
