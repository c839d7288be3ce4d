// Turn: one message of a conversation. A conversation's turns form a tree: an edited question or a second answer is a
// sibling of the first.

import type { DraftingAnswer, TimingsAnswer } from "../server/answers";

export interface TextFile {
  name: string;
  text: string;
}

/** What a medium is sent as. */
export const MEDIUM_TYPES = ["image/jpeg", "image/png", "audio/wav", "audio/mpeg"] as const;

/** A picture or a piece of audio; the library has its bytes. */
export interface Medium {
  id: string;
  name: string;
  type: (typeof MEDIUM_TYPES)[number];
  /** Bytes. */
  size: number;
  /** Of a picture, in pixels. */
  width?: number;
  height?: number;
}

export type Attachment = TextFile | Medium;

export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

/** The part of llama-server's `timings` that is shown. Turns from old versions lack `cache_n`. */
export type Timings = Pick<
  TimingsAnswer,
  "prompt_n" | "prompt_ms" | "predicted_n" | "predicted_ms" | "predicted_per_second"
> &
  Partial<Pick<TimingsAnswer, "cache_n">>;

/** What drafting did (docs/serving.md, "What an answer says"). */
export type Drafting = Pick<DraftingAnswer, "acceptance_length"> & Partial<DraftingAnswer>;

/** What a repeat of its request needs, besides the turns before it. */
export interface Asked {
  fields: Record<string, unknown>;
  system: string;
  model: string;
}

/** What plain decoding answered to the same request. */
export interface Proof {
  isSame: boolean;
  tokens: number;
  draftedMs: number;
  plainMs: number;
}

export interface Turn {
  id: string;
  conversation: string;
  parent: string | null;
  created: number;
  role: "user" | "assistant" | "tool";
  content: string;
  reasoning: string;
  files: Attachment[];
  toolCalls: ToolCall[];
  /** Which call this is the result of. */
  toolCallId: string | null;
  state: "running" | "done" | "stopped" | "failed";
  error: string;
  finish: string;
  /** Bytes of its stream that it contains. */
  offset: number;
  timings: Timings | null;
  drafting: Drafting | null;
  thoughtMs: number;
  /** Whether the library has its passes. */
  hasPasses: boolean;
  asked: Asked | null;
  proof: Proof | null;
}

export type Given = Partial<Turn> & Pick<Turn, "conversation" | "parent" | "role">;

export function newTurn(given: Given): Turn {
  return {
    id: newId(),
    created: Date.now(),
    content: "",
    reasoning: "",
    files: [],
    toolCalls: [],
    toolCallId: null,
    state: "done",
    error: "",
    finish: "",
    offset: 0,
    timings: null,
    drafting: null,
    thoughtMs: 0,
    hasPasses: false,
    asked: null,
    proof: null,
    ...given,
  };
}

/** The same turn as two tabs have it: the longer text, and its end if one of them knows it. Equal ones are `turn`. */
export function furthest(turn: Turn, other: Turn | undefined): Turn {
  if (!other) return turn;
  if (other.conversation !== turn.conversation) return other; // an imported file may name any turn
  const longer = isBehind(turn, other) ? other : turn;
  const { state, error } = [longer, turn, other].find(hasEnded) ?? longer;
  return { ...longer, state, error };
}

/** Whether another tab has more of this turn. */
export function isBehind(turn: Turn | undefined, other: Turn | undefined): boolean {
  return (turn?.offset ?? 0) < (other?.offset ?? 0);
}

/** A failure is no end: another tab may have the rest. */
function hasEnded({ state }: Turn): boolean {
  return state === "done" || state === "stopped";
}

export function isMedium(file: Attachment): file is Medium {
  return "type" in file;
}

export function isTextFile(file: Attachment): file is TextFile {
  return !isMedium(file);
}

export function isPicture(medium: Medium): boolean {
  return medium.type.startsWith("image/");
}

/** 128 random bits. crypto.randomUUID() is missing where the page comes over plain HTTP from another machine. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
