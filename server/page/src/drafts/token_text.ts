// TokenText: the raw text of an answer, token by token, tinted by who proposed each. It only grows: what is drawn
// stays, and each line is a block of its own, so that a new token lays out one line and not the whole text.

import { ORIGINS, type Pass } from "./pass";

/** Deeper ones have the same tint. */
const DEEPEST = 8;

/** Which token an element shows: the pass's place in the list, and the token's in the pass. */
export interface TokenPlace {
  pass: number;
  token: number;
}

export class TokenText {
  #count = 0;
  #line = newLine();

  constructor(private readonly root: HTMLElement) {
    root.append(this.#line);
  }

  /** The last line, at whose end the cursor stands. */
  get lastLine(): HTMLElement {
    return this.#line;
  }

  /** Draw those of the passes that are not drawn yet, up to `end`. */
  grow(passes: readonly Pass[], end = passes.length): void {
    for (; this.#count < end; this.#count++) this.#drawPass(passes[this.#count]!, this.#count);
  }

  #drawPass(pass: Pass, index: number): void {
    let isFirst = true;
    const edge = pass.texts.length > 1 ? "first" : "first single";
    pass.texts.forEach((text, token) => {
      if (!text) return; // a part of a character, completed by the next token
      const classes = classesOf(pass, token);
      for (const piece of linesOf(text)) {
        const span = document.createElement("span");
        span.className = isFirst ? `${classes} ${edge}` : classes;
        if (/^\s*\n\s*$/.test(piece)) span.classList.add("newline");
        span.dataset["pass"] = String(index);
        span.dataset["token"] = String(token);
        span.textContent = piece;
        this.#line.append(span);
        isFirst = false;
        if (piece.endsWith("\n")) this.root.append((this.#line = newLine()));
      }
    });
  }
}

function classesOf(pass: Pass, token: number): string {
  const origin = ORIGINS[pass.origins[token]!];
  return origin === "target" ? "token target" : `token ${origin} d${Math.min(token + 1, DEEPEST)}`;
}

/** The text up to its last line's end, and the rest. */
function linesOf(text: string): string[] {
  const cut = text.lastIndexOf("\n") + 1;
  return [text.slice(0, cut), text.slice(cut)].filter(Boolean);
}

function newLine(): HTMLElement {
  const line = document.createElement("div");
  line.className = "line";
  return line;
}

export function placeOf(element: Element | null): TokenPlace | null {
  const token = element?.closest<HTMLElement>(".token");
  return token ? { pass: Number(token.dataset["pass"]), token: Number(token.dataset["token"]) } : null;
}
