// Where the nodes of a tree stand: a column for each depth, the accepted path straight along the top, every other
// branch in the first row where there is room for it.

import type { Tree } from "./pass";

export interface Place {
  depth: number;
  row: number;
}

export interface Layout {
  places: Place[];
  isAccepted: boolean[];
  /** Where the target's own token stands: behind the path's end. */
  bonus: Place;
  columns: number;
  rows: number;
}

export function layoutOf(tree: Tree): Layout {
  const children = childrenOf(tree);
  const isAccepted = tree.texts.map(() => false);
  for (const node of tree.path) isAccepted[node] = true;
  const sorted = children.map((nodes) => nodes.sort((one, other) => before(one, other, tree, isAccepted)));
  const places: Place[] = tree.texts.map(() => ({ depth: 0, row: 0 }));
  const bonus = { depth: tree.path.length, row: 0 };
  const taken = new Set<string>([keyOf(bonus)]);
  const put = (chain: number[], depth: number, row: number) => {
    chain.forEach((node, index) => {
      places[node] = { depth: depth + index, row };
      taken.add(keyOf(places[node]!));
    });
    // The deepest branch stays nearest.
    for (const node of [...chain].reverse()) {
      const at = places[node]!;
      const rest = sorted[node]!.filter((child) => !chain.includes(child));
      for (const child of rest) {
        const branch = chainFrom(child, sorted);
        put(branch, at.depth + 1, freeRow(branch.length, at.depth + 1, at.row + 1, taken));
      }
    }
  };
  put(tree.path.length ? tree.path : [0], 0, 0);
  const columns = 1 + Math.max(bonus.depth, ...places.map((place) => place.depth));
  return { places, isAccepted, bonus, columns, rows: 1 + Math.max(...places.map((place) => place.row)) };
}

/** A node and its likeliest descendants. */
function chainFrom(node: number, children: number[][]): number[] {
  const chain = [node];
  for (let next = children[node]![0]; next !== undefined; next = children[next]![0]) chain.push(next);
  return chain;
}

function freeRow(length: number, depth: number, row: number, taken: ReadonlySet<string>): number {
  const depths = Array.from({ length }, (_, index) => depth + index);
  while (depths.some((one) => taken.has(keyOf({ depth: one, row })))) row++;
  return row;
}

function keyOf({ depth, row }: Place): string {
  return `${depth} ${row}`;
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
  const { places } = layoutOf(tree);
  const columns: number[][] = [];
  places.forEach(({ depth }, node) => depth > 0 && (columns[depth - 1] ??= []).push(node));
  for (const column of columns) column.sort((one, other) => places[one]!.row - places[other]!.row);
  return columns;
}

/** What was guessed where the walk ended and the target said something else: the likeliest branch that it left. */
export function refusedBranch(tree: Tree): number[] {
  const children = childrenOf(tree);
  const branch: number[] = [];
  for (let node = tree.path.at(-1) ?? 0; ; ) {
    const next = children[node]!.sort((one, other) => tree.values[other]! - tree.values[one]!)[0];
    if (next === undefined) return branch;
    branch.push(next);
    node = next;
  }
}
