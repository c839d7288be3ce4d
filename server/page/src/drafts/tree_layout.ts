// Where the nodes of a tree stand: a column for each depth, the accepted path straight along the top, and below each
// node what else was guessed in its place.

import type { Tree } from "./pass";

export interface Place {
  depth: number;
  row: number;
}

export interface Layout {
  places: Place[];
  isAccepted: boolean[];
  depth: number;
  rows: number;
}

export function layoutOf(tree: Tree): Layout {
  const children = childrenOf(tree);
  const isAccepted = tree.texts.map(() => false);
  for (const node of tree.path) isAccepted[node] = true;
  const places: Place[] = tree.texts.map(() => ({ depth: 0, row: 0 }));
  let rows = 0;
  const place = (node: number, depth: number) => {
    places[node] = { depth, row: rows };
    const next = children[node]!.sort((one, other) => before(one, other, tree, isAccepted));
    next.forEach((child, index) => {
      if (index > 0) rows++;
      place(child, depth + 1);
    });
  };
  if (tree.texts.length) place(0, 0);
  return { places, isAccepted, depth: Math.max(0, ...places.map((one) => one.depth)), rows: rows + 1 };
}

function childrenOf({ parents }: Tree): number[][] {
  const children: number[][] = parents.map(() => []);
  parents.forEach((parent, node) => parent >= 0 && children[parent]!.push(node));
  return children;
}

/** Accepted ones first, then by their value. */
function before(one: number, other: number, { values }: Tree, isAccepted: boolean[]): number {
  return Number(isAccepted[other]) - Number(isAccepted[one]) || values[other]! - values[one]! || one - other;
}

/** The nodes of each depth from 1 on, in the order of the picture. */
export function columnsOf(tree: Tree): number[][] {
  const { places, depth } = layoutOf(tree);
  const columns: number[][] = Array.from({ length: depth }, () => []);
  places.forEach((place, node) => place.depth > 0 && columns[place.depth - 1]!.push(node));
  for (const column of columns) column.sort((one, other) => places[one]!.row - places[other]!.row);
  return columns;
}

/** What was guessed in place of what the target said where the walk ended: the likeliest branch that it left. */
export function refusedBranch(tree: Tree): number[] {
  const children = childrenOf(tree);
  const branch: number[] = [];
  for (let node = tree.path.at(-1) ?? 0; ; ) {
    const next = children[node]!.reduce((best, child) => (best < 0 || tree.values[child]! > tree.values[best]! ? child : best), -1);
    if (next < 0) return branch;
    branch.push(next);
    node = next;
  }
}
