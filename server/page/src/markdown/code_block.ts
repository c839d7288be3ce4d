// A block of code: its language, a button that copies it, its text in colours. It can grow at its end.

import { copyText } from "../clipboard";
import { highlighted } from "./highlighter";

/** While code grows, it is coloured again only if it is shorter than this. */
const MAX_LIVE = 6000;
/** One over the share of time that colouring may take meanwhile. */
const REST = 10;

export class CodeBlock {
  readonly element = document.createElement("div");
  #code = document.createElement("code");
  #text = "";
  #colourAt = 0;

  constructor(readonly language: string) {
    const bar = document.createElement("div");
    bar.className = "code-bar";
    const name = document.createElement("span");
    name.textContent = language || "text";
    bar.append(name, this.#copyButton());
    const pre = document.createElement("pre");
    pre.tabIndex = 0;
    pre.append(this.#code);
    this.element.className = "code";
    this.element.append(bar, pre);
  }

  get text(): string {
    return this.#text;
  }

  /** The whole text so far; only what is new is drawn, as far as it can be. */
  grow(text: string): void {
    if (text === this.#text) return;
    if (!text.startsWith(this.#text)) this.#code.replaceChildren(text);
    else this.#code.append(text.slice(this.#text.length));
    this.#text = text;
    const now = performance.now();
    if (text.length > MAX_LIVE || now < this.#colourAt) return;
    this.#colour();
    this.#colourAt = now + REST * (performance.now() - now);
  }

  /** The code is complete. */
  close(text: string): void {
    this.#text = text;
    if (!this.#colour()) this.#code.replaceChildren(text);
  }

  #colour(): boolean {
    const fragment = highlighted(this.#text, this.language);
    if (fragment) this.#code.replaceChildren(fragment);
    return fragment !== null;
  }

  #copyButton(): HTMLButtonElement {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.onclick = async () => {
      button.textContent = (await copyText(this.#text.replace(/\n$/, ""))) ? "Copied" : "Failed";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    };
    return button;
  }
}

/** Turn the code that the parser wrote into blocks. */
export function fillCodeBlocks(root: ParentNode): void {
  for (const pre of root.querySelectorAll<HTMLElement>("pre[data-language]")) {
    const block = new CodeBlock(pre.dataset["language"] ?? "");
    block.close(pre.textContent ?? "");
    pre.replaceWith(block.element);
  }
}
