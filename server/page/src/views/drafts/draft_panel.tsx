// What is shown below an answer while drafts are shown.

import { useMemo, useState } from "preact/hooks";
import type { Turn } from "../../chat/turn";
import type { Passes } from "../../drafts/passes";
import { useNowAndThen } from "../now_and_then";
import { DraftFigures } from "./draft_figures";
import { Guess } from "./guess";
import { OriginLegend, ReasonLegend } from "./legend";
import { Strip } from "./strip";

/** More could not be followed, would flicker, and would take time from the model where both share cores. */
const EVERY_MS = 200;

interface Props {
  turn: Turn;
  passes: Passes;
  onOpen: (pass: number) => void;
}

export function DraftPanel({ turn, passes, onOpen }: Props) {
  const [isOpen, setOpen] = useState(false);
  const isRunning = turn.state === "running";
  const followed = useNowAndThen(passes.length, EVERY_MS);
  const count = isRunning ? Math.min(followed, passes.length) : passes.length;
  const parts = useMemo(
    () => (
      <>
        {isRunning && <Guess passes={passes} count={count} />}
        <DraftFigures turn={turn} passes={passes} />
        <Strip passes={passes} count={count} onOpen={onOpen} />
        <ReasonLegend passes={passes} />
      </>
    ),
    [turn, passes, count, isRunning],
  );
  return (
    <section class="drafts" aria-label="Drafts">
      {parts}
      <details class="strip-help" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>How to read this</summary>
        <OriginLegend />
        <p>
          Tokens: the tint is who guessed them, a thin edge is where a pass begins. Untinted ones the model said itself:
          each pass ends with one.
        </p>
        <p>
          Each bar is one pass of the model. Filled: the tokens that it brought. Outline: what it could have brought at
          most, the tree's depth and one more token, which the model says itself. Below the line: how many nodes it
          verified. The colour is why the controller chose so many. Click a bar to see its tree.
        </p>
      </details>
    </section>
  );
}
