"""The machine report: models, memory, costs of passes, choices, slots, throughput."""

from __future__ import annotations

from typing import Annotated, Literal

from typing_extensions import NotRequired

from dflash_local.server.shapes.answer import Answer, about
from dflash_local.server.shapes.router import Status

MachineState = Literal["ready", "sleeping", "lost", "dead"]
Part = Literal["target", "drafter", "context", "drafter_context", "compute", "host_cache"]
Place = Literal["cpu", "gpu", "split"]


class MachineModel(Answer):
    """A model of the pair."""

    name: Annotated[str, about("alias of the target, file of the drafter, or MTP layers: the target's own")]
    arch: str
    description: NotRequired[str]
    ftype: NotRequired[Annotated[str, about("how most of its tensors are quantized")]]
    n_params: int
    size: Annotated[int, about("bytes of its tensors")]
    n_layer: NotRequired[int]
    n_embd: NotRequired[int]
    n_vocab: NotRequired[int]
    n_ctx_train: NotRequired[int]


class MachineDrafter(MachineModel):
    """The pair's drafter, and what it reads and proposes."""

    kind: Annotated[str, about("mtp: next-token layers, of the target or split off it; else a DFlash drafter's kind")]
    block_size: NotRequired[Annotated[int, about("most tokens of its block, the anchor counted")]]
    top_k: NotRequired[Annotated[int, about("candidates of each place")]]
    lattice: NotRequired[Annotated[bool, about("whether candidates have a score for each pair of neighbours")]]
    target_layers: Annotated[list[int], about("layers of the target whose inputs it reads; of MTP layers: none")]
    draft_ctx: NotRequired[Annotated[int, about("newest positions that it attends to")]]
    no_draft: NotRequired[Annotated[str, about("why it cannot draft; empty: it can")]]


class MachinePair(Answer):
    """What runs together."""

    target: MachineModel
    drafter: MachineDrafter | None
    no_tree: Annotated[str, about("why drafts are chains; empty: they are trees")]
    not_bit_exact: Annotated[str, about("why a token's logits may depend on its pass; empty: they do not")]


class Computer(Answer):
    """The computer. Bytes and cores, 0 if unknown."""

    cpu: str
    cores: int
    logical_cores: int
    memory_total: int
    memory_available: int
    system: str
    python: str
    load: Annotated[float, about("mean of a minute; -1 if unknown")]


class Device(Answer):
    """What computes: the CPU, a GPU or another backend of ggml's. Memory in bytes."""

    name: str
    type: str
    description: str
    memory_total: int
    memory_free: int


class Placement(Answer):
    """What was asked for at the start; null: the default."""

    n_threads: int | None
    n_gpu_layers: Annotated[int | None, about("layers of the target on the GPU; -1: all; null: there is none")]
    n_gpu_layers_draft: int | None


class MemoryPart(Answer):
    """Something that takes memory."""

    part: Part
    bytes: int
    on: Annotated[Place, about("where it lies; gpu: devices alone, split: partly in main memory")]


class ProcessBytes(Answer):
    """The server's process, 0 if unknown."""

    resident: int
    files: Annotated[int, about("part of it that is mapped from files")]
    peak: int


class Room(Answer):
    """Tokens of the cache that slots share."""

    size: int
    used: int


class HostCache(Answer):
    """Conversations that no slot holds any more."""

    conversations: int
    bytes: int
    limit: Annotated[int | None, about("null: none")]


class SlotMemory(Answer):
    """Memory of a slot, if its target is recurrent."""

    slot_state: NotRequired[Annotated[int, about("recurrent state of a sequence, a part of the context")]]
    slot_tape: NotRequired[Annotated[int, about("what rolls it back")]]


class Memory(SlotMemory):
    """What the engine and the process hold, in bytes; `cells` are tokens."""

    parts: Annotated[list[MemoryPart], about("what the engine allocated, or maps from the models' files")]
    process: ProcessBytes
    cells: Room | None
    host_cache: HostCache | None


class Context(Answer):
    """The context, in tokens, as it was chosen at the start."""

    n_ctx: Annotated[int, about("of all slots")]
    n_ctx_slot: Annotated[int, about("most that a slot can have")]
    shared: bool


class Costs(Answer):
    """Milliseconds of passes: measured at the start, corrected by every pass that runs."""

    source: Annotated[str, about("of those at the start: measured, cache or none")]
    verify: Annotated[dict[int, float], about("a target pass, by its rows")]
    draft: Annotated[dict[int, float], about("a drafter pass, by the tokens of its blocks")]
    other: Annotated[float, about("a step beyond its passes")]
    rebuild: Annotated[float, about("more, for a target pass of another width than the last one's")]
    cell: Annotated[float, about("more, for each cell that a row attends to")]


class Fitted(Answer):
    """max(floor_ms, rows * row_ms), fitted to `verify`."""

    floor_ms: Annotated[float | None, about("null: computing bounds every measured pass")]
    row_ms: Annotated[float | None, about("null: reading bounds every measured pass")]
    knee: Annotated[float | None, about("rows at which both take as long")]
    bytes_per_second: Annotated[float | None, about("bytes of all weights over the time of a pass of one row")]
    rows_per_second: Annotated[float | None, about("rows of the widest measured pass over its time")]


class Kernels(Answer):
    """A device that has two kernels for products with a type of weights."""

    device: str
    type: str
    rows: Annotated[int, about("fewest rows for which the matrix kernel is used")]
    tuned: Annotated[bool, about("measured here (doctor --tune)")]


class Choices(Answer):
    """What the controller chose."""

    reason: Annotated[str, about("of the last step")]
    length: Annotated[int, about("tokens of the last block")]
    resting: Annotated[bool, about("whether the drafter rests")]
    plain_rate: Annotated[float, about("tokens per second that plain decoding of one slot is expected to yield")]
    drafted_rate: Annotated[
        float, about("tokens per second of the last drafted steps, half as accepted, half as expected; 0: unknown")
    ]
    nodes: Annotated[dict[int, int], about("how often a slot's tree had that many nodes, the anchor counted")]
    lengths: Annotated[dict[int, int], about("how often a block of that many tokens was denoised")]
    reasons: Annotated[dict[str, int], about("how often each reason decided")]
    drafter_failure: str


class Totals(Answer):
    """Since the model was loaded."""

    seconds: float
    requests: Annotated[int, about("that have ended")]
    tokens: int
    prompt_tokens: Annotated[int, about("that were read, not found in a cache")]
    passes: int
    draft_tokens: int
    accepted: int


class LiveSlot(Answer):
    """A slot: what it does, or did last."""

    id: int
    state: Literal["idle", "reading", "writing"]
    n_ctx: int
    task: Annotated[int | None, about("number of its request; null, as all below: none yet")]
    held: Annotated[int | None, about("tokens that it holds")]
    prompt: Annotated[int | None, about("tokens of the prompt")]
    cached: Annotated[int | None, about("of them, found in a cache")]
    read: Annotated[int | None, about("of them, held by now")]
    tokens: Annotated[int | None, about("of the answer")]
    max_tokens: Annotated[int | None, about("most that it may have; -1: no limit")]
    tokens_per_second: Annotated[float | None, about("after the first")]
    acceptance_length: float | None


class ThroughputSecond(Answer):
    """Throughput of one second."""

    t: Annotated[int, about("its beginning, in seconds since the model was loaded")]
    tokens: Annotated[float, about("written. A step counts in each second by the share of its time")]
    prompt_tokens: float
    passes: float
    draft_tokens: float
    accepted: float
    busy: Annotated[float, about("seconds that steps took")]
    running: Annotated[int, about("most requests on slots")]
    waiting: Annotated[int, about("most requests without a slot")]


class LastSeconds(Answer):
    """Throughput. Seconds without a step are left out."""

    now: Annotated[float, about("seconds since the model was loaded")]
    kept: Annotated[int, about("how many seconds are kept")]
    running: int
    waiting: int
    seconds: list[ThroughputSecond]


class Machine(Answer):
    """The machine, and what runs on it."""

    state: MachineState
    pair: MachinePair
    computer: Computer
    devices: list[Device]
    placement: Placement
    context: Context
    memory: Memory
    costs: Costs | None
    roofline: Annotated[Fitted | None, about("null: too few passes were measured")]
    kernels: list[Kernels]
    choices: Choices | None
    phases: Annotated[dict[str, float] | None, about("milliseconds of all steps, by phase")]
    totals: Annotated[Totals | None, about("null, as throughput: --no-metrics")]
    slots: Annotated[list[LiveSlot] | None, about("null: --no-slots")]
    throughput: LastSeconds | None


class MachineStatus(Answer):
    """A model of a router."""

    id: str
    status: Status


class RouterMachine(Answer):
    """A router's machine; with `model`, that of the model's instance (Machine)."""

    role: Literal["router"]
    computer: Computer
    models: list[MachineStatus]
