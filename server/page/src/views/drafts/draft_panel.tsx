// What is shown below an answer while drafts are shown.

import { useState } from "preact/hooks";
import type { Turn } from "../../chat/turn";
import type { Passes } from "../../drafts/passes";
import { DraftFigures } from "./draft_figures";
import { Guess } from "./guess";
import { OriginLegend } from "./legend";
import { ReasonLegend, Strip } from "./strip";

interface Props {
  turn: Turn;
  passes: Passes;
  hasTokens: boolean;
  onOpen: (pass: number) => void;
}

export function DraftPanel({ turn, passes, hasTokens, onOpen }: Props) {
  const [isWide, setWide] = useState(false);
  return (
    <section class="drafts" aria-label="Drafts">
      {turn.state === "running" && <Guess passes={passes} count={passes.length} />}
      <DraftFigures turn={turn} passes={passes} />
      <Strip passes={passes} count={passes.length} onOpen={onOpen} />
      <ReasonLegend passes={passes} />
      {hasTokens && <OriginLegend />}
      <details class="strip-help" open={isWide} onToggle={(event) => setWide(event.currentTarget.open)}>
        <summary>How to read this</summary>
        <p>
          Each bar is one pass of the model. Filled: the tokens that it brought. Outline: what it could have brought at most,
          the tree's depth and one more token, which the model says itself. Below the line: how many nodes it verified. The
          colour is why the controller chose so many. Click a bar to see its tree.
        </p>
      </details>
    </section>
  );
}
