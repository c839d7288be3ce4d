// Library: all conversations, kept in the browser's IndexedDB.

import { Cell } from "../cell";
import { keepPasses, readPasses, sweepPasses } from "../drafts/kept_passes";
import { Passes } from "../drafts/passes";
import { Conversation, type ConversationRecord } from "./conversation";
import { type Database, openDatabase } from "./database";
import { Media, unnamed } from "./media";
import { isMedium, type Medium, newId, type Turn } from "./turn";

export class Library {
  /** Newest first. */
  readonly conversations = new Cell<Conversation[]>([]);
  readonly shown = new Cell<Conversation | null>(null);
  /** Whether the kept conversations are here. */
  readonly isLoaded = new Cell(false);
  /** Why nothing is kept, if nothing is. */
  readonly trouble = new Cell("");
  #database: Database | null = null;
  #media = new Media();
  /** Why the files of some question were not kept; the notice stays. */
  #lost = "";
  /** Their conversations. */
  #lossy = new Set<string>();
  /** Turns that could not be written: they are with the next change. */
  #owed = new Set<Turn>();
  /** Of the turns that were opened. */
  #passes = new Map<string, Promise<Passes>>();

  async load(): Promise<void> {
    try {
      this.#database = await openDatabase();
      const turns = await this.#readAll(this.#database);
      // What was removed stays until now, for undo.
      await sweepPasses(this.#database, turns.sort((one, other) => other.created - one.created).map((turn) => turn.id));
    } catch (error) {
      this.trouble.value = `Conversations are not kept: ${error instanceof Error ? error.message : error}`;
    }
  }

  /** Show what is kept, and forget media that nothing names any more: in one transaction, as another tab may write. */
  async #readAll(database: Database): Promise<Turn[]> {
    const transaction = database.transaction(["conversations", "turns", "media"], "readwrite");
    const media = transaction.objectStore("media");
    const [records, turns, keys] = await Promise.all([
      transaction.objectStore("conversations").getAll(),
      transaction.objectStore("turns").getAll(),
      media.getAllKeys(),
    ]);
    const byId = new Map(records.map((record) => [record.id, new Conversation(record)]));
    const belonging = turns.filter((turn) => byId.has(turn.conversation));
    const orphans = turns.filter((turn) => !byId.has(turn.conversation));
    for (const turn of belonging) byId.get(turn.conversation)!.turns.set(turn.id, turn);
    this.conversations.value = [...byId.values()].sort(newestFirst);
    const gone = [
      ...unnamed(keys, belonging).map((key) => media.delete(key)),
      ...orphans.map(({ id }) => transaction.objectStore("turns").delete(id)),
    ];
    await Promise.all([...gone, transaction.done]);
    return belonging;
  }

  get(id: string): Conversation | undefined {
    return this.conversations.value.find((conversation) => conversation.record.id === id);
  }

  create(): Conversation {
    const now = Date.now();
    const conversation = new Conversation({ id: newId(), title: "", created: now, changed: now, leaf: null });
    this.conversations.value = [conversation, ...this.conversations.value];
    this.shown.value = conversation;
    return conversation;
  }

  /** Add a turn and keep it. */
  async add(conversation: Conversation, turn: Turn): Promise<void> {
    conversation.add(turn);
    this.conversations.value = [...this.conversations.value].sort(newestFirst);
    await this.#write([conversation.record], [turn]);
  }

  async saveRecord(conversation: Conversation): Promise<void> {
    await this.#write([conversation.record], []);
  }

  async saveTurn(turn: Turn): Promise<void> {
    await this.#write([], [turn]);
  }

  /** Have the bytes of a medium, which a turn may name soon. */
  hold(medium: Medium, bytes: ArrayBuffer): void {
    this.#media.hold(medium, bytes);
  }

  /** The bytes of a conversation's medium; null: of one that was not sent yet. Throws an Error if they are gone. */
  readonly bytesOf = (conversation: string | null, medium: Medium): Promise<ArrayBuffer> =>
    this.#media.read(this.#database, conversation, medium);

  /** The passes of a new answer. */
  newPasses(turn: Turn): Passes {
    const passes = new Passes();
    this.#passes.set(turn.id, Promise.resolve(passes));
    return passes;
  }

  /** What the passes of an answer did; the same object as long as the page is open. */
  passesOf(turn: Turn): Promise<Passes> {
    const known = this.#passes.get(turn.id);
    if (known) return known;
    const read = this.#readPasses(turn);
    this.#passes.set(turn.id, read);
    return read;
  }

  async #readPasses(turn: Turn): Promise<Passes> {
    if (!this.#database || !turn.hasPasses) return new Passes();
    return readPasses(this.#database, turn.id).catch(() => new Passes());
  }

  async rename(conversation: Conversation, title: string): Promise<void> {
    conversation.record.title = title;
    this.conversations.value = [...this.conversations.value];
    conversation.touch();
    await this.saveRecord(conversation);
  }

  async remove(conversation: Conversation): Promise<void> {
    this.conversations.value = this.conversations.value.filter((other) => other !== conversation);
    if (this.shown.value === conversation) this.shown.value = null;
    if (this.#lossy.delete(conversation.record.id) && !this.#lossy.size) this.#lost = "";
    await this.#keep(async (database) => {
      const transaction = database.transaction(["conversations", "turns"], "readwrite");
      const gone = [...conversation.turns.keys()].map((id) => transaction.objectStore("turns").delete(id));
      await Promise.all([...gone, transaction.objectStore("conversations").delete(conversation.record.id), transaction.done]);
    });
  }

  /** Add whole conversations, as import and undo do; those of the same id are replaced. What is shown is kept. */
  async restore(conversations: Conversation[]): Promise<void> {
    await this.#write(
      conversations.map(({ record }) => record),
      conversations.flatMap(({ turns }) => [...turns.values()]),
    );
    const ids = new Set(conversations.map((conversation) => conversation.record.id));
    const others = this.conversations.value.filter((conversation) => !ids.has(conversation.record.id));
    if (this.shown.value && ids.has(this.shown.value.record.id)) this.shown.value = null;
    this.conversations.value = [...conversations, ...others].sort(newestFirst);
  }

  /** Those that have all words of the query. */
  search(query: string): Conversation[] {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    return this.conversations.value.filter((conversation) => conversation.matches(words));
  }

  /** Keep these and what is owed, if need be without media: a full storage must not part an answer from its question. */
  async #write(records: ConversationRecord[], turns: Turn[]): Promise<void> {
    const owed = [...this.#owed].filter((turn) => this.get(turn.conversation));
    const all = new Set([...owed, ...turns]);
    const theirs = new Set([...owed.map((turn) => this.get(turn.conversation)!.record), ...records]);
    const why = await this.#keep((database) => this.#put(database, [...theirs], [...all], true));
    if (!why) return;
    if (await this.#keep((database) => this.#put(database, [...theirs], [...all], false))) {
      all.forEach((turn) => this.#owed.add(turn));
    } else if ([...all].some(({ files }) => files.some(isMedium))) {
      this.#lost = `Files of a question were not kept: ${why}`;
      for (const { conversation } of all) this.#lossy.add(conversation);
      this.trouble.value = this.#lost;
    }
  }

  /** Put all or nothing. A turn is put with its passes: the place from which its stream is read again must fit both. */
  async #put(database: Database, records: ConversationRecord[], turns: Turn[], hasMedia: boolean): Promise<void> {
    const passes = await Promise.all(turns.map((turn) => this.#passes.get(turn.id)));
    const unkept = passes.map((one) => one?.unkept ?? 0);
    const transaction = database.transaction(["conversations", "turns", "passes", "media"], "readwrite");
    try {
      const written = [
        ...records.map((record) => transaction.objectStore("conversations").put(record)),
        ...turns.map((turn) => transaction.objectStore("turns").put(turn)),
        ...turns.flatMap((turn, index) => (passes[index] ? keepPasses(transaction, turn.id, passes[index]) : [])),
        ...(hasMedia ? turns.flatMap((turn) => this.#media.keep(transaction, turn)) : []),
      ];
      transaction.commit(); // it ends, even if the page is left now
      await Promise.all([...written, transaction.done]);
    } catch (error) {
      passes.forEach((one, index) => one && (one.unkept = Math.min(one.unkept, unkept[index]!)));
      throw error;
    }
    turns.forEach((turn) => this.#owed.delete(turn));
    if (hasMedia) turns.forEach((turn) => this.#media.release(turn));
  }

  /** Why it could not be written; empty: it was, or nothing is kept at all. */
  async #keep(write: (database: Database) => Promise<unknown>): Promise<string> {
    if (!this.#database) return "";
    try {
      await write(this.#database);
      this.trouble.value = this.#lost;
      return "";
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      this.trouble.value = `The last change was not kept: ${why}`;
      return why;
    }
  }
}

function newestFirst(one: Conversation, other: Conversation): number {
  return other.record.changed - one.record.changed;
}
