// Import of conversations from a file that toJson() wrote.

import { Conversation } from "./conversation";
import { fromDataUrl } from "./media";
import { type Exported, FORMAT, HEAD, TAIL } from "./transfer";
import {
  type Attachment, type Drafting, isPicture, type Medium, MEDIUM_TYPES, newId, newTurn, type TextFile, type Timings,
  type Turn,
} from "./turn";

export interface Imported {
  conversation: Conversation;
  /** The bytes of its pictures and audio. */
  media: ReadonlyMap<Attachment, ArrayBuffer>;
}

/** The conversations of a file, one at a time: all of it may be longer than any string can be. Throws an Error that
 * says what is wrong with it. */
export async function* conversationsOf(file: Blob): AsyncGenerator<Imported> {
  const lines = linesOf(file);
  const { value: head } = await lines.next();
  if (head !== HEAD) return yield* conversationsIn(await file.text()); // written by another program
  let open: string[] = [];
  for await (const line of lines) {
    if (!open.length && line === TAIL) return;
    const isEnd = line === "}" || line === "},";
    open.push(isEnd ? "}" : line);
    if (!isEnd) continue;
    yield readConversation(parsed(open.join("\n")) as Partial<Exported>);
    open = [];
  }
  throw new Error("the end of this file is missing");
}

function* conversationsIn(text: string): Generator<Imported> {
  const file = parsed(text) as { format?: unknown; conversations?: unknown };
  if (file?.format !== FORMAT || !Array.isArray(file.conversations)) {
    throw new Error("this file has no conversations of dflash-local");
  }
  yield* file.conversations.map(readConversation);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("this file is no JSON");
  }
}

/** A reader is used, as not all browsers can iterate over streams. */
async function* linesOf(file: Blob): AsyncGenerator<string> {
  const reader = file.stream().pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>).getReader();
  let open = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const [rest = "", ...lines] = value.split("\n");
      open += rest;
      for (const line of lines) {
        yield open;
        open = line;
      }
    }
    if (open) yield open;
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function readConversation(given: Partial<Exported>): Imported {
  if (typeof given?.id !== "string" || !Array.isArray(given.turns)) throw new Error("a conversation is incomplete");
  const { id, title, created, changed, leaf } = given;
  const record = {
    id,
    title: String(title ?? ""),
    created: Number(created) || 0,
    changed: Number(changed) || 0,
    leaf: typeof leaf === "string" ? leaf : null,
  };
  const media = new Map<Attachment, ArrayBuffer>();
  const read = fileReader(media);
  return { conversation: Conversation.of(record, given.turns.map((turn) => readTurn(turn, id, read))), media };
}

function readTurn(given: Partial<Exported["turns"][number]>, conversation: string, read: ReadFile): Turn {
  const { id, role } = given ?? {};
  if (typeof id !== "string" || !["user", "assistant", "tool"].includes(String(role))) {
    throw new Error("a turn is incomplete");
  }
  const listOf = (list: unknown) => (Array.isArray(list) ? list : []);
  return newTurn({
    id,
    conversation,
    role: role!,
    parent: typeof given.parent === "string" ? given.parent : null,
    created: Number(given.created) || 0,
    content: String(given.content ?? ""),
    reasoning: String(given.reasoning ?? ""),
    files: listOf(given.files).map(read),
    toolCalls: listOf(given.toolCalls).map((call) => ({
      id: String(call.id),
      name: String(call.name),
      arguments: String(call.arguments),
    })),
    toolCallId: typeof given.toolCallId === "string" ? given.toolCallId : null,
    // Its stream is not here.
    state: given.state === "failed" || given.state === "done" ? given.state : "stopped",
    error: String(given.error ?? ""),
    finish: String(given.finish ?? ""),
    timings: readTimings(given.timings),
    drafting: readDrafting(given.drafting),
    thoughtMs: Number(given.thoughtMs) || 0,
  });
}

const TIMINGS = ["prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "predicted_per_second"];

/** null: some are missing. */
function readTimings(given: unknown): Timings | null {
  const found = figuresIn(given);
  return TIMINGS.every((name) => name in found) ? (found as unknown as Timings) : null;
}

function readDrafting(given: unknown): Drafting | null {
  const found = figuresIn(given);
  const reason = String(Object(given).reason ?? "");
  return "acceptance_length" in found ? ({ ...found, reason } as unknown as Drafting) : null;
}

/** The entries of anything that are numbers. */
function figuresIn(given: unknown): Record<string, number> {
  const entries = Object.entries(Object(given) as Record<string, number>);
  return Object.fromEntries(entries.filter(([, value]) => Number.isFinite(value)));
}

type ReadFile = (given: Partial<TextFile & Medium & { data: unknown }>) => Attachment;

/** Reads the files of one conversation, whose media get new ids, and puts their bytes into `media`. */
function fileReader(media: Map<Attachment, ArrayBuffer>): ReadFile {
  const known = new Map<unknown, Medium>();
  return (given) => {
    const name = String(given?.name);
    const type = MEDIUM_TYPES.find((one) => one === given?.type);
    if (!type) return { name, text: String(given?.text) };
    const [size, width, height] = [given.size, given.width, given.height].map((number) => Number(number) || 1);
    const medium = known.get(given.id) ?? { id: newId(), name, type, size: size! };
    if (isPicture(medium)) Object.assign(medium, { width, height });
    if (typeof given.data === "string") media.set(medium, fromDataUrl(given.data));
    known.set(given.id, medium);
    return medium;
  };
}
