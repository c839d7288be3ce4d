// Media: the bytes of pictures and audio. A turn only names them, so that conversations load without them.

import type { Database, Writing } from "./database";
import { type Attachment, isMedium, type Medium, type Turn } from "./turn";

export interface KeptMedium {
  conversation: string;
  id: string;
  bytes: ArrayBuffer;
}

export class Media {
  /** Those that the database does not have: new ones, and all of them where nothing is kept. */
  #held = new Map<string, ArrayBuffer>();

  hold(medium: Medium, bytes: ArrayBuffer): void {
    this.#held.set(medium.id, bytes);
  }

  /** Throws an Error if they are gone. `conversation` is null as long as it belongs to none. */
  async read(database: Database | null, conversation: string | null, medium: Medium): Promise<ArrayBuffer> {
    const held = this.#held.get(medium.id);
    if (held) return held;
    const kept = database && conversation !== null ? await database.get("media", [conversation, medium.id]) : null;
    if (!kept) throw new Error(`${medium.name} is not kept in this browser.`);
    return kept.bytes;
  }

  /** Write those of a turn that the database does not have. */
  keep(transaction: Writing, { conversation, files }: Turn): Promise<unknown>[] {
    const store = transaction.objectStore("media");
    const held = files.filter(isMedium).filter(({ id }) => this.#held.has(id));
    return held.map(({ id }) => store.put({ conversation, id, bytes: this.#held.get(id)! }));
  }

  /** Have those of these files no longer: the database has them, or nothing will name them. */
  release(files: Attachment[]): void {
    for (const { id } of files.filter(isMedium)) this.#held.delete(id);
  }
}

/** Of the keys of kept media, those that no turn names. */
export function unnamed(keys: [string, string][], turns: Turn[]): [string, string][] {
  const namedBy = ({ conversation, files }: Turn) => files.filter(isMedium).map(({ id }) => `${conversation} ${id}`);
  const named = new Set(turns.flatMap(namedBy));
  return keys.filter((key) => !named.has(key.join(" ")));
}

/** The bytes as a data URL. */
export function toDataUrl({ type }: Medium, bytes: ArrayBuffer): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(new Blob([bytes], { type }));
  });
}

/** The bytes of a data URL with base64. Throws an Error if it is none. */
export function fromDataUrl(url: string): ArrayBuffer {
  const text = url.match(/^data:[^,]*;base64,(.*)$/s)?.[1];
  if (text === undefined) throw new Error("a file of a turn is incomplete");
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0)).buffer;
}
