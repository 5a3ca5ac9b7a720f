"""The dimensions of the coexistence suite, impossible combinations, and pairwise-covering cases."""

import itertools
import random

Case = dict[str, str]
Pair = tuple[tuple[str, str], tuple[str, str]]

DIMENSIONS = {
    # The order of imports and of first device queries. If the peer queries before usmq is imported,
    # the CPU driver is registered in a vendors folder; otherwise no peer sees a device.
    "order": ("usmq first", "peer imported first", "peer asks between", "peer asks first"),
    "peer": ("dpnp", "dpctl"),
    "dropped": ("none", "ours", "theirs", "ours, theirs", "theirs, ours"),
    "threads": ("1", "2", "4"),
    "ours": ("in order", "out of order"),
    "theirs": ("in order", "out of order"),
    "device": ("root", "sub-device"),
    "context": ("default", "own"),
    "protocol": (
        "export SUAI",
        "export DLPack",
        "export legacy DLPack",
        "export Arrow array",
        "export Arrow stream",
        "import SUAI",
        "import DLPack",
        "import legacy DLPack",
    ),
    "next": ("to_numpy", "collocate", "launch", "fill", "Event.wait", "Queue.wait", "exit"),
}


def is_elsewhere(case):
    """Return whether the memory is outside the platform's default context."""
    return case["device"] == "sub-device" or case["context"] == "own"


# Excluded combinations, each with its reason.
LEFT_OUT = (
    (
        "DLPack, sub-device or own context: a DLPack device number means a root device in the "
        "platform's default context",
        lambda case: "DLPack" in case["protocol"] and is_elsewhere(case),
    ),
    (
        "Arrow, sub-device or own context: ARROW_DEVICE_ONEAPI means a root device in the "
        "platform's default context",
        lambda case: "Arrow" in case["protocol"] and is_elsewhere(case),
    ),
    (
        "DLPack, dpctl: dpctl.memory has no DLPack since dpctl.tensor moved to dpnp",
        lambda case: "DLPack" in case["protocol"] and case["peer"] == "dpctl",
    ),
    (
        "2 or 4 threads, import of dpnp by SUAI: dpnp waits inside libsycl where its "
        "__sycl_usm_array_interface__ is read; dpnp alone hangs there (control.py, getter)",
        lambda case: (
            case["threads"] != "1" and case["peer"] == "dpnp" and case["protocol"] == "import SUAI"
        ),
    ),
    (
        "4 threads, any out-of-order queue: dpnp alone locks up there (control.py)",
        lambda case: case["threads"] == "4" and "out of order" in (case["ours"], case["theirs"]),
    ),
    (
        "4 threads, DLPack to dpnp: dpnp works on dpctl's cached queue there, an out-of-order one "
        "that all threads share; dpnp alone locks up (control.py)",
        lambda case: (
            case["threads"] == "4" and case["protocol"] in ("export DLPack", "export legacy DLPack")
        ),
    ),
)

# Names outside the dimensions, so that no rule above can exclude them.
NOT_TRIED = (
    "threads that share one in-order queue and wait in dpnp: dpnp alone hangs there over memory of "
    "any other owner (control.py, `owners`); each thread has queues of its own",
    "the first call of a dpnp function in two threads at once: dpnp alone hangs there "
    "(control.py); each thread's first round runs before the threads start",
    "peers that wait in several threads: a wait of dpctl holds libsycl's graph lock while a host "
    "task needs the GIL, and without the layer two waits on out-of-order queues lock up "
    "the driver, in dpctl alone, too (control.py, `waits`); with more than one thread only usmq "
    "waits, and dpctl's kernels go through `submit_async`, since `submit` waits",
    "a command of dpctl on an out-of-order queue whose event list alone orders it after another "
    "queue: once a host task of its queue has ended, libsycl's barriers miss such a command while "
    "it waits for a host task (tests/upstream/barrier_after_host_task.cpp); a barrier orders it",
    "host tasks of dpnp or dpctl that are pending at the end of the process: dpctl waits for them "
    "there, and hangs alone, or its host task ends the process, since Python ends the thread that "
    "takes the GIL; they are over when `exit` begins, and work of usmq is in flight",
)


# One thread and one queue of ours hung in each of these at 64385b2; no pair of values covers that.
QUEUES = ("in order", "in order", "root", "default")
ALWAYS = tuple(
    dict(zip(DIMENSIONS, ("usmq first", "dpnp", dropped, "1", *QUEUES, *last), strict=True))
    for dropped in ("ours, theirs", "theirs, ours")
    for last in (("export SUAI", "to_numpy"), ("export SUAI", "collocate"))
)


def why_not(case):
    """Return why a case is excluded."""
    return next((reason for reason, applies in LEFT_OUT if applies(case)), None)


def every_case():
    """Yield the full product without the excluded combinations."""
    for values in itertools.product(*DIMENSIONS.values()):
        case = dict(zip(DIMENSIONS, values, strict=True))
        if why_not(case) is None:
            yield case


def pairs_of(case):
    """Return the pairs of values in a case."""
    return set(itertools.combinations(case.items(), 2))


def pairwise(seed=1):
    """Return cases in which each pair of values that can exist occurs; always the same ones.

    They begin with `ALWAYS`. Greedy: of 200 cases with the first pair that is still missing, the
    one with most missing pairs.
    """
    cases, rand = list(every_case()), random.Random(seed)
    with_pair = {}
    for number, case in enumerate(cases):
        for pair in itertools.combinations(case.items(), 2):
            with_pair.setdefault(pair, []).append(number)
    # Rare pairs first: they leave the fewest choices.
    missing = dict.fromkeys(sorted(with_pair, key=lambda pair: (len(with_pair[pair]), pair)))
    chosen = list(ALWAYS)
    for pair in set().union(*map(pairs_of, chosen)):
        missing.pop(pair, None)
    while missing:
        numbers = with_pair[next(iter(missing))]
        tried = rand.sample(numbers, min(200, len(numbers)))
        best = max(tried, key=lambda number: len(pairs_of(cases[number]) & missing.keys()))
        chosen.append(cases[best])
        for pair in pairs_of(cases[best]):
            missing.pop(pair, None)
    covered = set().union(*map(pairs_of, chosen))
    assert covered == set(with_pair), "a pair of values is in no case"
    return chosen


def missing_pairs():
    """Return pairs of values that no case can have, each with the reason."""
    possible = set().union(*map(pairs_of, pairwise()))
    found = []
    for one, other in itertools.combinations(DIMENSIONS, 2):
        for values in itertools.product(DIMENSIONS[one], DIMENSIONS[other]):
            pair = ((one, values[0]), (other, values[1]))
            if pair not in possible:
                found.append((pair, reason_of(dict(pair))))
    return found


def reason_of(part):
    """Return why no case has these values."""
    rest = {name: values for name, values in DIMENSIONS.items() if name not in part}
    reasons = {
        why_not(part | dict(zip(rest, values, strict=True)))
        for values in itertools.product(*rest.values())
    }
    # A rule that holds for all other values applies together with other rules in some cases only.
    for reason, applies in LEFT_OUT:
        if reason in reasons and all(
            applies(part | dict(zip(rest, values, strict=True)))
            for values in itertools.islice(itertools.product(*rest.values()), 500)
        ):
            return reason
    return "; ".join(sorted(reason for reason in reasons if reason))
