// A verified tree as a picture: depth to the right, the accepted path bold along the top.

import { ORIGINS, type Pass, type Tree } from "../../drafts/pass";
import { layoutOf, type Place } from "../../drafts/tree_layout";
import { ORIGIN_WORDS, percent, visible } from "../../drafts/words";

const BOX_WIDTH = 92, BOX_HEIGHT = 38, GAP_X = 34, GAP_Y = 12, MARGIN = 10;
const TEXT_LENGTH = 11;

export function TreePicture({ pass, tree }: { pass: Pass; tree: Tree }) {
  const layout = layoutOf(tree);
  const { places, isAccepted } = layout;
  const end = places[tree.path.at(-1) ?? 0]!;
  const bonus = bonusOf(pass);
  // Where the walk left the tree, what the model said stands on the path, and what it refused moves down.
  const isCrowded = bonus !== null && places.some((place) => place.depth > end.depth && place.row === end.row);
  const moved = (place: Place): Place => (isCrowded && isBelow(place, end) ? { ...place, row: place.row + 1 } : place);
  const spots = places.map(moved);
  const columns = Math.max(layout.depth, bonus === null ? 0 : end.depth + 1) + 1;
  const rows = layout.rows + Number(isCrowded);
  const width = 2 * MARGIN + columns * (BOX_WIDTH + GAP_X) - GAP_X;
  const height = 2 * MARGIN + rows * (BOX_HEIGHT + GAP_Y) - GAP_Y;
  const told = `A tree of ${tree.texts.length} nodes, ${layout.depth} deep; ${pass.accepted} were accepted`;
  return (
    <svg class="tree" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={told}>
      {tree.parents.map((parent, node) =>
        parent < 0 ? null : <Edge key={node} from={spots[parent]!} to={spots[node]!} kind={isAccepted[node] ? "kept" : "refused"} />,
      )}
      {bonus !== null && <Edge from={end} to={{ depth: end.depth + 1, row: end.row }} kind="bonus" />}
      {tree.texts.map((_, node) => (
        <Node key={node} tree={tree} node={node} place={spots[node]!} isAccepted={isAccepted[node]!} />
      ))}
      {bonus !== null && <BonusNode text={bonus} place={{ depth: end.depth + 1, row: end.row }} />}
    </svg>
  );
}

/** What the target said itself. */
function bonusOf(pass: Pass): string | null {
  return pass.texts[pass.accepted] ?? null;
}

/** Does it stand in the way of what the model said behind the path's end, or below that? */
function isBelow(place: Place, end: Place): boolean {
  return place.row > end.row || (place.row === end.row && place.depth > end.depth);
}

function Node({ tree, node, place, isAccepted }: { tree: Tree; node: number; place: Place; isAccepted: boolean }) {
  const origin = node === 0 ? "target" : ORIGINS[tree.origins[node]!]!;
  const text = tree.texts[node]!;
  const { x, y } = cornerOf(place);
  const share = node === 0 ? "anchor" : `${percent(tree.probs[node]!)} · ${percent(tree.values[node]!)}`;
  return (
    <g class={`node ${origin} ${isAccepted ? "kept" : "refused"}`}>
      <title>{titleOf(tree, node)}</title>
      <rect x={x} y={y} width={BOX_WIDTH} height={BOX_HEIGHT} rx={7} />
      <text class="what" x={x + BOX_WIDTH / 2} y={y + 16}>{visible(text, TEXT_LENGTH)}</text>
      <text class="share" x={x + BOX_WIDTH / 2} y={y + 31}>{share}</text>
    </g>
  );
}

function titleOf(tree: Tree, node: number): string {
  const text = visible(tree.texts[node]!);
  if (node === 0) return `${text}: the anchor, the last token before this pass`;
  const prob = tree.probs[node]! < 0 ? "the drafter did not propose it" : `the drafter gave it ${percent(tree.probs[node]!)}`;
  return `${text}: by the ${ORIGIN_WORDS[ORIGINS[tree.origins[node]!]!]}; ${prob}; chance to get here ${percent(tree.values[node]!)}`;
}

function BonusNode({ text, place }: { text: string; place: Place }) {
  const { x, y } = cornerOf(place);
  return (
    <g class="node bonus">
      <title>{visible(text)}: what the model said itself; the anchor of the next pass</title>
      <rect x={x} y={y} width={BOX_WIDTH} height={BOX_HEIGHT} rx={7} />
      <text class="what" x={x + BOX_WIDTH / 2} y={y + 16}>{visible(text, TEXT_LENGTH)}</text>
      <text class="share" x={x + BOX_WIDTH / 2} y={y + 31}>the model</text>
    </g>
  );
}

function Edge({ from, to, kind }: { from: Place; to: Place; kind: string }) {
  const start = cornerOf(from);
  const end = cornerOf(to);
  const x1 = start.x + BOX_WIDTH, y1 = start.y + BOX_HEIGHT / 2;
  const x2 = end.x, y2 = end.y + BOX_HEIGHT / 2;
  const middle = x1 + GAP_X / 2;
  return <path class={`edge ${kind}`} d={`M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`} />;
}

function cornerOf({ depth, row }: Place): { x: number; y: number } {
  return { x: MARGIN + depth * (BOX_WIDTH + GAP_X), y: MARGIN + row * (BOX_HEIGHT + GAP_Y) };
}
