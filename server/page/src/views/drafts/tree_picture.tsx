// A verified tree as a picture: depth to the right, the accepted path bold along the top.

import { ORIGINS, type Pass, type Tree, UNKNOWN } from "../../drafts/pass";
import { layoutOf, type Place } from "../../drafts/tree_layout";
import { drafterWord, originWord, percent, visible } from "../../drafts/words";

const BOX_WIDTH = 92, BOX_HEIGHT = 38, GAP_X = 34, GAP_Y = 12, MARGIN = 10;
const TEXT_LENGTH = 11;

export function TreePicture({ pass, tree }: { pass: Pass; tree: Tree }) {
  const { places, isAccepted, bonus, columns, rows } = layoutOf(tree);
  const said = pass.texts[pass.accepted]; // by the target itself
  const width = 2 * MARGIN + columns * (BOX_WIDTH + GAP_X) - GAP_X;
  const height = 2 * MARGIN + rows * (BOX_HEIGHT + GAP_Y) - GAP_Y;
  const told = `A tree of ${tree.texts.length} nodes, ${pass.depth} deep; ${pass.accepted} were accepted`;
  return (
    <svg class="tree" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={told}>
      {tree.parents.map((parent, node) => {
        if (parent < 0) return null;
        const kind = isAccepted[node] ? "kept" : "refused";
        return <Edge key={node} from={places[parent]!} to={places[node]!} kind={kind} />;
      })}
      {said !== undefined && <Edge from={places[tree.path.at(-1) ?? 0]!} to={bonus} kind="bonus" />}
      {tree.texts.map((_, node) => (
        <Node key={node} tree={tree} node={node} place={places[node]!} isAccepted={isAccepted[node]!} />
      ))}
      {said !== undefined && <BonusNode text={said} place={bonus} />}
    </svg>
  );
}

function Node({ tree, node, place, isAccepted }: { tree: Tree; node: number; place: Place; isAccepted: boolean }) {
  const origin = node === 0 ? "target" : ORIGINS[tree.origins[node]!]!;
  const share = node === 0 ? "anchor" : `${percent(tree.probs[node]!)} · ${percent(tree.values[node]!)}`;
  const kind = `${origin} ${isAccepted ? "kept" : "refused"}`;
  return <Box place={place} kind={kind} title={titleOf(tree, node)} text={tree.texts[node]!} share={share} />;
}

interface BoxProps {
  place: Place;
  kind: string;
  title: string;
  text: string;
  share: string;
}

function Box({ place, kind, title, text, share }: BoxProps) {
  const { x, y } = cornerOf(place);
  return (
    <g class={`node ${kind}`}>
      <title>{title}</title>
      <rect x={x} y={y} width={BOX_WIDTH} height={BOX_HEIGHT} rx={7} />
      <text class="what" x={x + BOX_WIDTH / 2} y={y + 16}>{visible(text, TEXT_LENGTH)}</text>
      <text class="share" x={x + BOX_WIDTH / 2} y={y + 31}>{share}</text>
    </g>
  );
}

function titleOf(tree: Tree, node: number): string {
  const text = visible(tree.texts[node]!);
  if (node === 0) return `${text}: the anchor, the last token before this pass`;
  const by = originWord(ORIGINS[tree.origins[node]!]!);
  const drafter = drafterWord(tree.origins);
  const prob = tree.probs[node]!;
  const given = prob === UNKNOWN ? `the ${drafter} did not propose it` : `the ${drafter} gave it ${percent(prob)}`;
  return `${text}: by the ${by}; ${given}; chance to get here ${percent(tree.values[node]!)}`;
}

function BonusNode({ text, place }: { text: string; place: Place }) {
  const title = `${visible(text)}: what the model said itself; the anchor of the next pass`;
  return <Box place={place} kind="bonus" title={title} text={text} share="the model" />;
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
