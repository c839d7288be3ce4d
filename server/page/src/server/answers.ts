// What the server answers. Written by tests/page/answer_shapes.py; server/answers/ explains the fields.

/** More of call number `index`. */
export interface CallDelta {
  index: number;
  id?: string;
  type?: "function";
  function?: FunctionDelta;
}

/** An event of a streamed chat completion; the stream ends with `data: [DONE]`. */
export interface ChatCompletionChunk {
  id: string;
  created: number;
  model: string;
  system_fingerprint: string;
  __verbose?: NativeCompletion;
  usage?: Usage;
  timings?: TimingsAnswer;
  dflash?: DraftingAnswer;
  prompt_progress?: ProgressAnswer;
  object: "chat.completion.chunk";
  choices: ChatDeltaChoice[];
}

/** More of one of the answers. */
export interface ChatDeltaChoice {
  index: number;
  delta: Delta;
  finish_reason: "stop" | "length" | "tool_calls" | "cancelled" | null;
  logprobs?: ChatLogprobs;
}

/** The tokens of a chat's answer, or of one of its events. */
export interface ChatLogprobs {
  content: TokenAnswer[];
  refusal: null;
}

/** What the controller chose. */
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

/** Details of the answer's tokens. */
export interface CompletionTokens {
  reasoning_tokens?: number;
  accepted_prediction_tokens?: number;
  rejected_prediction_tokens?: number;
}

/** The computer. Bytes and cores, 0 if unknown. */
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

/** Tokens. */
export interface Context {
  n_ctx: number;
  n_ctx_slot: number;
  shared: boolean;
}

/** Milliseconds of passes: measured at the start, corrected by every pass that runs. */
export interface Costs {
  source: string;
  verify: Record<string, number>;
  draft: Record<string, number>;
  other: number;
  rebuild: number;
  cell: number;
}

/** Defaults of requests. */
export interface DefaultSettings {
  params: Record<string, unknown>;
  n_ctx: number;
}

/** More of the message. */
export interface Delta {
  role?: "assistant";
  content?: string | null;
  reasoning_content?: string;
  tool_calls?: CallDelta[];
}

/** What computes. */
export interface Device {
  name: string;
  type: string;
  description: string;
  memory_total: number;
  memory_free: number;
}

/** What drafting did. */
export interface DraftingAnswer {
  pass?: PassAnswer;
  acceptance_length: number | null;
  passes_n: number;
  plain_n: number;
  nodes_mean: number | null;
  depth_mean: number | null;
  denoised_mean: number | null;
  lookup_n: number;
  lookup_n_accepted: number;
  reason: string;
  passes?: PassAnswer[];
}

/** An answer to a request that failed. */
export interface ErrorAnswer {
  error: ErrorDetail;
  progress?: number;
}

/** What went wrong. */
export interface ErrorDetail {
  message: string;
  type: string;
  param: string | null;
  code: string | null;
  n_prompt_tokens?: number;
  n_ctx?: number;
}

/** max(floor_ms, rows * row_ms), fitted to `verify`. */
export interface Fitted {
  floor_ms: number | null;
  row_ms: number | null;
  knee: number | null;
  bytes_per_second: number | null;
  rows_per_second: number | null;
}

/** More of a call. */
export interface FunctionDelta {
  name?: string;
  arguments?: string;
}

/** All is well. */
export interface Health {
  status: "ok";
}

/** Conversations that no slot holds any more. */
export interface HostCache {
  conversations: number;
  bytes: number;
  limit: number | null;
}

/** A device that has two kernels for products with a type of weights. */
export interface Kernels {
  device: string;
  type: string;
  rows: number;
  tuned: boolean;
}

/** Throughput. Seconds without a step are left out. */
export interface LastSeconds {
  now: number;
  kept: number;
  running: number;
  waiting: number;
  seconds: ThroughputSecond[];
}

/** A candidate. */
export interface LikelyToken {
  id: number;
  token: string;
  bytes: number[];
  logprob?: number;
  prob?: number;
}

/** A slot: what it does, or did last. */
export interface LiveSlot {
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

/** The machine, and what runs on it. */
export interface Machine {
  state: "ready" | "sleeping" | "lost" | "dead";
  pair: MachinePair;
  computer: Computer;
  devices: Device[];
  placement: Placement;
  context: Context;
  memory: Memory;
  costs: Costs | null;
  roofline: Fitted | null;
  kernels: Kernels[];
  choices: Choices | null;
  phases: Record<string, number> | null;
  totals: Totals | null;
  slots: LiveSlot[] | null;
  throughput: LastSeconds | null;
}

/** The drafter. */
export interface MachineDrafter {
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
  kind: string;
  block_size?: number;
  top_k?: number;
  lattice?: boolean;
  target_layers: number[];
  draft_ctx?: number;
  no_draft?: string;
}

/** A model of the pair. */
export interface MachineModel {
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

/** What runs together. */
export interface MachinePair {
  target: MachineModel;
  drafter: MachineDrafter | null;
  no_tree: string;
  not_bit_exact: string;
}

/** A model of a router. */
export interface MachineStatus {
  id: string;
  status: "unloaded" | "loading" | "loaded" | "sleeping";
}

/** Bytes. */
export interface Memory {
  slot_state?: number;
  slot_tape?: number;
  parts: MemoryPart[];
  process: ProcessBytes;
  cells: Room | null;
  host_cache: HostCache | null;
}

/** Something that takes memory. */
export interface MemoryPart {
  part: "target" | "drafter" | "context" | "drafter_context" | "compute" | "host_cache";
  bytes: number;
  on: "cpu" | "gpu" | "split";
}

/** The state of a model. */
export interface ModelStatus {
  value: "unloaded" | "loading" | "loaded" | "sleeping";
  args: string[];
  preset?: string;
  progress?: number;
  failed?: boolean;
  exit_code?: number;
  error?: string;
}

/** A completion. As the last event of a stream, its `content` and `tokens` are empty. */
export interface NativeCompletion {
  timings: TimingsAnswer;
  dflash: DraftingAnswer;
  index: number;
  content: string;
  tokens: number[];
  id_slot: number;
  stop: true;
  model: string;
  tokens_predicted: number;
  tokens_evaluated: number;
  tokens_cached: number;
  generation_settings: Record<string, unknown>;
  prompt: string;
  has_new_line: boolean;
  truncated: boolean;
  stop_type: "word" | "eos" | "limit";
  stopping_word: string;
  completion_probabilities?: TokenAnswer[];
}

/** A node of a verified tree. */
export interface NodeAnswer {
  t: string;
  p: number;
  prob: number | null;
  value: number;
  by: "target" | "draft" | "lookup" | "prediction";
}

/** A target pass: what it verified, and what the answer got from it. */
export interface PassAnswer {
  pass: number;
  choice: number;
  nodes: number;
  depth: number;
  denoised: number;
  accepted: number;
  reason: string;
  draft_ms: number;
  verify_ms: number;
  plain_ms: number;
  tokens: string[];
  tree: NodeAnswer[];
  path: number[];
}

/** What was asked for at the start; null: the default. */
export interface Placement {
  n_threads: number | null;
  n_gpu_layers: number | null;
  n_gpu_layers_draft: number | null;
}

/** The server's process, 0 if unknown. */
export interface ProcessBytes {
  resident: number;
  files: number;
  peak: number;
}

/** How much of a prompt has been read. */
export interface ProgressAnswer {
  total: number;
  cache: number;
  processed: number;
  time_ms: number;
}

/** Details of the prompt's tokens. */
export interface PromptTokens {
  cached_tokens: number;
}

/** llama-server's properties. */
export interface Props {
  modalities: Record<string, boolean>;
  media_marker: string;
  endpoint_slots: boolean;
  endpoint_props: boolean;
  endpoint_metrics: boolean;
  ui: boolean;
  ui_settings: Record<string, unknown>;
  build_info: string;
  is_sleeping: boolean;
  cors_proxy_enabled: boolean;
  total_slots: number;
  model_alias: string;
  model_path: string;
  default_generation_settings?: DefaultSettings;
  model_ftype?: string | null;
  chat_template?: string;
  chat_template_caps?: Record<string, boolean>;
  bos_token?: string;
  eos_token?: string;
  dflash?: Record<string, unknown>;
}

/** Tokens of the cache that slots share. */
export interface Room {
  size: number;
  used: number;
}

/** A router's machine; with `model`, that of the model's instance (Machine). */
export interface RouterMachine {
  role: "router";
  computer: Computer;
  models: MachineStatus[];
}

/** A model that can be asked for. */
export interface RouterModel {
  id: string;
  object: "model";
  created: number;
  owned_by: string;
  aliases: string[];
  tags: string[];
  status: ModelStatus;
  architecture: Record<string, string[]>;
  source: "cache" | "models_dir" | "preset";
  can_remove: boolean;
  meta?: Record<string, unknown>;
}

/** All models. */
export interface RouterModels {
  object: "list";
  data: RouterModel[];
}

/** The router's properties, in llama-server's terms. */
export interface RouterProps {
  role: "router";
  max_instances: number;
  models_autoload: boolean;
  model_alias: string;
  model_path: string;
  default_generation_settings: Record<string, unknown>;
  ui_settings: Record<string, unknown>;
  build_info: string;
  cors_proxy_enabled: boolean;
}

/** Throughput of one second. */
export interface ThroughputSecond {
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

/** llama-server's `timings`. */
export interface TimingsAnswer {
  cache_n: number;
  prompt_n: number;
  prompt_ms: number;
  prompt_per_token_ms: number;
  prompt_per_second: number;
  predicted_n: number;
  predicted_ms: number;
  predicted_per_token_ms: number;
  predicted_per_second: number;
  draft_n: number;
  draft_n_accepted: number;
}

/** A token of the answer. */
export interface TokenAnswer {
  id: number;
  token: string;
  bytes: number[];
  logprob?: number;
  prob?: number;
  top_logprobs?: LikelyToken[];
  top_probs?: LikelyToken[];
}

/** Since the model was loaded. */
export interface Totals {
  seconds: number;
  requests: number;
  tokens: number;
  prompt_tokens: number;
  passes: number;
  draft_tokens: number;
  accepted: number;
}

/** OpenAI's `usage`: each prompt counts once, however many choices it has. */
export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details: PromptTokens;
  completion_tokens_details?: CompletionTokens;
}
