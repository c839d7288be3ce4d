// Pass: what one pass of the target did, as it is kept: lists in place of objects, and shares in ten-thousandths,
// the server's own precision.

import type { NodeAnswer, PassAnswer } from "../server/answers";

/** Who proposed a token. Kept as an index into this list. */
export const ORIGINS = ["target", "draft", "lookup", "prediction", "mtp"] as const satisfies NodeAnswer["by"][];

/** In place of a probability: the drafter did not propose it. */
export const UNKNOWN = -1;

/** What was verified, parents first; node 0 is the anchor. */
export interface Tree {
  texts: string[];
  parents: number[];
  /** The drafter's probability of each, given its parent. */
  probs: number[];
  /** The probability that the walk gets to each. */
  values: number[];
  origins: number[];
  /** The accepted nodes, the anchor first. */
  path: number[];
}

export interface Pass {
  /** 0 is the prompt's last pass, which verifies nothing. */
  number: number;
  nodes: number;
  depth: number;
  denoised: number;
  accepted: number;
  reason: string;
  draftMs: number;
  verifyMs: number;
  /** What a pass that writes one token would cost; 0: unknown. */
  plainMs: number;
  /** Milliseconds of writing, by the server's clock, at its end. */
  at: number;
  /** What it wrote; the first `accepted` of them were drafted. */
  texts: string[];
  origins: number[];
  probs: number[];
  /** null: nothing was verified, or it is no longer kept. */
  tree: Tree | null;
}

export function passOf(event: PassAnswer, at: number): Pass {
  const nodes = event.tree.map(({ prob, by }) => ({ prob: tenThousandths(prob), origin: ORIGINS.indexOf(by) }));
  // The walk may accept the token that ends the answer, which does not belong to its tokens.
  const accepted = event.path.slice(1, event.accepted + 1).map((node) => nodes[node]);
  return {
    number: event.pass,
    nodes: event.nodes,
    depth: event.depth,
    denoised: event.denoised,
    accepted: event.accepted,
    reason: event.reason,
    draftMs: event.draft_ms,
    verifyMs: event.verify_ms,
    plainMs: event.plain_ms,
    at,
    texts: event.tokens,
    origins: event.tokens.map((_, index) => accepted[index]?.origin ?? 0),
    probs: event.tokens.map((_, index) => accepted[index]?.prob ?? UNKNOWN),
    tree: event.tree.length ? treeOf(event, nodes) : null,
  };
}

function treeOf({ tree, path }: PassAnswer, nodes: { prob: number; origin: number }[]): Tree {
  return {
    texts: tree.map((node) => node.t),
    parents: tree.map((node) => node.p),
    probs: nodes.map((node) => node.prob),
    values: tree.map((node) => tenThousandths(node.value)),
    origins: nodes.map((node) => node.origin),
    path,
  };
}

function tenThousandths(share: number | null): number {
  return share === null ? UNKNOWN : Math.round(share * 10_000);
}

/** Draft tokens that were verified. */
export function guessed(pass: Pass): number {
  return Math.max(0, pass.nodes - 1);
}
