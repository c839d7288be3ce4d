// Library: all conversations, kept in the browser's IndexedDB.

import { Cell } from "../cell";
import { keepPasses, readPasses, sweepPasses } from "../drafts/kept_passes";
import { Passes } from "../drafts/passes";
import { Conversation } from "./conversation";
import { type Database, openDatabase } from "./database";
import { newId, type Turn } from "./turn";

export class Library {
  /** Newest first. */
  readonly conversations = new Cell<Conversation[]>([]);
  readonly shown = new Cell<Conversation | null>(null);
  /** Whether the kept conversations are here. */
  readonly isLoaded = new Cell(false);
  /** Why nothing is kept, if nothing is. */
  readonly trouble = new Cell("");
  #database: Database | null = null;
  /** Of the turns that were opened. */
  #passes = new Map<string, Promise<Passes>>();

  async load(): Promise<void> {
    try {
      this.#database = await openDatabase();
      const records = await this.#database.getAll("conversations");
      const byId = new Map(records.map((record) => [record.id, new Conversation(record)]));
      const turns = await this.#database.getAll("turns");
      for (const turn of turns) byId.get(turn.conversation)?.turns.set(turn.id, turn);
      this.conversations.value = [...byId.values()].sort(newestFirst);
      // What was removed stays until now, for undo.
      await sweepPasses(this.#database, turns.sort((one, other) => other.created - one.created).map((turn) => turn.id));
    } catch (error) {
      this.trouble.value = `Conversations are not kept: ${error instanceof Error ? error.message : error}`;
    }
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
    await Promise.all([this.saveRecord(conversation), this.saveTurn(turn)]);
  }

  async saveRecord(conversation: Conversation): Promise<void> {
    await this.keep((database) => database.put("conversations", conversation.record));
  }

  /** Keep a turn together with its passes: the place from which its stream is read again must fit both. */
  async saveTurn(turn: Turn): Promise<void> {
    const passes = await this.#passes.get(turn.id);
    await this.keep(async (database) => {
      const transaction = database.transaction(["turns", "passes"], "readwrite");
      const written = passes ? keepPasses(transaction, turn.id, passes) : [];
      await Promise.all([transaction.objectStore("turns").put(turn), ...written, transaction.done]);
    });
  }

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
    await this.keep(async (database) => {
      const transaction = database.transaction(["conversations", "turns"], "readwrite");
      const gone = [...conversation.turns.keys()].map((id) => transaction.objectStore("turns").delete(id));
      await Promise.all([...gone, transaction.objectStore("conversations").delete(conversation.record.id), transaction.done]);
    });
  }

  /** Add whole conversations, as import and undo do; those of the same id are replaced. */
  async restore(conversations: Conversation[]): Promise<void> {
    const ids = new Set(conversations.map((conversation) => conversation.record.id));
    const others = this.conversations.value.filter((conversation) => !ids.has(conversation.record.id));
    if (this.shown.value && ids.has(this.shown.value.record.id)) this.shown.value = null;
    this.conversations.value = [...conversations, ...others].sort(newestFirst);
    for (const conversation of conversations) {
      await this.saveRecord(conversation);
      await Promise.all([...conversation.turns.values()].map((turn) => this.saveTurn(turn)));
    }
  }

  /** Those that have all words of the query. */
  search(query: string): Conversation[] {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    return this.conversations.value.filter((conversation) => conversation.matches(words));
  }

  private async keep(write: (database: Database) => Promise<unknown>): Promise<void> {
    if (!this.#database) return;
    try {
      await write(this.#database);
    } catch (error) {
      this.trouble.value = `The last change was not kept: ${error instanceof Error ? error.message : error}`;
    }
  }
}

function newestFirst(one: Conversation, other: Conversation): number {
  return other.record.changed - one.record.changed;
}
