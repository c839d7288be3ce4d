// Export and import of conversations.

import { Conversation, type ConversationRecord } from "./conversation";
import { newTurn, type Turn } from "./turn";

const FORMAT = "dflash-local conversations";

interface Exported extends ConversationRecord {
  turns: Turn[];
}

/** Everything in these conversations, as JSON. */
export function toJson(conversations: Conversation[]): string {
  const exported: Exported[] = conversations.map(({ record, turns }) => ({ ...record, turns: [...turns.values()] }));
  return JSON.stringify({ format: FORMAT, version: 1, conversations: exported }, null, 1);
}

/** The conversations of a file that toJson() wrote. Throws an Error that says what is wrong with it. */
export function fromJson(text: string): Conversation[] {
  let file;
  try {
    file = JSON.parse(text) as { format?: unknown; conversations?: unknown };
  } catch {
    throw new Error("this file is no JSON");
  }
  if (file?.format !== FORMAT || !Array.isArray(file.conversations)) {
    throw new Error("this file has no conversations of dflash-local");
  }
  return file.conversations.map(readConversation);
}

function readConversation(given: Partial<Exported>): Conversation {
  if (typeof given?.id !== "string" || !Array.isArray(given.turns)) throw new Error("a conversation is incomplete");
  const { id, title, created, changed, leaf } = given;
  const conversation = new Conversation({
    id,
    title: String(title ?? ""),
    created: Number(created) || 0,
    changed: Number(changed) || 0,
    leaf: typeof leaf === "string" ? leaf : null,
  });
  for (const turn of given.turns) conversation.turns.set(String(turn.id), readTurn(turn, id));
  return conversation;
}

function readTurn(given: Partial<Turn>, conversation: string): Turn {
  const { id, role } = given;
  if (typeof id !== "string" || !["user", "assistant", "tool"].includes(String(role))) {
    throw new Error("a turn is incomplete");
  }
  const texts = (list: unknown) => (Array.isArray(list) ? list : []);
  return newTurn({
    id,
    conversation,
    role: role!,
    parent: typeof given.parent === "string" ? given.parent : null,
    created: Number(given.created) || 0,
    content: String(given.content ?? ""),
    reasoning: String(given.reasoning ?? ""),
    files: texts(given.files).map(({ name, text }) => ({ name: String(name), text: String(text) })),
    toolCalls: texts(given.toolCalls).map((call) => ({
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

/** The shown path as Markdown. */
export function toMarkdown(conversation: Conversation): string {
  const names = { user: "You", assistant: "Assistant", tool: "Tool" };
  const parts = conversation.path().map((turn) => `## ${names[turn.role]}\n\n${turn.content}\n`);
  return `# ${conversation.record.title}\n\n${parts.join("\n")}`;
}

/** Let the browser save a text as a file. */
export function download(name: string, type: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
