// Behind the cursor: what was guessed where the model said something else.

import type { Pass } from "./pass";
import { refusedBranch } from "./tree_layout";
import { visible } from "./words";

const LENGTH = 60;

/** Put a cursor at the end of a line, with what this pass guessed there in vain. Returns a function that removes it. */
export function putCursor(line: HTMLElement, pass: Pass | undefined): () => void {
  const cursor = document.createElement("span");
  cursor.className = "cursor";
  cursor.ariaHidden = "true";
  const text = pass?.tree ? refusedBranch(pass.tree).map((node) => pass.tree!.texts[node]!).join("") : "";
  if (text) {
    const ghost = document.createElement("del");
    ghost.dataset["text"] = visible(text, LENGTH);
    cursor.append(ghost);
  }
  line.append(cursor);
  return () => cursor.remove();
}
