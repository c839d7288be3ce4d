// Behind the cursor: what was guessed where the model said something else, struck through and fading.

import { useLayoutEffect } from "preact/hooks";
import type { Pass } from "../../drafts/pass";
import { refusedBranch } from "../../drafts/tree_layout";
import { visible } from "../../drafts/words";

const LENGTH = 60;

export function Ghost({ pass, line }: { pass: Pass | undefined; line: () => HTMLElement | null }) {
  useLayoutEffect(() => {
    const cursor = document.createElement("span");
    cursor.className = "cursor";
    cursor.ariaHidden = "true";
    const text = pass?.tree ? refusedBranch(pass.tree).map((node) => pass.tree!.texts[node]!).join("") : "";
    if (text) {
      const ghost = document.createElement("del");
      ghost.textContent = visible(text, LENGTH);
      cursor.append(ghost);
    }
    line()?.append(cursor);
    return () => cursor.remove();
  }, [pass]);
  return null;
}
