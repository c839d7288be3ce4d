// What the model thought before it answered: folded, and drawn only when it is opened.

import { useState } from "preact/hooks";
import type { Turn } from "../chat/turn";
import { seconds } from "./figures";
import { Markdown } from "./markdown";

export function Thoughts({ turn }: { turn: Turn }) {
  const [isOpen, setOpen] = useState(false);
  if (!turn.reasoning) return null;
  const isThinking = turn.state === "running" && !turn.content && !turn.toolCalls.length;
  const time = turn.thoughtMs ? ` for ${seconds(turn.thoughtMs)}` : "";
  return (
    <details class="thoughts" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary class={isThinking ? "busy" : ""}>{isThinking ? `Thinking${time}` : `Thought${time}`}</summary>
      {isOpen && <Markdown text={turn.reasoning} isDone={!isThinking} />}
    </details>
  );
}
