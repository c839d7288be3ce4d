"""Which of upstream's tests are asked of ours, and which of them it need not pass, each with its reason."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

# Whole files that no one asks of ours.
FILES_OUT_OF_SCOPE = {
    "test_mcp_servers": "runs programs on the server's machine for whoever can reach it",
    "test_tools_builtin": "runs shell commands on the server's machine for whoever can reach it",
    "test_proxy": "fetches any address for a browser, past its rules",
    "test_compat_gcp": "Vertex AI's envelope, of use inside Google's cloud only",
}

_SYNTHETIC = "--spec-synth-*, made-up acceptance for measuring llama-server's own speculation, is not ours"
_IMAGE = "expects a 500 for an image that the model cannot see; ours says 400"
_METRICS = "/metrics is on unless --no-metrics is given, and behind the key where there is one"
_HEADERS = "tells pages `*`, which does not cover Authorization in browsers; ours names the headers that are asked for"
_EMPTY = "llama-server makes up a conversation for `messages: []`; ours answers 400, as Anthropic's own API"
_CUT = "an answer that max_output_tokens cut is `response.incomplete`, as OpenAI's; llama-server calls it completed"
_EMBEDDED = "embeds images; ours embeds texts, and refuses parts that are none with a 400"
_OTHER_WORDS = "ours refuses the file, too, and says that another projector read its media"
_NO_NETWORK = "without a network llama-server calls a download finished that never came; ours is `dflash-local pull`"
_PROXY = "needs the proxy or the tools that are out of scope"
_LOG = "looks for llama-server's own words in the log; tests/engine/test_shared_cache.py asks the same of ours"

# What llama-server passes and ours need not, with the reason.
NOT_ASKED: dict[str, str] = {
    "unit/test_compat_anthropic.py::test_anthropic_empty_messages": _EMPTY,
    "unit/test_compat_anthropic.py::test_anthropic_tool_result_with_image": _IMAGE,
    "unit/test_compat_anthropic.py::test_anthropic_vision_format_accepted": _IMAGE,
    "unit/test_compat_oai_responses.py::test_responses_stream_with_llama_telemetry": _CUT,
    "unit/test_kv_keep_only_active.py::test_clear_and_restore": _LOG,
    "unit/test_metrics.py::test_metrics_disabled": _METRICS,
    "unit/test_security.py::test_cors_options[web.mydomain.fr-Access-Control-Allow-Headers-*]": _HEADERS,
    "unit/test_router.py::test_router_delete_model": _NO_NETWORK,
    "unit/test_security.py::test_cors_origins_defaults_to_localhost_with_tools_enabled": _PROXY,
    "unit/test_security.py::test_cors_proxy_only_forwards_explicit_proxy_headers": _PROXY,
    "unit/test_slot_save.py::test_slot_restore_media_file_without_mmproj": _OTHER_WORDS,
    "unit/test_speculative.py::test_synth_ignores_target_tokens": _SYNTHETIC,
    "unit/test_speculative.py::test_synth_is_deterministic": _SYNTHETIC,
    "unit/test_speculative.py::test_with_and_without_draft": _SYNTHETIC,
    "unit/test_vision_api.py::test_vision_embeddings[What is this: <__media__>\\n-IMG_BASE64_0-True]": _EMBEDDED,
    "unit/test_vision_api.py::test_vision_embeddings[What is this: <__media__>\\n-IMG_BASE64_1-True]": _EMBEDDED,
    "unit/test_vision_api.py::test_vision_embeddings_oai_content": _EMBEDDED,
}

_PASSES = Path(__file__).with_name("passes.txt")


def passes() -> list[str]:
    """What llama-server passes with the pocket model; recorded, and held to be true by test_upstream.py."""
    return [line for line in _PASSES.read_text().splitlines() if line]


def write_passes(names: Iterable[str]) -> None:
    """Record it."""
    _PASSES.write_text("".join(f"{name}\n" for name in sorted(names)))


# Tests whose answers differ from one run to the next on one server, too.
NOT_REPEATED: dict[str, str] = {}
