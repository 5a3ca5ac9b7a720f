"""Foreign producers of Arrow data: structs in ctypes that record the calls made on them."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from ctypes import addressof, c_int64, c_void_p
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from arrow_structs import (
    ARRAY,
    CPU,
    DEVICE_ARRAY,
    DEVICE_STREAM,
    GET,
    LAST_ERROR,
    NULLABLE,
    PRODUCERS,
    RELEASE,
    SCHEMA,
    STREAM,
    ArrowArray,
    ArrowArrayStream,
    ArrowDeviceArray,
    ArrowDeviceArrayStream,
    ArrowSchema,
    bitmap,
    capsule,
    released_part,
    usm,
)


@dataclass
class Node:
    """An array with its type. A buffer is an address, None, or an owner of memory."""

    format: bytes | None
    length: int = 0
    buffers: Sequence[Any] = ()
    children: Sequence[Node] = ()
    dictionary: Node | None = None
    name: bytes | None = b""
    null_count: int = 0
    offset: int = 0
    flags: int = NULLABLE
    metadata: bytes | None = None

    def on_device(self, kind: str = "device") -> Node:
        """Return the same array with its numpy buffers in USM."""
        return replace(
            self,
            buffers=[usm(b, kind) if isinstance(b, np.ndarray) else b for b in self.buffers],
            children=[child.on_device(kind) for child in self.children],
            dictionary=self.dictionary and self.dictionary.on_device(kind),
        )


def address(buffer: Any) -> int | None:
    if buffer is None or isinstance(buffer, int):
        return buffer
    return int(buffer._pointer if hasattr(buffer, "_pointer") else buffer.ctypes.data)


def ints(values: Sequence[int | None], **options: Any) -> Node:
    """Return int32 values; they have a bitmap only if one is None."""
    nulls = sum(value is None for value in values)
    validity = bitmap([value is not None for value in values]) if nulls else None
    data = np.array([value or 0 for value in values], "i4")
    return Node(b"i", len(values), [validity, data], null_count=nulls, **options)


def strings(values: Sequence[bytes], **options: Any) -> Node:
    offsets = np.cumsum([0, *map(len, values)], dtype="i4")
    # One byte more, so that the address is valid even if all strings are empty.
    data = np.frombuffer(b"".join(values) + b"!", "u1")
    return Node(b"u", len(values), [None, offsets, data], **options)


def lists(items: Node, lengths: Sequence[int], **options: Any) -> Node:
    offsets = np.cumsum([0, *lengths], dtype="i4")
    children = [replace(items, name=b"item")]
    return Node(b"+l", len(lengths), [None, offsets], children=children, **options)


def record(**columns: Node) -> Node:
    """Return a record batch: a struct that is not nullable."""
    named = [replace(node, name=name.encode()) for name, node in columns.items()]
    return Node(b"+s", named[0].length if named else 0, [None], children=named, flags=0)


# Callbacks find their producer by the number in private_data; none is dropped before a late call.
_numbers = itertools.count(1)
_owners: dict[int, tuple[Any, str, list[Any]]] = {}


def _releaser(struct_type: Any) -> Any:
    def release(at: int) -> None:
        struct = struct_type.from_address(at)
        owner, what, parts = _owners[struct.private_data]
        owner.log.append(what)
        for probe in owner.probes:
            probe(what)
        for part in parts:  # the struct itself may be wrong about them
            part.release = None
        struct.release = None

    return RELEASE(release)


_RELEASERS = {kind: _releaser(kind) for kind in (ArrowSchema, ArrowArray)}


class Producer:
    """A schema and an array that record their releases.

    `log` has "schema" and "array" when the roots are released, "child" when a consumer releases
    what is not its to release. Change the structs before taking the capsules.
    """

    def __init__(
        self, root: Node, device_type: int = CPU, device_id: int | None = None, sync_event: int = 0
    ) -> None:
        self.root = root
        self.log: list[str] = []
        self.probes: list[Callable[[str], None]] = []
        self.handed: dict[str, bytes] = {}
        self.kept: list[Any] = [root]
        self.schema = self._schema(root, "schema")
        if device_id is None:
            device_id = -1 if device_type == CPU else 0
        # Consumers must ignore reserved fields: pyarrow leaves junk there.
        junk = (c_int64 * 3)(77, -1, 0x0ABABABABABABABA)
        self.device = ArrowDeviceArray(
            self._array(root, "array"), device_id, device_type, sync_event or None, junk
        )
        PRODUCERS.append(self)

    @property
    def array(self) -> ArrowArray:
        array = self.device.array
        assert isinstance(array, ArrowArray)
        return array

    def _own(self, struct: Any, what: str, parts: list[Any]) -> Any:
        number = next(_numbers)
        _owners[number] = self, what, parts
        struct.private_data = number
        struct.release = ctypes.cast(_RELEASERS[type(struct)], c_void_p).value
        return struct

    def _pointers(self, structs: Sequence[Any]) -> int | None:
        found = (c_void_p * len(structs))(*[addressof(struct) for struct in structs])
        self.kept += [structs, found]
        return addressof(found) if structs else None

    def _string(self, value: bytes | None) -> int | None:
        if value is None:
            return None
        self.kept.append(ctypes.create_string_buffer(value))
        return addressof(self.kept[-1])

    def _schema(self, node: Node, what: str) -> ArrowSchema:
        inner = [self._schema(child, "child") for child in node.children]
        struct = ArrowSchema(
            format=self._string(node.format),
            name=self._string(node.name),
            metadata=self._string(node.metadata),
            flags=node.flags,
            n_children=len(inner),
            children=self._pointers(inner),
        )
        if node.dictionary:
            inner.append(self._schema(node.dictionary, "child"))
            struct.dictionary = addressof(inner[-1])
        return self._own(struct, what, inner)  # type: ignore[no-any-return]

    def _array(self, node: Node, what: str) -> ArrowArray:
        inner = [self._array(child, "child") for child in node.children]
        addresses = (c_void_p * len(node.buffers))(*[address(b) for b in node.buffers])
        self.kept.append(addresses)
        struct = ArrowArray(
            length=node.length,
            null_count=node.null_count,
            offset=node.offset,
            n_buffers=len(node.buffers),
            n_children=len(inner),
            buffers=addressof(addresses) if node.buffers else None,
            children=self._pointers(inner),
        )
        if node.dictionary:
            inner.append(self._array(node.dictionary, "child"))
            struct.dictionary = addressof(inner[-1])
        return self._own(struct, what, inner)  # type: ignore[no-any-return]

    def _hand(self, what: str, struct: Any, name: bytes) -> Any:
        if released_part(struct).release:
            self.handed[what] = bytes(struct)
        return capsule(addressof(struct), name)

    def schema_capsule(self) -> Any:
        return self._hand("schema", self.schema, SCHEMA)

    def array_capsule(self) -> Any:
        """Return the array alone, for `__arrow_c_array__`."""
        return self._hand("array", self.device, ARRAY)

    def device_capsule(self) -> Any:
        return self._hand("array", self.device, DEVICE_ARRAY)

    def __arrow_c_device_array__(self, requested_schema: Any = None, **_: Any) -> Any:
        return self.schema_capsule(), self.device_capsule()

    def untouched(self) -> bool:
        structs = {"schema": self.schema, "array": self.device}
        return not self.log and all(
            bytes(structs[what]) == before for what, before in self.handed.items()
        )

    def settled(self) -> str | None:
        """Return the problems: moved structs must be released once, others be unchanged."""
        for what, struct in (("schema", self.schema), ("array", self.device)):
            if what not in self.handed:
                continue
            if released_part(struct).release:
                if bytes(struct) != self.handed[what] or what in self.log:
                    return f"the {what} was changed but not moved: {self.log}"
            elif self.log.count(what) != 1:
                return f"the {what} was released {self.log.count(what)} times: {self.log}"
        return f"children were released on their own: {self.log}" if "child" in self.log else None


def gives(**methods: Callable[[], Any]) -> Any:
    """Return an object with `__arrow_c_<name>__` for each name, and the names of those called."""
    called: list[str] = []

    def method(name: str) -> Any:
        def call(_self: Any, requested_schema: Any = None, **_: Any) -> Any:
            called.append(name)
            return methods[name]()

        return call

    made = type("Gives", (), {f"__arrow_c_{name}__": method(name) for name in methods})
    made.called = called  # type: ignore[attr-defined]
    return made()


# --- streams


class StreamProducer:
    """A stream that yields chunks; a number in place of a chunk is an error code.

    `faults` names what a consumer did that the specification forbids.
    """

    def __init__(
        self,
        schema: Node,
        chunks: Sequence[Producer | int],
        device_type: int | None = None,
        schema_code: int = 0,
        message: bytes | None = None,
        on_failure: Callable[[int, int], object] | None = None,
    ) -> None:
        self.root, self.chunks = schema, list(chunks)
        self.schema_code = schema_code
        self.message = None if message is None else ctypes.create_string_buffer(message)
        self.calls: list[str] = []
        self.faults: list[str] = []
        self.probes: list[Callable[[], None]] = []
        # Called with the addresses of the stream and of the result.
        self.on_failure = on_failure
        self.handed = False
        self._failed = False
        # The stream yields these itself.
        for chunk in self.chunks:
            if isinstance(chunk, Producer):
                PRODUCERS.remove(chunk)
        self.callbacks = {
            "get_schema": GET(self._get_schema),
            "get_next": GET(self._get_next),
            "get_last_error": LAST_ERROR(self._get_last_error),
            "release": RELEASE(self._release),
        }
        pointers = {k: ctypes.cast(v, c_void_p).value for k, v in self.callbacks.items()}
        self.on_device = device_type is not None
        self.struct: Any = (
            ArrowDeviceArrayStream(device_type=device_type, **pointers)
            if self.on_device
            else ArrowArrayStream(**pointers)
        )
        self.struct.private_data = next(_numbers)
        PRODUCERS.append(self)

    def _called(self, name: str) -> None:
        if "release" in self.calls:
            self.faults.append(f"{name} of a released stream")
        if name == "get_last_error" and not self._failed:
            self.faults.append("get_last_error without a failure just before")
        self._failed = False
        self.calls.append(name)

    def _fail(self, code: int, stream: int, out: int) -> int:
        self._failed = True
        if self.on_failure is not None:
            self.on_failure(stream, out)
        return code

    def _get_schema(self, stream: int, out: int) -> int:
        self._called("get_schema")
        if self.schema_code:
            return self._fail(self.schema_code, stream, out)
        given = Producer(self.root)
        given.schema_capsule()
        ctypes.memmove(out, addressof(given.schema), ctypes.sizeof(ArrowSchema))
        given.schema.release = None
        return 0

    def _get_next(self, stream: int, out: int) -> int:
        self._called("get_next")
        target = (ArrowDeviceArray if self.on_device else ArrowArray).from_address(out)
        if released_part(target).release:
            self.faults.append("get_next into a struct that is not marked released")
        chunk = self.chunks.pop(0) if self.chunks else None
        if isinstance(chunk, int):
            return self._fail(chunk, stream, out)
        if chunk is None:
            released_part(target).release = None
            return 0
        PRODUCERS.append(chunk)
        chunk.device_capsule()
        ctypes.memmove(out, addressof(chunk.device), ctypes.sizeof(target))
        chunk.device.array.release = None
        return 0

    def _get_last_error(self, _stream: int) -> int | None:
        self._called("get_last_error")
        return None if self.message is None else addressof(self.message)

    def _release(self, stream: int) -> None:
        self._called("release")
        for probe in self.probes:
            probe()
        type(self.struct).from_address(stream).release = None

    def capsule(self) -> Any:
        self.handed = bool(self.struct.release)
        return capsule(addressof(self.struct), DEVICE_STREAM if self.on_device else STREAM)

    def __arrow_c_device_stream__(self, requested_schema: Any = None, **_: Any) -> Any:
        return self.capsule()

    def settled(self) -> str | None:
        if not self.handed or (self.struct.release and not self.calls):
            return None
        if self.struct.release or self.calls.count("release") != 1:
            return f"the stream was not released once: {self.calls}"
        return None
