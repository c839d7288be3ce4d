// The first difference of two texts, with what stands around it.

export interface Difference {
  /** What both have before it, or its end. */
  before: string;
  one: string;
  other: string;
  /** Characters before it. */
  at: number;
}

const BEFORE = 60, BEHIND = 30;

export function firstDifference(one: string, other: string): Difference | null {
  if (one === other) return null;
  let at = 0;
  while (at < one.length && one[at] === other[at]) at++;
  // Not between the halves of a character.
  if (at > 0 && /[\ud800-\udbff]/.test(one[at - 1]!)) at--;
  const before = one.slice(Math.max(0, at - BEFORE), at);
  return { before, one: one.slice(at, at + BEHIND), other: other.slice(at, at + BEHIND), at };
}
