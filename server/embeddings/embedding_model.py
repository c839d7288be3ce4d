"""EmbeddingModel: a vector or a score for each text, by llama-cpp-python. It lives in the worker's process."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np

from dflash_local import native
from dflash_local.convert.gguf_metadata import read_model
from dflash_local.errors import ComputeError, ContextLengthError, ModelError
from dflash_local.server.embeddings.embedding_facts import EmbeddingFacts
from dflash_local.server.embeddings.options import POOLINGS, ModelOptions
from dflash_local.server.embeddings.texts import Text, Tokens

# Default limit for the tokens of a text: memory grows with them, for some models with their square.
MAX_CONTEXT = 8192
# Default limit for a language model that reads a whole text in one pass: llama.cpp allocates logits for every row.
MAX_WHOLE = 2048
# Rows of one pass where a text may be read in pieces.
CHUNK = 512
# Texts of one pass.
MAX_TEXTS = 32
# A text of fewer bytes is always tokenized before it is refused.
MIN_BYTES = 1 << 20


class EmbeddingModel:
    """A loaded model, for one thread."""

    def __init__(self, options: ModelOptions) -> None:
        keys, tensors = read_model(Path(options.path))
        causal = keys.get(f"{_text(keys['general.architecture'].data)}.attention.causal")
        self._is_causal = causal is None or bool(causal.data)
        # Without a head, a score is the first number of a hidden state: meaningless, in llama-server too.
        self.has_head = not {"cls.weight", "cls.output.weight"}.isdisjoint(tensors)

        llama_cpp.llama_backend_init()
        self._model = _load(options)
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self.n_vocab = int(llama_cpp.llama_vocab_n_tokens(self._vocab))
        self.n_ctx_train = int(llama_cpp.llama_model_n_ctx_train(self._model))
        self.n_ctx = min(self.n_ctx_train, options.n_ctx or MAX_CONTEXT)
        self._context = self._new_context(options)
        self.pooling = POOLINGS[llama_cpp.llama_pooling_type(self._context)]
        self._n_rows = int(llama_cpp.llama_n_batch(self._context))
        is_rank = self.pooling == "rank"
        self.n_embd = int(llama_cpp.llama_model_n_embd_out(self._model))
        self._width = int(llama_cpp.llama_model_n_cls_out(self._model)) if is_rank else self.n_embd
        remembers = llama_cpp.llama_model_is_recurrent(self._model) or llama_cpp.llama_model_is_hybrid(self._model)
        self._n_texts = 1 if remembers or (is_rank and not self.has_head) else MAX_TEXTS
        self._batch = llama_cpp.llama_batch_init(self._n_rows, 0, 1)
        self.n_passes = 0
        self._max_bytes = max(self.n_ctx * self._longest_piece(), MIN_BYTES)
        list(self.run([self.tokenize("a") or [0]]))  # a graph that asserts does so now
        self.n_passes = 0

    def close(self) -> None:
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._context)
        llama_cpp.llama_model_free(self._model)

    def facts(self) -> EmbeddingFacts:
        description = ctypes.create_string_buffer(256)
        llama_cpp.llama_model_desc(self._model, description, 256)
        return {
            "description": _text(description.value),
            "ftype": _text(llama_cpp.llama_ftype_name(llama_cpp.llama_model_ftype(self._model))),
            "vocab_type": int(llama_cpp.llama_vocab_type(self._vocab)),
            "pooling": self.pooling,
            "has_head": self.has_head,
            "n_ctx": self.n_ctx,
            "n_ctx_train": self.n_ctx_train,
            "n_embd": self.n_embd,
            "n_vocab": self.n_vocab,
            "n_params": int(llama_cpp.llama_model_n_params(self._model)),
            "size": int(llama_cpp.llama_model_size(self._model)),
        }

    # ---- text ----

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> Tokens:
        """Token ids. Raises ContextLengthError for a text that is too long whatever its tokens are, and RequestError
        for one that the tokenizer refuses."""
        n_bytes = len(text.encode())
        if n_bytes > self._max_bytes:
            raise ContextLengthError(f"{n_bytes} bytes are too large to process: at most {self._max_bytes} are read")
        return native.vocab_tokenize(self._vocab, text, add_special=add_special, parse_special=parse_special)

    def tokens_of(self, text: Text) -> Tokens:
        """Token ids of a string, of ids, or of a mixed list: only a leading string gets special tokens before it."""
        if isinstance(text, str):
            return self.tokenize(text)
        parts = [
            self.tokenize(part, add_special=index == 0) if isinstance(part, str) else [part]
            for index, part in enumerate(text)
        ]
        return [token for part in parts for token in part]

    def pairing(self, query: str) -> Callable[[str], Tokens]:
        """Gives the tokens of the query and a document as the model was trained to see them (format_prompt_rerank() of
        llama-server)."""
        template = llama_cpp.llama_model_chat_template(self._model, b"rerank")
        return self._plain_pairing(query) if template is None else self._template_pairing(_text(template), query)

    def _template_pairing(self, template: str, query: str) -> Callable[[str], Tokens]:
        def pair(document: str) -> Tokens:
            parts = {"{query}": query, "{document}": document}
            prompt = re.sub(r"\{query\}|\{document\}", lambda found: parts[found[0]], template)
            return self.tokenize(prompt, add_special=False)

        return pair

    def _plain_pairing(self, query: str) -> Callable[[str], Tokens]:
        bos, sep = llama_cpp.llama_vocab_bos(self._vocab), llama_cpp.llama_vocab_sep(self._vocab)
        end = llama_cpp.llama_vocab_eos(self._vocab)
        eos = [sep if end < 0 else end] if llama_cpp.llama_vocab_get_add_eos(self._vocab) else []
        before = [
            *([bos] if llama_cpp.llama_vocab_get_add_bos(self._vocab) else []),
            *self.tokenize(query, add_special=False, parse_special=False),
            *eos,
            *([sep] if llama_cpp.llama_vocab_get_add_sep(self._vocab) else []),
        ]
        return lambda document: [*before, *self.tokenize(document, add_special=False, parse_special=False), *eos]

    def _longest_piece(self) -> int:
        texts = (llama_cpp.llama_vocab_get_text(self._vocab, token) for token in range(self.n_vocab))
        return max(len(text or b"") for text in texts)

    # ---- passes ----

    def run(self, texts: Sequence[Tokens]) -> Iterator[list[tuple[int, np.ndarray]]]:
        """Compute each text's result: float32 [n_embd], or [1] with rank pooling, or [n_tokens, n_embd] without
        pooling. Yields after each pass those that it finished, with their indices; close it to stop early.

        Raises:
            ComputeError: a pass failed.
        """
        group: list[tuple[int, Tokens]] = []
        for index, tokens in enumerate(texts):
            n_rows = sum(len(other) for _, other in group) + len(tokens)
            if group and (n_rows > self._n_rows or len(group) == self._n_texts):
                yield self._together(group)
                group = []
            if len(tokens) > self._n_rows:
                yield [(index, self._in_pieces(tokens))]
            else:
                group.append((index, tokens))
        if group:
            yield self._together(group)

    def _together(self, group: list[tuple[int, Tokens]]) -> list[tuple[int, np.ndarray]]:
        self._clear()
        self._decode([(text, 0, tokens) for text, (_, tokens) in enumerate(group)])
        if self.pooling != "none":
            return [(index, self._pooled(text)) for text, (index, _) in enumerate(group)]
        starts = accumulate([len(tokens) for _, tokens in group], initial=0)
        return [(index, self._rows(start, len(tokens))) for start, (index, tokens) in zip(starts, group, strict=False)]

    def _in_pieces(self, tokens: Tokens) -> np.ndarray:
        self._clear()
        rows: list[np.ndarray] = []
        for start in range(0, len(tokens), self._n_rows):
            piece = tokens[start : start + self._n_rows]
            self._decode([(0, start, piece)])
            if self.pooling == "none":
                rows.append(self._rows(0, len(piece)))
        return np.concatenate(rows) if rows else self._pooled(0)

    def _decode(self, pieces: Sequence[tuple[int, int, Tokens]]) -> None:
        """One pass over (sequence, first position, tokens)."""
        batch, row = self._batch, 0
        for sequence, position, tokens in pieces:
            for offset, token in enumerate(tokens):
                batch.token[row], batch.pos[row] = token, position + offset
                batch.n_seq_id[row], batch.seq_id[row][0], batch.logits[row] = 1, sequence, 1
                row += 1
        batch.n_tokens = row
        self.n_passes += 1
        status = llama_cpp.llama_decode(self._context, batch)
        if status != 0:
            raise ComputeError(f"the pass failed: llama_decode() returned {status}")

    def _clear(self) -> None:
        memory = llama_cpp.llama_get_memory(self._context)
        if memory is not None:
            llama_cpp.llama_memory_clear(memory, True)

    def _pooled(self, sequence: int) -> np.ndarray:
        vector = self._copy(llama_cpp.llama_get_embeddings_seq(self._context, sequence))
        return vector[:1] if self.pooling == "rank" else vector

    def _rows(self, first: int, n: int) -> np.ndarray:
        rows = range(first, first + n)
        return np.stack([self._copy(llama_cpp.llama_get_embeddings_ith(self._context, row)) for row in rows])

    def _copy(self, pointer: Any) -> np.ndarray:
        vector = np.ctypeslib.as_array(pointer, (self._width,)).copy() if pointer else None
        if vector is None or not np.isfinite(vector).all():
            raise ComputeError("the embedding model's output is not a number: its file is damaged, or does not fit")
        return vector

    # ---- context ----

    def _new_context(self, options: ModelOptions) -> Any:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = self.n_ctx
        params.n_seq_max = MAX_TEXTS
        params.kv_unified = True
        params.embeddings = True
        params.pooling_type = -1 if options.pooling is None else POOLINGS.index(options.pooling)
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO
        params.n_threads = params.n_threads_batch = options.n_threads
        params.no_perf = True
        params.n_batch = params.n_ubatch = min(CHUNK, self.n_ctx)
        context = llama_cpp.llama_init_from_model(self._model, params)
        if context and self.n_ctx > CHUNK and not self._reads_in_pieces(context):
            remembers = llama_cpp.llama_get_memory(context) is not None
            llama_cpp.llama_free(context)
            if remembers and not options.n_ctx:
                self.n_ctx = min(self.n_ctx, MAX_WHOLE)
            params.n_ctx = params.n_batch = params.n_ubatch = self.n_ctx
            context = llama_cpp.llama_init_from_model(self._model, params)
        if not context:
            raise ModelError(f"{options.path} cannot be run; the log has llama.cpp's reason", hint="try a smaller -c")
        return context

    def _reads_in_pieces(self, context: Any) -> bool:
        """Encoders do not, nor do models that pool over all rows: they need the whole text in one pass."""
        pooling = POOLINGS[llama_cpp.llama_pooling_type(context)]
        remembers = llama_cpp.llama_get_memory(context) is not None
        return remembers and self._is_causal and pooling in ("none", "last", "rank")


def _load(options: ModelOptions) -> Any:
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = options.n_gpu_layers
    params.load_mode = llama_cpp.LLAMA_LOAD_MODE_MMAP if options.mmap else llama_cpp.LLAMA_LOAD_MODE_NONE
    model = llama_cpp.llama_model_load_from_file(options.path.encode(), params)
    if not model:
        raise ModelError(f"{options.path} cannot be loaded; the log has llama.cpp's reason")
    return model


def _text(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else raw.decode("utf-8", "replace")
