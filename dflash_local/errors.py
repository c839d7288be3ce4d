"""Every exception of the Python API. The server's refusals are answers with a status: server/http_errors.py.

* DFlashError
  + BuildError             the patched library could not be built or installed
  + NativeLibraryError     the patched library is missing, stock, or of another ABI
  + ModelError             a GGUF is damaged, unsupported or lacks something
    - PairError            drafter and target do not belong together
  + ConvertError           a checkpoint cannot become a drafter GGUF
  + HubError               a model cannot be fetched by name: repository, network, cache or disk
  + ServerError            a server at a URL cannot be reached, refuses or breaks off
  + RequestError           a request parameter is out of range or malformed
    - ContextLengthError   the prompt does not fit the slot's context
    - MediaError           an image or audio cannot be read, or the model cannot take it
  + QueueFullError         more requests wait than the queue may hold
  + EngineDeadError        the engine thread died or was closed
    - EngineLostError      it died with an RPC server; a new one can be made once that is back
  + RPCError               an RPC server cannot be reached, is of another version, or was lost
  + ComputeError           a forward pass failed
  + ResultTimeoutError     a result was not there in time; a TimeoutError, too
"""

from __future__ import annotations

import typing
from typing import Literal

_Error = typing.TypeVar("_Error", bound=BaseException)


class DFlashError(Exception):
    """Base of all errors: `message` says what is wrong and where, `hint` how to fix it (None if unknown)."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} (fix: {self.hint})" if self.hint else self.message


def again(error: _Error) -> _Error:
    """A copy of a stored error, to be raised. Raising the stored one repeatedly would grow its traceback and keep every
    frame's locals alive."""
    copy = type(error).__new__(type(error), *error.args)
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    return copy


class BuildError(DFlashError):
    """`dflash-local build` failed, because of the compiler, a hash, a patch, the disk or the network."""


class NativeLibraryError(DFlashError):
    """libdflash is missing, comes from a stock llama-cpp-python, or speaks another ABI."""


class _FileError(DFlashError):
    """Something is wrong with a file; `field` is the part to blame, None if it is the whole."""

    def __init__(self, message: str, *, field: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field


class ModelError(_FileError):
    """A model file is damaged or unsupported; `field` is the GGUF key or tensor."""


class PairError(ModelError):
    """Drafter and target do not belong together."""


class ConvertError(_FileError):
    """A checkpoint cannot be converted; `field` is the tensor, config key or file."""


class HubError(DFlashError):
    """A model cannot be fetched by name, because of its repository, the network, the cache or the disk. `status` is
    the HTTP status of a refusal, 0 if the connection failed, and None for other causes. `cache_may_serve`: what an
    earlier download left in the cache can take its place."""

    def __init__(
        self, message: str, *, hint: str | None = None, status: int | None = None, cache_may_serve: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.cache_may_serve = cache_may_serve


class ServerError(DFlashError):
    """A server at a URL cannot be reached, refuses, breaks off or answers with something else. `status` is the HTTP
    status of a refusal, 0 if nothing answered, and None for other causes."""

    def __init__(self, message: str, *, hint: str | None = None, status: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class RequestError(DFlashError):
    """A request is refused before it starts; `param` is the parameter to blame."""

    def __init__(self, message: str, *, param: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.param = param

    def at(self, param: str, message: str | None = None) -> RequestError:
        """A copy that blames `param`: with `message`, or with its own, where the new name replaces the old one."""
        moved, old = again(self), param if self.param is None else self.param
        moved.param, moved.message = param, self.message.replace(old, param, 1) if message is None else message
        return moved


class ContextLengthError(RequestError):
    """The prompt does not fit the slot's context. It has `n_prompt` tokens, at least that many if not `counted`, and
    the context has `n_ctx`; None where the error is about something else."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        hint: str | None = None,
        n_prompt: int | None = None,
        n_ctx: int | None = None,
        counted: bool = True,
    ) -> None:
        super().__init__(message, param=param, hint=hint)
        self.n_prompt, self.n_ctx, self.counted = n_prompt, n_ctx, counted


class MediaError(RequestError):
    """An image or audio cannot be fetched or read, or the model takes none. `kind` says which of the two it is, `why`
    what is wrong, without the place: other formats put their own words before it."""

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        hint: str | None = None,
        kind: Literal["image", "audio"] = "image",
        why: str | None = None,
    ) -> None:
        super().__init__(message, param=param, hint=hint)
        self.kind, self.why = kind, why or message

    @classmethod
    def of(cls, param: str, kind: Literal["image", "audio"], why: str, hint: str | None = None) -> MediaError:
        """`why` goes on with a sentence that begins with the place."""
        return cls(f"{param} {why}", param=param, hint=hint, kind=kind, why=f"it {why}")


class QueueFullError(DFlashError):
    """Too many requests wait; try again after `retry_after` seconds."""

    def __init__(self, message: str, *, retry_after: float, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class EngineDeadError(DFlashError):
    """The engine thread died or was closed; the engine answers no more requests."""


class EngineLostError(EngineDeadError):
    """An RPC server that the target lies on was lost, and the engine with it. Once the server is back, a new engine can
    be made."""


class RPCError(DFlashError):
    """An RPC server cannot be reached, is of another version, or was lost."""


class ComputeError(DFlashError):
    """A forward pass failed; its requests are lost, the engine goes on."""


class ResultTimeoutError(DFlashError, TimeoutError):
    """A result was not there in time. Its request goes on: wait again, or cancel it."""
