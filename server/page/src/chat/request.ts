// The request that continues a conversation.

import { chosen } from "../server/models";
import { chosenFields, GROUPS, RANDOM_SEED, showsDrafts, systemMessage } from "../settings/settings";
import { toDataUrl } from "./media";
import { type Asked, isMedium, isPicture, isTextFile, type Medium, type TextFile, type Turn } from "./turn";

type Part =
  | { type: "text"; text: string }
  | { type: "image_url"; image_url: { url: string } }
  | { type: "input_audio"; input_audio: { data: string; format: "wav" | "mp3" } };

interface Message {
  role: string;
  content: string | Part[];
  reasoning_content?: string;
  tool_calls?: { id: string; type: "function"; function: { name: string; arguments: string } }[];
  tool_call_id?: string;
}

/** What the settings ask for now. An answer whose drafts are shown needs a known seed for its proof. */
export function askedNow(): Asked {
  const fields = chosenFields();
  if (showsDrafts.value) {
    fields["return_drafts"] = true;
    if (!isKnownSeed(fields["seed"])) fields["seed"] = newSeed();
  }
  return { fields, system: systemMessage(), model: chosen.value };
}

/** The same without drafts. */
export function askedPlain({ fields, ...others }: Asked): Asked {
  const drafting = new Set(GROUPS.find((group) => group.title === "Drafting")!.names);
  const kept = Object.entries(fields).filter(([name]) => !drafting.has(name));
  return { ...others, fields: { ...Object.fromEntries(kept), draft: "off" } };
}

/** Reads a medium of a conversation. */
export type ReadMedium = (conversation: string, medium: Medium) => Promise<ArrayBuffer>;

/** The body of a chat request for the turns of a path. Throws an Error if a medium is gone. */
export async function chatRequest(
  path: Turn[],
  { fields, system, model }: Asked,
  read: ReadMedium,
): Promise<Record<string, unknown>> {
  const messages = (await Promise.all(path.map((turn) => messagesOf(turn, read)))).flat().reduce(joinQuestions, []);
  return {
    ...fields,
    ...(model && { model }),
    messages: system ? [{ role: "system", content: system }, ...messages] : messages,
    stream: true,
    return_progress: true,
    timings_per_token: true,
  };
}

/** 31 random bits. */
function newSeed(): number {
  return crypto.getRandomValues(new Uint32Array(1))[0]! >>> 1;
}

/** -1, and llama.cpp's LLAMA_DEFAULT_SEED, mean a random one, which the server does not report. */
export function isKnownSeed(seed: unknown): boolean {
  return typeof seed === "number" && seed >= 0 && seed !== RANDOM_SEED;
}

/** One, or none. */
async function messagesOf(turn: Turn, read: ReadMedium): Promise<Message[]> {
  if (turn.role === "user") return [{ role: "user", content: await contentOf(turn, read) }];
  if (turn.role === "tool") return [{ role: "tool", content: turn.content, tool_call_id: turn.toolCallId ?? "" }];
  // An answer that failed, or was stopped, at once is empty.
  if (!turn.content && !turn.reasoning && !turn.toolCalls.length) return [];
  const message: Message = { role: "assistant", content: turn.content };
  if (turn.reasoning) message.reasoning_content = turn.reasoning;
  if (turn.toolCalls.length) {
    message.tool_calls = turn.toolCalls.map(({ id, name, arguments: text }) => ({
      id,
      type: "function",
      function: { name, arguments: text },
    }));
  }
  return [message];
}

/** Many chat templates want turns to alternate: a question that got no answer goes with the next one. */
function joinQuestions(messages: Message[], next: Message): Message[] {
  const last = messages.at(-1);
  if (last?.role !== "user" || next.role !== "user") return [...messages, next];
  return [...messages.slice(0, -1), { role: "user", content: joined(last.content, next.content) }];
}

function joined(first: string | Part[], second: string | Part[]): string | Part[] {
  if (typeof first === "string" && typeof second === "string") return `${first}\n\n${second}`;
  return [...partsOf(first), ...partsOf(second)];
}

function partsOf(content: string | Part[]): Part[] {
  return typeof content === "string" ? [{ type: "text", text: content }] : content;
}

/** The text alone, or after the media. */
async function contentOf({ conversation, content, files }: Turn, read: ReadMedium): Promise<string | Part[]> {
  const text = withFiles(content, files.filter(isTextFile));
  const media = files.filter(isMedium);
  if (!media.length) return text;
  const parts = await Promise.all(media.map(async (medium) => partOf(medium, await read(conversation, medium))));
  return text ? [...parts, ...partsOf(text)] : parts;
}

async function partOf(medium: Medium, bytes: ArrayBuffer): Promise<Part> {
  const url = await toDataUrl(medium, bytes);
  if (isPicture(medium)) return { type: "image_url", image_url: { url } };
  const format = medium.type === "audio/wav" ? "wav" : "mp3";
  return { type: "input_audio", input_audio: { data: url.slice(url.indexOf(",") + 1), format } };
}

/** The text with its files before it, each in a fence that is longer than any within it. */
export function withFiles(text: string, files: TextFile[]): string {
  const blocks = files.map(({ name, text: content }) => {
    const longest = Math.max(2, ...(content.match(/`{3,}/g) ?? []).map((run) => run.length));
    const fence = "`".repeat(longest + 1);
    return `File ${name}:\n${fence}\n${content}${content.endsWith("\n") ? "" : "\n"}${fence}`;
  });
  return [...blocks, text].filter(Boolean).join("\n\n");
}
