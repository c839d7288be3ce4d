// What the server tells of its machine: the answer of GET /machine (server/answers/machine.py explains each field).

export interface Model {
  name: string;
  arch: string;
  description?: string;
  ftype?: string;
  n_params: number;
  size: number;
  n_layer?: number;
  n_embd?: number;
  n_vocab?: number;
  n_ctx_train?: number;
}

export interface Drafter extends Model {
  kind: string;
  block_size?: number;
  top_k?: number;
  lattice?: boolean;
  target_layers: number[];
  draft_ctx?: number;
  no_draft?: string;
}

export interface Computer {
  cpu: string;
  cores: number;
  logical_cores: number;
  memory_total: number;
  memory_available: number;
  system: string;
  python: string;
  load: number;
}

export interface Device {
  name: string;
  type: string;
  description: string;
  memory_total: number;
  memory_free: number;
}

export type Part = "target" | "drafter" | "context" | "drafter_context" | "compute" | "host_cache";

export interface Memory {
  parts: { part: Part; bytes: number; on: "cpu" | "gpu" | "split" }[];
  process: { resident: number; files: number; peak: number };
  cells: { size: number; used: number } | null;
  host_cache: { conversations: number; bytes: number; limit: number | null } | null;
  slot_state?: number;
  slot_tape?: number;
}

export interface Costs {
  source: string;
  verify: Record<string, number>;
  draft: Record<string, number>;
  other: number;
  rebuild: number;
  cell: number;
}

export interface Roofline {
  floor_ms: number | null;
  row_ms: number | null;
  knee: number | null;
  bytes_per_second: number | null;
  rows_per_second: number | null;
}

export interface Choices {
  reason: string;
  length: number;
  resting: boolean;
  plain_rate: number;
  drafted_rate: number;
  nodes: Record<string, number>;
  lengths: Record<string, number>;
  reasons: Record<string, number>;
  drafter_failure: string;
}

export interface Totals {
  seconds: number;
  requests: number;
  tokens: number;
  prompt_tokens: number;
  passes: number;
  draft_tokens: number;
  accepted: number;
}

export interface Slot {
  id: number;
  state: "idle" | "reading" | "writing";
  n_ctx: number;
  task: number | null;
  held: number | null;
  prompt: number | null;
  cached: number | null;
  read: number | null;
  tokens: number | null;
  max_tokens: number | null;
  tokens_per_second: number | null;
  acceptance_length: number | null;
}

/** What a second brought; `t` is its beginning, in seconds after the model was loaded. */
export interface Second {
  t: number;
  tokens: number;
  prompt_tokens: number;
  passes: number;
  draft_tokens: number;
  accepted: number;
  busy: number;
  running: number;
  waiting: number;
}

export interface LastSeconds {
  now: number;
  kept: number;
  running: number;
  waiting: number;
  seconds: Second[];
}

export interface Machine {
  state: "ready" | "sleeping" | "lost" | "dead";
  pair: { target: Model; drafter: Drafter | null; no_tree: string; not_bit_exact: string };
  computer: Computer;
  devices: Device[];
  placement: { n_threads: number | null; n_gpu_layers: number | null; n_gpu_layers_draft: number | null };
  context: { n_ctx: number; n_ctx_slot: number; shared: boolean };
  memory: Memory;
  costs: Costs | null;
  roofline: Roofline | null;
  kernels: { device: string; type: string; rows: number; tuned: boolean }[];
  choices: Choices | null;
  phases: Record<string, number> | null;
  totals: Totals | null;
  slots: Slot[] | null;
  throughput: LastSeconds | null;
}

/** What a router tells of itself. */
export interface RouterMachine {
  role: "router";
  computer: Computer;
  models: { id: string; status: string }[];
}

/** Counts or times by a number, in its order. */
export function byNumber(values: Record<string, number>): [number, number][] {
  return Object.entries(values)
    .map(([key, value]): [number, number] => [Number(key), value])
    .sort(([a], [b]) => a - b);
}
