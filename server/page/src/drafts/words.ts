// How tokens and shares are written.

import { type Origin, UNKNOWN } from "./pass";

export const ORIGIN_WORDS: Record<Origin, string> = {
  target: "the model itself",
  draft: "drafter",
  lookup: "prompt lookup",
  prediction: "prediction",
};

/** A token with its blanks visible, of so many characters at most. */
export function visible(text: string, length = Infinity): string {
  if (!text) return "…"; // a part of a character
  const shown = text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/^ +| +$/g, (blanks) => "·".repeat(blanks.length));
  const characters = [...shown];
  return characters.length > length ? `${characters.slice(0, length - 1).join("")}…` : shown;
}

/** Thousandths as per cent. */
export function percent(thousandths: number): string {
  if (thousandths === UNKNOWN) return "–";
  if (thousandths === 0) return "<0.1%";
  return thousandths < 10 || (thousandths > 990 && thousandths < 1000) ? `${thousandths / 10}%` : `${Math.round(thousandths / 10)}%`;
}

export function milliseconds(ms: number): string {
  return ms < 10 ? `${ms.toFixed(1)} ms` : `${Math.round(ms)} ms`;
}

export function plural(count: number, noun: string): string {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : noun.endsWith("s") ? "es" : "s"}`;
}
