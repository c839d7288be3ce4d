"""What a server tells of its machine: models, memory, costs of passes, choices, slots, throughput."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dflash_local.server.answers.answer import Answer


class MachineModel(Answer):
    """A model of the pair."""

    name: str = Field(description="alias of the target, file of the drafter")
    arch: str
    description: str | None = None
    ftype: str | None = Field(None, description="how most of its tensors are quantized")
    n_params: int
    size: int = Field(description="bytes of its tensors")
    n_layer: int | None = None
    n_embd: int | None = None
    n_vocab: int | None = None
    n_ctx_train: int | None = None


class MachineDrafter(MachineModel):
    """The drafter."""

    kind: str
    block_size: int | None = Field(None, description="tokens of its block, the anchor counted")
    top_k: int | None = Field(None, description="candidates of each place")
    lattice: bool | None = Field(None, description="whether candidates have a score for each pair of neighbours")
    target_layers: list[int] = Field(description="layers of the target whose inputs it reads")
    draft_ctx: int | None = Field(None, description="newest positions that it attends to")
    no_draft: str = Field("", description="why it cannot draft; empty: it can")


class MachinePair(Answer):
    """What runs together."""

    target: MachineModel
    drafter: MachineDrafter | None
    no_tree: str = Field(description="why drafts are chains; empty: they are trees")
    not_bit_exact: str = Field(description="why a token's logits may depend on its pass; empty: they do not")


class Computer(Answer):
    """The computer. Bytes and cores, 0 if unknown."""

    cpu: str
    cores: int
    logical_cores: int
    memory_total: int
    memory_available: int
    system: str
    python: str
    load: float = Field(description="mean of a minute; -1 if unknown")


class Device(Answer):
    """What computes."""

    name: str
    type: str
    description: str
    memory_total: int
    memory_free: int


class Placement(Answer):
    """What was asked for at the start; null: the default."""

    n_threads: int | None
    n_gpu_layers: int | None = Field(description="layers of the target on the GPU; -1: all; null: there is none")
    n_gpu_layers_draft: int | None


class MemoryPart(Answer):
    """Something that takes memory."""

    part: Literal["target", "drafter", "context", "drafter_context", "compute", "host_cache"]
    bytes: int
    on: Literal["cpu", "gpu", "split"] = Field(description="where it lies")


class ProcessBytes(Answer):
    """The server's process, 0 if unknown."""

    resident: int
    files: int = Field(description="of it, mapped from files")
    peak: int


class Room(Answer):
    """Tokens of the cache that slots share."""

    size: int
    used: int


class HostCache(Answer):
    """Conversations that no slot holds any more."""

    conversations: int
    bytes: int
    limit: int | None = Field(description="null: none")


class Memory(Answer):
    """Bytes."""

    parts: list[MemoryPart] = Field(description="what the engine allocated, or maps from the models' files")
    process: ProcessBytes
    cells: Room | None
    host_cache: HostCache | None
    slot_state: int | None = Field(None, description="recurrent state of a sequence, a part of the context")
    slot_tape: int | None = Field(None, description="what rolls it back")


class Context(Answer):
    """Tokens."""

    n_ctx: int = Field(description="of all slots")
    n_ctx_slot: int = Field(description="most of a slot")
    shared: bool


class Costs(Answer):
    """Milliseconds of passes: measured at the start, corrected by every pass that runs."""

    source: str = Field(description="of those at the start: measured, cache or none")
    verify: dict[int, float] = Field(description="a target pass, by its rows")
    draft: dict[int, float] = Field(description="a drafter pass, by the tokens of its blocks")
    other: float = Field(description="a step beyond its passes")
    rebuild: float = Field(description="more, for a target pass of another width than the last one's")
    cell: float = Field(description="more, for each cell that a row attends to")


class Fitted(Answer):
    """max(floor_ms, rows * row_ms), fitted to `verify`."""

    floor_ms: float | None = Field(description="null: computing bounds every measured pass")
    row_ms: float | None = Field(description="null: reading bounds every measured pass")
    knee: float | None = Field(description="rows at which both take as long")
    bytes_per_second: float | None = Field(description="bytes of all weights over the time of a pass of one row")
    rows_per_second: float | None = Field(description="rows of the widest measured pass over its time")


class Kernels(Answer):
    """Of a device with two kernels for products with a type of weights."""

    device: str
    type: str
    rows: int = Field(description="from so many rows on its matrix kernel serves")
    tuned: bool = Field(description="measured here (doctor --tune)")


class Choices(Answer):
    """What the controller chose."""

    reason: str = Field(description="of the last step")
    length: int = Field(description="tokens of the last block")
    resting: bool = Field(description="whether the drafter rests")
    plain_rate: float = Field(description="tokens per second that plain decoding of one slot is expected to yield")
    drafted_rate: float = Field(description="tokens per second that drafted steps are expected to yield; 0: unknown")
    nodes: dict[int, int] = Field(description="how often a slot's tree had so many nodes, the anchor counted")
    lengths: dict[int, int] = Field(description="how often a block of so many tokens was denoised")
    reasons: dict[str, int] = Field(description="how often for which reason")
    drafter_failure: str


class Totals(Answer):
    """Since the model was loaded."""

    seconds: float
    requests: int = Field(description="that have ended")
    tokens: int
    prompt_tokens: int = Field(description="that were read, not found in a cache")
    passes: int
    draft_tokens: int
    accepted: int


class LiveSlot(Answer):
    """A slot; what it does, or did last."""

    id: int
    state: Literal["idle", "reading", "writing"]
    n_ctx: int
    task: int | None = Field(description="number of its request; null, as all below: none yet")
    held: int | None = Field(description="tokens that it holds")
    prompt: int | None = Field(description="tokens of the prompt")
    cached: int | None = Field(description="of them, found in a cache")
    read: int | None = Field(description="of them, held by now")
    tokens: int | None = Field(description="of the answer")
    max_tokens: int | None = Field(description="it may have; -1: no limit")
    tokens_per_second: float | None = Field(description="after the first")
    acceptance_length: float | None


class ThroughputSecond(Answer):
    """What a second brought."""

    t: int = Field(description="it began so many seconds after the model was loaded")
    tokens: float = Field(description="written. A step counts in each second by the share of its time")
    prompt_tokens: float
    passes: float
    draft_tokens: float
    accepted: float
    busy: float = Field(description="seconds that steps took")
    running: int = Field(description="most requests on slots")
    waiting: int = Field(description="most requests without a slot")


class LastSeconds(Answer):
    """Throughput. Seconds without a step are left out."""

    now: float = Field(description="seconds since the model was loaded")
    kept: int = Field(description="so many seconds are remembered")
    running: int
    waiting: int
    seconds: list[ThroughputSecond]


class Machine(Answer):
    """The machine, and what runs on it."""

    state: Literal["ready", "sleeping", "lost", "dead"]
    pair: MachinePair
    computer: Computer
    devices: list[Device]
    placement: Placement
    context: Context
    memory: Memory
    costs: Costs | None
    roofline: Fitted | None = Field(description="null: too few passes were measured")
    kernels: list[Kernels]
    choices: Choices | None
    phases: dict[str, float] | None = Field(description="milliseconds of all steps, by phase")
    totals: Totals | None = Field(description="null, as throughput: --no-metrics")
    slots: list[LiveSlot] | None = Field(description="null: --no-slots")
    throughput: LastSeconds | None


class MachineStatus(Answer):
    """A model of a router."""

    id: str
    status: Literal["unloaded", "loading", "loaded", "sleeping"]


class RouterMachine(Answer):
    """A router's machine; with `model`, that of the model's instance (Machine)."""

    role: Literal["router"]
    computer: Computer
    models: list[MachineStatus]
