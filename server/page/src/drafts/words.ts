// How tokens and shares are written.

import type { NodeAnswer } from "../server/answers";
import { guessed, ORIGINS, type Pass, UNKNOWN } from "./pass";

const ORIGIN_WORDS: Record<NodeAnswer["by"], string> = {
  target: "the model itself",
  draft: "drafter",
  mtp: "MTP layers",
  lookup: "prompt lookup",
  prediction: "prediction",
};

export function originWord(by: NodeAnswer["by"]): string {
  return ORIGIN_WORDS[by];
}

/** Who drafted, of tokens with these origins. */
export function drafterWord(origins: number[]): string {
  return originWord(origins.includes(ORIGINS.indexOf("mtp")) ? "mtp" : "draft");
}

/** A token with its blanks visible, cut to a number of characters. */
export function visible(text: string, length = Infinity): string {
  if (!text) return "…"; // a part of a character
  const shown = text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/^ +| +$/g, (blanks) => "·".repeat(blanks.length));
  const characters = [...shown];
  return characters.length > length ? `${characters.slice(0, length - 1).join("")}…` : shown;
}

/** Ten-thousandths as per cent, with one more digit where a whole number would say never or always. */
export function percent(share: number): string {
  if (share === UNKNOWN) return "–";
  if (share < 10) return "<0.1%";
  if (share < 100) return `${(share / 100).toFixed(1)}%`;
  // Never rounded up to always.
  return share > 9900 ? `${Math.floor(share / 10) / 10}%` : `${Math.round(share / 100)}%`;
}

export function milliseconds(ms: number): string {
  return ms < 10 ? `${ms.toFixed(1)} ms` : `${Math.round(ms)} ms`;
}

export function plural(count: number, noun: string): string {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/** A pass in one line. */
export function toldOf(pass: Pass): string {
  const tokens = plural(pass.texts.length, "token");
  if (pass.number === 0) return `pass 0, the prompt's last: ${tokens}`;
  const cost = guessed(pass) ? ` from ${plural(pass.nodes, "node")}` : "";
  return `pass ${pass.number}: ${tokens}${cost}; ${pass.reason}`;
}
