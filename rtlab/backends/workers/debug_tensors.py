"""Inner tensors of an engine: the binding calls with each during a run, and wanted ones are copied then."""

from __future__ import annotations

import ctypes
import difflib
from typing import TYPE_CHECKING, Any

from rtlab.backends.workers.execution_context import OpenEngine
from rtlab.backends.workers.values import allocate_array, unpack
from rtlab.core.phrases import quote_names
from rtlab.errors import RunError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def attach_debug_listener(open_engine: OpenEngine, context: Any, names: list[str]) -> Any:
    """Ask for inner tensors: those marked at the build by name, the others as tensors that fusion left.

    Raises:
        RunError: this release has no such tensors.
    """
    engine = open_engine.engine
    marked_names = [n for n in names if engine.is_debug_tensor(n)]
    listener = _create_listener(open_engine, names)
    if not context.set_debug_listener(listener):
        raise open_engine.create_error("the listener for inner tensors was refused")
    for name in marked_names:
        context.set_tensor_debug_state(name, True)  # noqa: FBT003 - the binding's signature
    if len(marked_names) < len(names):
        if not hasattr(context, "unfused_tensors_debug_state"):
            missing = next(n for n in names if n not in marked_names)
            raise RunError(
                f'{open_engine.spec.error_prefix}: the value "{missing}" was not marked as a debug tensor at the '
                f"build, and {open_engine.spec.product} {open_engine.trt.__version__} shows no others. Take a newer "
                "release, or read the engine's outputs."
            )
        context.unfused_tensors_debug_state = True
    # What was logged about names that are not marked is no error of the run.
    open_engine.lines.clear()
    return listener


def _create_listener(open_engine: OpenEngine, names: list[str]) -> Any:
    trt, wrapper, kinds = open_engine.trt, open_engine.cuda.wrapper(), open_engine.cuda.MemcpyKind
    requested_names = frozenset(names)

    class Listener(trt.IDebugListener):  # type: ignore[misc,name-defined,unused-ignore]
        """Copies wanted tensors at the moment when they are whole; notes the names of all."""

        def __init__(self) -> None:
            trt.IDebugListener.__init__(self)
            self.values: dict[str, NDArray[Any]] = {}
            self.names: dict[str, None] = {}
            self.errors: list[str] = []

        def process_debug_tensor(  # noqa: PLR0917 - the binding's signature
            self, addr: Any, location: Any, kind: Any, shape: Any, name: str, stream: int
        ) -> bool:
            self.names[name] = None
            if name not in requested_names:
                return True
            try:
                host = allocate_array(kind.name, tuple(shape))
                if location == trt.TensorLocation.HOST:
                    ctypes.memmove(host.ctypes.data, _address(addr), host.nbytes)
                else:
                    wrapper.memcpy(
                        host.ctypes.data, _address(addr), host.nbytes, kinds.DeviceToHost, stream_ptr=stream
                    )
                    wrapper.stream_synchronize(stream)
                self.values[name] = unpack(host, kind.name, tuple(shape))
            except Exception as error:  # noqa: BLE001 - the binding would print and swallow it
                self.errors.append(f"{name}: {error}")
            return True

    return Listener()


def _address(pointer: Any) -> int:
    """A pointer as a number; the binding may wrap it into a capsule."""
    if isinstance(pointer, int):
        return pointer
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return get_pointer(pointer, None) or 0


def collect_debug_tensors(
    open_engine: OpenEngine, listener: Any, names: list[str], others: list[str]
) -> dict[str, NDArray[Any]]:
    """The tensors that a listener copied; ``others`` are the engine's edges, for messages.

    Raises:
        RunError: one could not be copied, or the engine has none of its name.
    """
    error_prefix = open_engine.spec.error_prefix
    if listener.errors:
        raise RunError(
            f"{error_prefix}: inner tensors could not be copied: {listener.errors[0]}. Ask for fewer at a time.",
            details="\n".join(listener.errors),
        )
    missing_names = [n for n in names if n not in listener.values]
    if not missing_names:
        return dict(listener.values)
    if not listener.names:
        raise RunError(
            f'{error_prefix}: the engine shows no inner tensors, such as "{missing_names[0]}"; it was built without '
            f"debug tensors. Build it again with rtlab, or read its outputs: {quote_names(others)}."
        )
    available_names = [*listener.names, *others]
    close_matches = (
        difflib.get_close_matches(missing_names[0], available_names, n=5, cutoff=0.4) or available_names[:5]
    )
    more = f" (and {len(missing_names) - 1} more)" if len(missing_names) > 1 else ""
    raise RunError(
        f'{error_prefix}: the value "{missing_names[0]}"{more} does not exist in the engine: it was fused away, folded '
        f"or renamed. Choose one that does; near ones are {quote_names(close_matches)}.",
        details="\n".join(available_names),
    )
