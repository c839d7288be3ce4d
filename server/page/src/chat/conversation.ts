// Conversation: a tree of turns, of which one path is shown.

import { Cell } from "../cell";
import { furthest, type Turn } from "./turn";

export interface ConversationRecord {
  id: string;
  title: string;
  created: number;
  changed: number;
  /** The last turn of the shown path. */
  leaf: string | null;
}

const TITLE_LENGTH = 60;

export class Conversation {
  readonly turns = new Map<string, Turn>();
  /** Counts changes of the tree; a running answer reports its text itself. */
  readonly changes = new Cell(0);
  /** What of the record was changed here and is not kept yet. */
  readonly #unkept = new Set<keyof ConversationRecord>();

  constructor(readonly record: ConversationRecord) {}

  static of(record: ConversationRecord, turns: Turn[]): Conversation {
    const conversation = new Conversation(record);
    conversation.take(record, turns);
    return conversation;
  }

  add(turn: Turn): void {
    this.turns.set(turn.id, turn);
    this.#change({ leaf: turn.id, changed: Date.now() });
    if (!this.record.title && turn.role === "user") this.#change({ title: titleOf(turn) });
    this.touch();
  }

  rename(title: string): void {
    this.#change({ title });
    this.touch();
  }

  /** Take what another tab has kept. Each tab shows its own branch, and follows it where it grew. */
  take({ title, changed }: ConversationRecord, turns: Turn[]): void {
    if (!this.#unkept.has("title")) this.record.title = title;
    if (!this.#unkept.has("changed")) this.record.changed = changed;
    for (const turn of turns) {
      const known = this.turns.get(turn.id);
      if (known) Object.assign(known, furthest(known, turn));
      else this.turns.set(turn.id, turn);
    }
    this.settle();
    this.touch();
  }

  /** What to keep of the record over `stored`, where another tab may have changed the rest. */
  recordOver(stored: ConversationRecord | undefined): ConversationRecord {
    const own = Object.fromEntries([...this.#unkept].map((name) => [name, this.record[name]]));
    return stored ? { ...stored, ...own } : { ...this.record };
  }

  /** The database has `kept` now. */
  markKept(kept: ConversationRecord): void {
    for (const name of this.#unkept) {
      if (this.record[name] === kept[name]) this.#unkept.delete(name);
    }
  }

  #change(changes: Partial<ConversationRecord>): void {
    Object.assign(this.record, changes);
    for (const name of Object.keys(changes)) this.#unkept.add(name as keyof ConversationRecord);
  }

  touch(): void {
    this.changes.value += 1;
  }

  /** From the first turn to `leaf`. */
  path(leaf = this.record.leaf): Turn[] {
    const found: Turn[] = [];
    const seen = new Set<string>(); // an imported file may have a loop
    for (let turn = this.get(leaf); turn && !seen.has(turn.id); turn = this.get(turn.parent)) {
      seen.add(turn.id);
      found.unshift(turn);
    }
    return found;
  }

  /** The turns that follow `parent`, oldest first. */
  children(parent: string | null): Turn[] {
    return [...this.turns.values()].filter((turn) => turn.parent === parent).sort((a, b) => a.created - b.created);
  }

  /** Show the branch that `turn` belongs to, down to its newest end. */
  show(turn: Turn): void {
    this.#change({ leaf: this.#endBelow(turn).id });
    this.touch();
  }

  /** Let the shown path end where its branch does; if its end is unknown, with the newest turn. */
  settle(): void {
    const newest = [...this.turns.values()].sort((a, b) => a.created - b.created).at(-1);
    const leaf = this.get(this.record.leaf) ?? newest;
    this.record.leaf = leaf ? this.#endBelow(leaf).id : null;
  }

  /** The newest end of the branch of `turn`. */
  #endBelow(turn: Turn): Turn {
    const seen = new Set<string>(); // as in `path`
    let end = turn;
    for (let next: Turn | undefined = turn; next && !seen.has(next.id); next = this.children(next.id).at(-1)) {
      seen.add(next.id);
      end = next;
    }
    return end;
  }

  /** Whether the title, the turns and the names of their files have all of these words. */
  matches(words: string[]): boolean {
    const turns = [...this.turns.values()].flatMap(({ content, files }) => [content, ...files.map(({ name }) => name)]);
    const text = [this.record.title, ...turns].join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  }

  private get(id: string | null): Turn | undefined {
    return id === null ? undefined : this.turns.get(id);
  }
}

function titleOf(turn: Turn): string {
  const line = (turn.content.trim() || turn.files[0]?.name || "").split("\n")[0]!.trim();
  const letters = [...line]; // an emoji has two units
  return letters.length > TITLE_LENGTH ? `${letters.slice(0, TITLE_LENGTH - 1).join("")}…` : line;
}
