// Passes: all passes of an answer, with their sums.

import { guessed, type Pass } from "./pass";

/** Most tree nodes that an answer keeps, some 60 bytes each; of later passes only the newest has its tree. */
const MAX_NODES = 200_000;
const NOW_MS = 1000;

export class Passes {
  readonly list: Pass[] = [];
  /** The first that has not been kept yet. */
  unkept = 0;
  /** Tokens of the answer, those of the prompt's pass too. */
  tokens = 0;
  /** Draft tokens that were verified, and those of them that were accepted. */
  guessed = 0;
  kept = 0;
  verifyMs = 0;
  draftMs = 0;
  /** By depth, from 1: passes that verified a node there, and those that accepted one. */
  readonly verifiedAt: number[] = [];
  readonly acceptedAt: number[] = [];
  /** Tokens in most passes, and the largest tree. */
  mostTokens = 1;
  mostNodes = 1;
  /** By the reason, in the order of their first use. */
  readonly reasons = new Map<string, number>();
  #plainMs = 0;
  #plainTokens = 0;
  #treeNodes = 0;

  constructor(list: Iterable<Pass> = []) {
    for (const pass of list) this.add(pass);
    this.unkept = this.list.length;
  }

  get length(): number {
    return this.list.length;
  }

  get last(): Pass | undefined {
    return this.list.at(-1);
  }

  /** Ignores a pass that is here already: a stream that is read again may repeat it. */
  add(pass: Pass): void {
    if (this.last && pass.number <= this.last.number) return;
    if (this.#treeNodes > MAX_NODES && this.last) this.last.tree = null;
    this.list.push(pass);
    this.#treeNodes += pass.tree?.texts.length ?? 0;
    this.tokens += pass.texts.length;
    if (pass.number > 0) this.#sum(pass);
  }

  /** Add those that the database has more. */
  catchUp(kept: Passes): void {
    for (const pass of kept.list) this.add(pass);
    this.unkept = Math.max(this.unkept, kept.length);
  }

  /** The raw text: thoughts and calls of tools as the model wrote them. */
  text(): string {
    return this.list.flatMap((pass) => pass.texts).join("");
  }

  /** Tokens per second of plain decoding by the measured cost curve, at the lengths where these passes ran. */
  plainRate(): number | null {
    return this.#plainMs > 0 ? (1000 * this.#plainTokens) / this.#plainMs : null;
  }

  /** Tokens per second over the last second. */
  rateNow(): number | null {
    const { last, list } = this;
    if (!last) return null;
    let tokens = 0;
    let index = list.length - 1;
    for (; index > 0 && last.at - list[index]!.at < NOW_MS; index--) tokens += list[index]!.texts.length;
    const ms = last.at - list[index]!.at;
    return ms > 0 ? (1000 * tokens) / ms : null;
  }

  /** Acceptance length: tokens after the first pass, over passes. */
  acceptanceLength(): number | null {
    const prompts = this.list[0]?.number === 0 ? this.list[0].texts.length : null;
    const passes = this.length - Number(prompts !== null);
    return passes > 0 ? (this.tokens - (prompts ?? 0)) / passes : null;
  }

  #sum(pass: Pass): void {
    this.guessed += guessed(pass);
    this.kept += pass.accepted;
    this.verifyMs += pass.verifyMs;
    this.draftMs += pass.draftMs;
    for (let depth = 1; depth <= pass.depth; depth++) {
      this.verifiedAt[depth] = (this.verifiedAt[depth] ?? 0) + 1;
      this.acceptedAt[depth] = (this.acceptedAt[depth] ?? 0) + (pass.accepted >= depth ? 1 : 0);
    }
    this.mostTokens = Math.max(this.mostTokens, pass.texts.length, pass.depth + 1);
    this.mostNodes = Math.max(this.mostNodes, pass.nodes);
    this.reasons.set(pass.reason, (this.reasons.get(pass.reason) ?? 0) + 1);
    if (pass.plainMs > 0) {
      this.#plainMs += pass.plainMs * pass.texts.length;
      this.#plainTokens += pass.texts.length;
    }
  }
}
