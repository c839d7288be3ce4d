"""libdflash (`ggml_ops/include/dflash.h`) in Python: the only folder that calls C.

Everything raises `dflash_local.errors`; nothing here decides policy. numpy is imported only where arrays are.
"""

from dflash_local.drafting import MAX_NODES, AcceptRule, DraftMode
from dflash_local.native.functions import (
    Device,
    check_chat_template,
    check_embedding_gguf,
    check_gguf,
    few_rows,
    library_info,
    list_devices,
    matrix_rows,
    plan,
    quantize,
    quantize_rows,
    rpc_devices,
    rpc_serve,
    sampling_fields,
    schema_ignored,
    tune,
    vocab_tokenize,
    vocabulary_of,
)
from dflash_local.native.library import BUILD_HINT, library_path, load, set_log_level
from dflash_local.native.native_engine import NativeChat, NativeEngine, PreparedRequest
from dflash_local.native.structs import (
    ABI_VERSION,
    QUOTE_SOURCES,
    EngineParams,
    Origin,
    SlotState,
    SlotStats,
    StepUpdate,
    TreeRows,
    VerifiedTree,
)

__all__ = [
    "ABI_VERSION",
    "BUILD_HINT",
    "MAX_NODES",
    "QUOTE_SOURCES",
    "AcceptRule",
    "Device",
    "DraftMode",
    "EngineParams",
    "NativeChat",
    "NativeEngine",
    "Origin",
    "PreparedRequest",
    "SlotState",
    "SlotStats",
    "StepUpdate",
    "TreeRows",
    "VerifiedTree",
    "check_chat_template",
    "check_embedding_gguf",
    "check_gguf",
    "few_rows",
    "library_info",
    "library_path",
    "list_devices",
    "load",
    "matrix_rows",
    "plan",
    "quantize",
    "quantize_rows",
    "rpc_devices",
    "rpc_serve",
    "sampling_fields",
    "schema_ignored",
    "set_log_level",
    "tune",
    "vocab_tokenize",
    "vocabulary_of",
]  # fmt: skip
