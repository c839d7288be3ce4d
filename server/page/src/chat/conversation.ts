// Conversation: a tree of turns, of which one path is shown.

import { Cell } from "../cell";
import type { Turn } from "./turn";

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

  constructor(readonly record: ConversationRecord) {}

  add(turn: Turn): void {
    this.turns.set(turn.id, turn);
    this.record.leaf = turn.id;
    this.record.changed = Date.now();
    if (!this.record.title && turn.role === "user") this.record.title = titleOf(turn);
    this.touch();
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
    let leaf = turn;
    for (let next = this.children(leaf.id).at(-1); next; next = this.children(leaf.id).at(-1)) leaf = next;
    this.record.leaf = leaf.id;
    this.touch();
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
  return line.length > TITLE_LENGTH ? `${line.slice(0, TITLE_LENGTH - 1)}…` : line;
}
