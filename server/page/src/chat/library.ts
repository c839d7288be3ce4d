// Library: all conversations, kept in the browser's IndexedDB.

import { Cell } from "../cell";
import { keepPasses, readPasses, sweepPasses } from "../drafts/kept_passes";
import { Passes } from "../drafts/passes";
import { Conversation, type ConversationRecord } from "./conversation";
import { type Database, openDatabase, type Writing } from "./database";
import { Media, unnamed } from "./media";
import { tellTabs } from "./tabs";
import { type Attachment, furthest, isBehind, isMedium, type Medium, newId, type Turn } from "./turn";

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
  /** Whether the browser was asked to throw nothing away. */
  #isLasting = false;

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
    for (const conversation of byId.values()) conversation.settle();
    this.#list([...byId.values()]);
    const gone = [
      ...unnamed(keys, belonging).map((key) => media.delete(key)),
      ...orphans.map(({ id }) => transaction.objectStore("turns").delete(id)),
    ];
    await Promise.all([...gone, transaction.done]);
    return belonging;
  }

  /** Take what another tab has written. Turns that `isWritten` are being written here and stay as they are. */
  async refresh(id: string, isWritten: (turn: Turn) => boolean): Promise<void> {
    if (!this.#database) return;
    const known = this.get(id);
    const transaction = this.#database.transaction(["conversations", "turns"]);
    const [record, turns] = await Promise.all([
      transaction.objectStore("conversations").get(id),
      transaction.objectStore("turns").index("conversation").getAll(id),
    ]);
    await Promise.all(turns.map((turn) => isWritten(turn) || this.#catchUp(turn)));
    if (!record || (known && !this.get(id))) return; // removed meanwhile, there or here
    this.#include(record, turns.filter((turn) => !isWritten(turn)));
  }

  /** Have the passes of a turn that another tab has kept since they were read: the turn must not be ahead of them. */
  async #catchUp(turn: Turn): Promise<void> {
    const passes = await this.#passes.get(turn.id);
    const known = this.get(turn.conversation)?.turns.get(turn.id);
    if (passes && isBehind(known, turn)) passes.catchUp(await readPasses(this.#database!, turn.id));
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
    this.#list();
    await this.#write([conversation], [turn]);
    this.#askToLast();
  }

  async saveRecord(conversation: Conversation): Promise<void> {
    await this.#write([conversation], []);
  }

  async saveTurn(turn: Turn): Promise<void> {
    await this.#write([], [turn]);
  }

  /** Have the bytes of a medium, which a turn may name soon. */
  hold(medium: Medium, bytes: ArrayBuffer): void {
    this.#media.hold(medium, bytes);
  }

  /** Forget the bytes of files that no turn will name. */
  release(files: Attachment[]): void {
    this.#media.release(files);
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
    conversation.rename(title);
    this.#list();
    await this.saveRecord(conversation);
  }

  async remove(conversation: Conversation): Promise<void> {
    this.drop(conversation);
    const { id } = conversation.record;
    await this.#keep(async (database) => {
      const transaction = database.transaction(["conversations", "turns"], "readwrite");
      const gone = [...conversation.turns.keys()].map((turn) => transaction.objectStore("turns").delete(turn));
      await Promise.all([...gone, transaction.objectStore("conversations").delete(id), transaction.done]);
      tellTabs({ conversation: id, isRemoved: true });
    });
  }

  /** Have it no longer; the database may still have it. */
  drop(conversation: Conversation): void {
    this.conversations.value = this.conversations.value.filter((other) => other !== conversation);
    if (this.shown.value === conversation) this.shown.value = null;
    if (this.#lossy.delete(conversation.record.id) && !this.#lossy.size) this.#lost = "";
  }

  /** Bring back what was removed. What is shown is kept. */
  async restore(conversation: Conversation): Promise<void> {
    await this.#write([conversation], [...conversation.turns.values()]);
    this.#include(conversation.record, [...conversation.turns.values()]);
  }

  /** Add a conversation of a file; of one that is here, only the turns that are not. Whether it is new. */
  async merge(given: Conversation, media: ReadonlyMap<Attachment, ArrayBuffer>): Promise<boolean> {
    const known = this.get(given.record.id);
    const missing = [...given.turns.values()].filter(({ id }) => !known?.turns.has(id));
    for (const medium of missing.flatMap(({ files }) => files).filter(isMedium)) {
      if (media.has(medium)) this.hold(medium, media.get(medium)!);
    }
    await this.#write([known ?? given], missing);
    this.#askToLast();
    this.#include((known ?? given).record, missing);
    return !known;
  }

  /** Have these turns in the conversation of this record, which may be new. */
  #include(record: ConversationRecord, turns: Turn[]): void {
    const known = this.get(record.id);
    known?.take(record, turns);
    this.#list(known ? [] : [Conversation.of(record, turns)]);
  }

  /** Put these into the list, and all in their order. */
  #list(added: Conversation[] = []): void {
    this.conversations.value = [...this.conversations.value, ...added].sort(newestFirst);
  }

  /** Browsers may throw away what they were not asked to keep: when there is no room, or after some time. */
  #askToLast(): void {
    if (!this.#isLasting) void navigator.storage?.persist?.(); // absent over plain HTTP
    this.#isLasting = true;
  }

  /** Those that have all words of the query. */
  search(query: string): Conversation[] {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    return this.conversations.value.filter((conversation) => conversation.matches(words));
  }

  /** Keep these and what is owed, if need be without media: a full storage parts no answer from its question. */
  async #write(conversations: Conversation[], turns: Turn[]): Promise<void> {
    const owed = [...this.#owed].filter((turn) => this.get(turn.conversation));
    const all = new Set([...owed, ...turns]);
    const theirs = new Set([...owed.map((turn) => this.get(turn.conversation)!), ...conversations]);
    const put = (hasMedia: boolean) => this.#keep((database) => this.#put(database, [...theirs], [...all], hasMedia));
    const why = await put(true);
    if (!why) return;
    if (await put(false)) {
      all.forEach((turn) => this.#owed.add(turn));
    } else if ([...all].some(({ files }) => files.some(isMedium))) {
      this.#lost = `Files of a question were not kept: ${why}`;
      for (const { conversation } of all) this.#lossy.add(conversation);
      this.trouble.value = this.#lost;
    }
  }

  /** Put all or nothing, over what other tabs have put. A turn is put with its passes: the place from which its stream
   * is read again must fit both. */
  async #put(database: Database, conversations: Conversation[], turns: Turn[], hasMedia: boolean): Promise<void> {
    const passes = await Promise.all(turns.map((turn) => this.#passes.get(turn.id)));
    const unkept = passes.map((one) => one?.unkept ?? 0);
    const transaction = database.transaction(["conversations", "turns", "passes", "media"], "readwrite");
    try {
      const [oldRecords, oldTurns] = await keptOf(transaction, conversations, turns);
      const records = conversations.map((conversation, index) => conversation.recordOver(oldRecords[index]));
      const news = passes.map((one, index) => (isBehind(turns[index], oldTurns[index]) ? undefined : one));
      const written = [
        ...records.map((record) => transaction.objectStore("conversations").put(record)),
        ...turns.map((turn, index) => transaction.objectStore("turns").put(furthest(turn, oldTurns[index]))),
        ...news.flatMap((one, index) => (one ? keepPasses(transaction, turns[index]!.id, one) : [])),
        ...(hasMedia ? turns.flatMap((turn) => this.#media.keep(transaction, turn)) : []),
      ];
      transaction.commit(); // it ends, even if the page is left now
      await Promise.all([...written, transaction.done]);
      conversations.forEach((conversation, index) => conversation.markKept(records[index]!));
    } catch (error) {
      passes.forEach((one, index) => one && (one.unkept = Math.min(one.unkept, unkept[index]!)));
      throw error;
    }
    turns.forEach((turn) => this.#owed.delete(turn));
    if (hasMedia) turns.forEach(({ files }) => this.#media.release(files));
    const ids = [...conversations.map(({ record }) => record.id), ...turns.map(({ conversation }) => conversation)];
    new Set(ids).forEach((id) => tellTabs({ conversation: id, isRemoved: false }));
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

/** What the database has of these. */
function keptOf(transaction: Writing, conversations: Conversation[], turns: Turn[]) {
  return Promise.all([
    Promise.all(conversations.map(({ record }) => transaction.objectStore("conversations").get(record.id))),
    Promise.all(turns.map(({ id }) => transaction.objectStore("turns").get(id))),
  ]);
}

function newestFirst(one: Conversation, other: Conversation): number {
  return other.record.changed - one.record.changed;
}
