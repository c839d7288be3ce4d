// Export and import of conversations.

import { Conversation, type ConversationRecord } from "./conversation";
import { fromDataUrl, toDataUrl } from "./media";
import type { ReadMedium } from "./request";
import {
  type Attachment, isMedium, isPicture, type Medium, MEDIUM_TYPES, newId, newTurn, type TextFile, type Turn,
} from "./turn";

const FORMAT = "dflash-local conversations";

/** The first of a conversation that names a medium has its bytes, as a data URL. */
type ExportedFile = Attachment & { data?: string };

interface Exported extends ConversationRecord {
  turns: (Omit<Turn, "files"> & { files: ExportedFile[] })[];
}

/** Everything in these conversations, as JSON: in parts, as pictures may make it longer than any string can be. */
export async function toJson(conversations: Conversation[], read: ReadMedium): Promise<Blob> {
  const parts = [`{"format": "${FORMAT}", "version": 1, "conversations": [`];
  for (const { record, turns } of conversations) {
    const told = new Set<string>();
    const written = [...turns.values()].map((turn) => exportTurn(turn, told, read));
    const exported: Exported = { ...record, turns: await Promise.all(written) };
    parts.push(parts.length > 1 ? ",\n" : "\n", JSON.stringify(exported, null, 1));
  }
  return new Blob([...parts, "\n]}\n"], { type: "application/json" });
}

async function exportTurn(turn: Turn, told: Set<string>, read: ReadMedium): Promise<Exported["turns"][number]> {
  const files = turn.files.map(async (file) => {
    if (!isMedium(file) || told.has(file.id)) return file;
    told.add(file.id);
    const bytes = await read(turn.conversation, file).catch(() => null); // a lost one keeps its name
    return bytes ? { ...file, data: await toDataUrl(file, bytes) } : file;
  });
  return { ...turn, files: await Promise.all(files) };
}

type HoldMedium = (medium: Medium, bytes: ArrayBuffer) => void;

/** The conversations of a file that toJson() wrote; `hold` gets their media. Throws an Error that says what is wrong
 * with it. */
export function fromJson(text: string, hold: HoldMedium): Conversation[] {
  let file;
  try {
    file = JSON.parse(text) as { format?: unknown; conversations?: unknown };
  } catch {
    throw new Error("this file is no JSON");
  }
  if (file?.format !== FORMAT || !Array.isArray(file.conversations)) {
    throw new Error("this file has no conversations of dflash-local");
  }
  return file.conversations.map((given) => readConversation(given, hold));
}

function readConversation(given: Partial<Exported>, hold: HoldMedium): Conversation {
  if (typeof given?.id !== "string" || !Array.isArray(given.turns)) throw new Error("a conversation is incomplete");
  const { id, title, created, changed, leaf } = given;
  const conversation = new Conversation({
    id,
    title: String(title ?? ""),
    created: Number(created) || 0,
    changed: Number(changed) || 0,
    leaf: typeof leaf === "string" ? leaf : null,
  });
  const read = fileReader(hold);
  for (const turn of given.turns) conversation.turns.set(String(turn.id), readTurn(turn, id, read));
  return conversation;
}

function readTurn(given: Partial<Exported["turns"][number]>, conversation: string, read: ReadFile): Turn {
  const { id, role } = given;
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
    thoughtMs: Number(given.thoughtMs) || 0,
  });
}

type ReadFile = (given: Partial<TextFile & Medium & { data: unknown }>) => Attachment;

/** Reads the files of one conversation, whose media get new ids. */
function fileReader(hold: HoldMedium): ReadFile {
  const known = new Map<unknown, Medium>();
  return (given) => {
    const name = String(given?.name);
    const type = MEDIUM_TYPES.find((one) => one === given?.type);
    if (!type) return { name, text: String(given?.text) };
    const [size, width, height] = [given.size, given.width, given.height].map((number) => Number(number) || 1);
    const medium = known.get(given.id) ?? { id: newId(), name, type, size: size! };
    if (isPicture(medium)) Object.assign(medium, { width, height });
    if (typeof given.data === "string") hold(medium, fromDataUrl(given.data));
    known.set(given.id, medium);
    return medium;
  };
}

/** The shown path as Markdown; of files, the names. */
export function toMarkdown(conversation: Conversation): string {
  const names = { user: "You", assistant: "Assistant", tool: "Tool" };
  const parts = conversation.path().map(({ role, content, files }) => {
    const attached = files.length ? `(Attached: ${files.map(({ name }) => name).join(", ")})` : "";
    return `## ${names[role]}\n\n${[attached, content].filter(Boolean).join("\n\n")}\n`;
  });
  return `# ${conversation.record.title}\n\n${parts.join("\n")}`;
}

/** Let the browser save a file. */
export function download(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
