// One pass: its tree, what came of it, and what it cost.

import { useRef, useState } from "preact/hooks";
import type { Pass } from "../../drafts/pass";
import type { Passes } from "../../drafts/passes";
import { reasonOf } from "../../drafts/reasons";
import { drafterWord, milliseconds, plural } from "../../drafts/words";
import { Dialog } from "../dialog";
import { IconButton } from "../icon";
import { Figure } from "./draft_figures";
import { OriginLegend } from "./legend";
import { TreePicture } from "./tree_picture";

interface Props {
  passes: Passes;
  /** The place in the list of the pass that is shown first. */
  first: number;
  onClose: () => void;
}

export function TreeDialog({ passes, first, onClose }: Props) {
  const [at, setAt] = useState(first);
  const pass = passes.list[at]!;
  const go = (step: number) => setAt(Math.max(0, Math.min(passes.length - 1, at + step)));
  const onKeyDown = (event: KeyboardEvent) => {
    // The picture's own keys move it.
    if ((event.target as Element).closest(".tree-box")) return;
    if (event.key === "ArrowLeft") go(-1);
    else if (event.key === "ArrowRight") go(1);
  };
  return (
    <Dialog title={`Pass ${pass.number}`} class="tree-dialog" onClose={onClose}>
      <div class="tree-body" onKeyDown={onKeyDown}>
        <div class="tree-head">
          <IconButton icon="left" label="Previous pass" disabled={at === 0} onClick={() => go(-1)} />
          <IconButton icon="right" label="Next pass" disabled={at === passes.length - 1} onClick={() => go(1)} />
          <p>{storyOf(pass)}</p>
        </div>
        {pass.tree ? <TreeBox key={at} pass={pass} /> : <p class="tree-none">{noTree(pass)}</p>}
        <Costs pass={pass} />
        {pass.tree && (
          <>
            <p class="note">
              Below each token: the probability that the {drafterWord(pass.tree.origins)} gave it after its parent, and the chance
              that the walk gets there, corrected by what was accepted before. Struck through: refused.
            </p>
            <OriginLegend />
          </>
        )}
      </div>
    </Dialog>
  );
}

/** The picture, moved by dragging, scrolling and keys. */
function TreeBox({ pass }: { pass: Pass }) {
  const box = useRef<HTMLDivElement>(null);
  const held = useRef<{ x: number; y: number } | null>(null);
  const move = (event: PointerEvent) => {
    if (!held.current) return;
    box.current!.scrollLeft -= event.clientX - held.current.x;
    box.current!.scrollTop -= event.clientY - held.current.y;
    held.current = { x: event.clientX, y: event.clientY };
  };
  const take = (event: PointerEvent) => {
    if (event.pointerType !== "mouse") return; // fingers scroll by themselves
    held.current = { x: event.clientX, y: event.clientY };
    box.current!.setPointerCapture(event.pointerId);
  };
  const release = () => (held.current = null);
  return (
    <div
      class="tree-box"
      ref={box}
      tabIndex={0}
      role="region"
      aria-label="The tree"
      onPointerDown={take}
      onPointerMove={move}
      onPointerUp={release}
      onPointerCancel={release}
    >
      <TreePicture pass={pass} tree={pass.tree!} />
    </div>
  );
}

function storyOf(pass: Pass): string {
  if (pass.number === 0) return "The prompt's last pass: it wrote the first token, and there was nothing to verify.";
  if (pass.nodes < 2) return `A plain pass: one token (${pass.reason}).`;
  const by = pass.denoised ? `, of a block of ${pass.denoised}` : "";
  return (
    `${plural(pass.nodes - 1, "token")} guessed${by}, all checked in one pass of the model. It kept ${pass.accepted} ` +
    `of at most ${pass.depth}, and the answer got ${plural(pass.texts.length, "token")}.`
  );
}

function noTree(pass: Pass): string {
  return pass.nodes > 1 ? "The trees of so long an answer are not all kept." : "No tree: nothing was guessed.";
}

function Costs({ pass }: { pass: Pass }) {
  const total = pass.draftMs + pass.verifyMs;
  const count = pass.texts.length;
  const { meaning } = reasonOf(pass.reason);
  return (
    <dl class="costs">
      {pass.number > 0 && <Figure name="why">{pass.reason}{meaning && <small> {meaning}</small>}</Figure>}
      <Figure name="verify">{milliseconds(pass.verifyMs)}</Figure>
      <Figure name="draft">{milliseconds(pass.draftMs)}</Figure>
      {count > 0 && pass.number > 0 && <Figure name="per token">{milliseconds(total / count)}</Figure>}
      {pass.plainMs > 0 && pass.number > 0 && <Figure name="plain, per token">{milliseconds(pass.plainMs)}</Figure>}
    </dl>
  );
}
