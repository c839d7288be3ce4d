// Export of conversations; import.ts reads what it writes.

import type { Conversation, ConversationRecord } from "./conversation";
import { toDataUrl } from "./media";
import type { ReadMedium } from "./request";
import { type Attachment, isMedium, type Turn } from "./turn";

export const FORMAT = "dflash-local conversations";

/** The first and the last line of a file. Between them no line but a conversation's last one is `}` or `},`. */
export const HEAD = `{"format": "${FORMAT}", "version": 1, "conversations": [`;
export const TAIL = "]}";

/** The first of a conversation that names a medium has its bytes, as a data URL. */
type ExportedFile = Attachment & { data?: string };

export interface Exported extends ConversationRecord {
  turns: (Omit<Turn, "files"> & { files: ExportedFile[] })[];
}

/** Everything in these conversations, as JSON: in parts, as pictures may make it longer than any string can be. */
export async function toJson(conversations: Conversation[], read: ReadMedium): Promise<Blob> {
  const parts = [HEAD];
  for (const { record, turns } of conversations) {
    const told = new Set<string>();
    const written = [...turns.values()].map((turn) => exportTurn(turn, told, read));
    const exported: Exported = { ...record, turns: await Promise.all(written) };
    parts.push(parts.length > 1 ? ",\n" : "\n", JSON.stringify(exported, null, 1));
  }
  return new Blob([...parts, `\n${TAIL}\n`], { type: "application/json" });
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
