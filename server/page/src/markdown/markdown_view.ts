// MarkdownView: Markdown that grows. Blocks that are complete are drawn once; only the last, open one is drawn again, so
// the work does not grow with the square of the text.

import type Token from "markdown-it/lib/token.mjs";
import { CodeBlock, fillCodeBlocks } from "./code_block";
import { drawFormulas } from "./formulas";
import { parser } from "./parser";
import { sanitized } from "./sanitizer";

/** The share of time that drawing may take while the text grows is one over this and one. */
const REST = 4;

export class MarkdownView {
  #text = "";
  #isDone = false;
  /** Where the open block begins. */
  #start = 0;
  /** What stands behind it is the open block. */
  #border = document.createComment("");
  /** The open block, if it is a fence without its end. */
  #code: CodeBlock | null = null;
  /** Link targets that the text defines. */
  #environment: { references?: object } = {};
  #drawAt = 0;
  #timer = 0;

  constructor(private readonly root: HTMLElement) {
    root.append(this.#border);
  }

  /** Draw this text; `isDone` if no more of it comes. */
  set(text: string, isDone: boolean): void {
    text = text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
    if (text === this.#text && isDone === this.#isDone) return;
    clearTimeout(this.#timer);
    const now = performance.now();
    if (!isDone && now < this.#drawAt) {
      this.#timer = window.setTimeout(() => this.set(text, isDone), this.#drawAt - now);
      return;
    }
    if (!text.startsWith(this.#text) || this.#isDone) this.#clear();
    this.#text = text;
    this.#isDone = isDone;
    this.#draw();
    this.#drawAt = now + REST * (performance.now() - now);
  }

  /** No timer may outlive the view. */
  close(): void {
    clearTimeout(this.#timer);
  }

  #clear(): void {
    this.#start = 0;
    this.#code = null;
    this.#environment = {};
    this.root.replaceChildren(this.#border);
  }

  #draw(): void {
    const rest = this.#text.slice(this.#start);
    const tokens = parser.parse(rest, this.#environment);
    if (this.#isDone && this.#environment.references && this.#start > 0) {
      this.#clear(); // a link's target may stand behind the link
      return this.#draw();
    }
    const last = lastBlock(tokens);
    if (last > 0) this.#close(tokens.slice(0, last), rest, tokens[last]!);
    this.#drawOpen(tokens.slice(last));
  }

  /** Draw complete blocks for good. */
  #close(tokens: Token[], rest: string, next: Token): void {
    this.#removeOpen();
    this.#border.before(this.#drawn(tokens));
    this.#start += offsetOfLine(rest, next.map![0]);
  }

  #drawOpen(tokens: Token[]): void {
    const only = tokens.length === 1 ? tokens[0]! : null;
    if (only?.type === "fence") return this.#drawCode(only);
    this.#removeOpen();
    this.root.append(this.#drawn(tokens));
  }

  #drawCode({ info, content }: Token): void {
    const language = info.trim().split(/\s+/)[0] ?? "";
    if (this.#code?.language !== language) {
      this.#removeOpen();
      this.#code = new CodeBlock(language);
      this.root.append(this.#code.element);
    }
    if (this.#isDone) this.#code.close(content);
    else this.#code.grow(content);
  }

  #removeOpen(): void {
    this.#code = null;
    while (this.#border.nextSibling) this.#border.nextSibling.remove();
  }

  #drawn(tokens: Token[]): DocumentFragment {
    const fragment = sanitized(parser.renderer.render(tokens, parser.options, this.#environment));
    drawFormulas(fragment);
    fillCodeBlocks(fragment);
    for (const link of fragment.querySelectorAll("a")) {
      link.target = "_blank";
      link.rel = "noopener noreferrer";
    }
    return fragment;
  }
}

/** Where the last block's tokens begin. */
function lastBlock(tokens: Token[]): number {
  let last = 0;
  for (const [index, token] of tokens.entries()) {
    if (token.level === 0 && token.nesting >= 0 && token.map) last = index;
  }
  return last;
}

function offsetOfLine(text: string, line: number): number {
  let offset = 0;
  for (; line > 0; line--) offset = text.indexOf("\n", offset) + 1;
  return offset;
}
