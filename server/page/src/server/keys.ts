// The API key, and the dialog that asks for it.

import { Cell } from "../cell";
import { browserMemory } from "../memory";

const NAME = "key";

/** Someone waits for a key: call it with one, or with null to give up. */
export const asking = new Cell<((key: string | null) => void) | null>(null);

let answer: Promise<string | null> | null = null;

export function key(): string {
  return browserMemory.recall(NAME) ?? "";
}

export function setKey(value: string): void {
  browserMemory.remember(NAME, value || null);
}

/** Ask once, however many requests were refused meanwhile. */
export function askForKey(): Promise<string | null> {
  answer ??= new Promise<string | null>((resolve) => {
    asking.value = (given) => {
      asking.value = null;
      answer = null;
      if (given !== null) setKey(given);
      resolve(given);
    };
  });
  return answer;
}
