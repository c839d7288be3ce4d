// Formulas, by KaTeX. While an answer grows, its last paragraph is drawn many times, so drawn formulas are kept.

import katex from "katex";

const MAX_KEPT = 500;
const kept = new Map<string, HTMLElement>();

/** Draw the formulas of what the parser wrote. */
export function drawFormulas(root: ParentNode): void {
  for (const place of root.querySelectorAll<HTMLElement>("span.math")) {
    place.replaceChildren(drawn(place.textContent ?? "", place.classList.contains("math-display")));
  }
}

function drawn(text: string, displayMode: boolean): Node {
  const name = `${displayMode} ${text}`;
  let formula = kept.get(name);
  if (!formula) {
    formula = document.createElement("span");
    try {
      katex.render(text, formula, { displayMode, throwOnError: true, maxExpand: 200, maxSize: 20, errorColor: "var(--wrong)" });
    } catch {
      formula.className = "math-raw"; // incomplete so far, or wrong: shown as it was written
      formula.textContent = text;
    }
    if (kept.size >= MAX_KEPT) kept.clear();
    kept.set(name, formula);
  }
  return formula.cloneNode(true);
}
