// How passes are kept in the browser's database: in parts of a fixed size, of which only the last one grows.

import type { Database, Writing } from "../chat/database";
import type { Pass } from "./pass";
import { Passes } from "./passes";

const PART = 128;
/** How many answers, the newest ones, keep their passes. */
const MAX_ANSWERS = 200;

export interface Part {
  turn: string;
  part: number;
  passes: Pass[];
}

/** Write what is new since the last time. */
export function keepPasses(transaction: Writing, turn: string, passes: Passes): Promise<unknown>[] {
  const store = transaction.objectStore("passes");
  const written: Promise<unknown>[] = [];
  for (let part = Math.floor(passes.unkept / PART); part * PART < passes.length; part++) {
    written.push(store.put({ turn, part, passes: passes.list.slice(part * PART, (part + 1) * PART) }));
  }
  passes.unkept = passes.length;
  return written;
}

export async function readPasses(database: Database, turn: string): Promise<Passes> {
  const parts = await database.getAll("passes", rangeOf(turn));
  return new Passes(parts.flatMap((part) => part.passes));
}

/** Forget those of turns that are gone, and of all but the newest answers. `turns`: newest first. */
export async function sweepPasses(database: Database, turns: string[]): Promise<void> {
  const keys = await database.getAllKeys("passes");
  const have = new Set(keys.map(([turn]) => turn));
  const stay = new Set(turns.filter((turn) => have.has(turn)).slice(0, MAX_ANSWERS));
  const transaction = database.transaction("passes", "readwrite");
  const gone = [...have].filter((turn) => !stay.has(turn)).map((turn) => transaction.store.delete(rangeOf(turn)));
  await Promise.all([...gone, transaction.done]);
}

function rangeOf(turn: string): IDBKeyRange {
  return IDBKeyRange.bound([turn], [turn, []]);
}
