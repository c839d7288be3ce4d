// Tells those who do not see the page how far the answer is. Why one failed, its own alert says.

import { useRef } from "preact/hooks";
import type { Turn } from "../chat/turn";

const WORDS = { running: "The model is answering.", done: "The answer is complete.", stopped: "Stopped.", failed: "" };

/** `leaf`: the last turn that is shown. Nothing is said of answers that were complete when they were shown. */
export function Announcement({ leaf }: { leaf: Turn | undefined }) {
  const watched = useRef("");
  if (leaf?.state === "running") watched.current = leaf.id;
  return <p class="off-screen" role="status">{leaf?.id === watched.current && WORDS[leaf.state]}</p>;
}
