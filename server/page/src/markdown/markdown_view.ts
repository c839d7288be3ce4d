// MarkdownView: Markdown that grows. Complete blocks are drawn once; only the last, open one is drawn again, so that
// the work does not grow with the square of the text. The same holds for the items of an open list. What begins on the
// last line is undecided: a star there may mark a list item, or begin bold text within the paragraph before it.

import type Token from "markdown-it/lib/token.mjs";
import { CodeBlock, fillCodeBlocks } from "./code_block";
import { drawFormulas } from "./formulas";
import { isList, isLoose, itemsOf, makeLoose, OpenList } from "./open_list";
import { parser } from "./parser";
import { sanitized } from "./sanitizer";

/** Where a token begins in the text. */
type PlaceOf = (token: Token) => number;

/** While the text grows, drawing may take one part of the time for this many of everything else. */
const REST = 4;

export class MarkdownView {
  #text = "";
  #isDone = false;
  /** Where the open block, or the open list's open item, begins. */
  #start = 0;
  /** What stands behind it is the open block. */
  #border = document.createComment("");
  /** The open block, if it is a fence without its end. */
  #code: CodeBlock | null = null;
  /** The open block, if it is a list with complete items. */
  #list: OpenList | null = null;
  /** What was drawn behind the open block and is undecided. */
  #unsettled: ChildNode[] = [];
  /** Link targets that the text defines, as last parsed: an incomplete one must not stay. */
  #environment: { references?: object } = {};
  #definesLinks = false;
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
    this.#list = null;
    this.#definesLinks = false;
    this.root.replaceChildren(this.#border);
  }

  #draw(): void {
    const begin = this.#start;
    const rest = this.#text.slice(begin);
    const placeOf: PlaceOf = (token) => begin + offsetOfLine(rest, token);
    this.#environment = {};
    const blocks = blocksOf(parser.parse(rest, this.#environment));
    this.#definesLinks ||= "references" in this.#environment;
    if (this.#isDone && this.#definesLinks && begin > 0) {
      this.#clear(); // a link's target may stand behind the link
      return this.#draw();
    }
    if (this.#list && !this.#isSame(this.#list, blocks[0] ?? [])) return this.#drawAgainFrom(this.#list.start);
    for (const node of this.#unsettled) node.remove();
    const unsettled = blocks.length > 1 && !this.#isSettled(placeOf(blocks.at(-1)![0]!)) ? blocks.pop()! : [];
    const open = blocks.at(-1) ?? [];
    if (blocks.length > 1) this.#closeBlocks(blocks.slice(0, -1), placeOf(open[0]!));
    this.#drawOpen(open, placeOf);
    const drawn = this.#drawn(unsettled);
    this.#unsettled = [...drawn.childNodes];
    this.root.append(drawn);
  }

  /** Whether the line that begins here is complete. */
  #isSettled(place: number): boolean {
    return this.#isDone || this.#text.indexOf("\n", place) >= 0;
  }

  /** Whether what was parsed from its open item on continues the drawn list. An empty line changes all items. */
  #isSame(list: OpenList, tokens: Token[]): boolean {
    return list.goesOnWith(tokens[0]) && (list.isLoose || !isLoose(tokens));
  }

  #drawAgainFrom(start: number): void {
    this.#removeOpen();
    this.#start = start;
    this.#draw();
  }

  /** Draw complete blocks for good; the text goes on at `end`. */
  #closeBlocks(blocks: Token[][], end: number): void {
    const list = this.#list;
    if (list) {
      const items = blocks.shift()!;
      list.close(this.#drawnItems(list, items));
      this.#border.before(list.element);
    }
    this.#removeOpen();
    this.#border.before(this.#drawn(blocks.flat()));
    this.#start = end;
  }

  #drawOpen(tokens: Token[], placeOf: PlaceOf): void {
    if (tokens[0]?.type === "fence") return this.#drawCode(tokens[0]);
    if (this.#list || this.#canBeginList(tokens, placeOf)) return this.#drawList(tokens, placeOf);
    this.#removeOpen();
    this.root.append(this.#drawn(tokens));
  }

  /** Whether there are complete items, and it is known if empty lines separate them. */
  #canBeginList(tokens: Token[], placeOf: PlaceOf): boolean {
    if (!isList(tokens[0])) return false;
    const items = itemsOf(tokens);
    return items.length > 1 && this.#isSettled(placeOf(items.at(-1)![0]!));
  }

  #drawList(tokens: Token[], placeOf: PlaceOf): void {
    if (!this.#list) {
      this.#removeOpen();
      this.#list = new OpenList(tokens[0]!, isLoose(tokens), this.#start);
      this.root.append(this.#list.element);
    }
    const list = this.#list;
    const items = itemsOf(tokens);
    const open = items.splice(this.#isSettled(placeOf(items.at(-1)![0]!)) ? -1 : -2);
    if (items.length) {
      list.close(this.#drawnItems(list, tokens, items));
      this.#start = placeOf(open[0]![0]!);
    }
    list.open(this.#drawnItems(list, tokens, open));
  }

  /** Items of a list that was parsed from one of them on: that part may be tight where the whole list is not. */
  #drawnItems(list: OpenList, tokens: Token[], items = itemsOf(tokens)): DocumentFragment {
    if (list.isLoose) makeLoose(tokens);
    return this.#drawn(items.flat());
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
    this.#list = null;
    while (this.#border.nextSibling) this.#border.nextSibling.remove();
  }

  #drawn(tokens: Token[]): DocumentFragment {
    const fragment = sanitized(parser.renderer.render(tokens, parser.options, this.#environment));
    setDirections(fragment);
    drawFormulas(fragment);
    fillCodeBlocks(fragment);
    for (const link of fragment.querySelectorAll("a")) {
      link.target = "_blank";
      link.rel = "noopener noreferrer";
    }
    return fragment;
  }
}

/** Each block has the direction of its first letter; items have their list's, which an own one would not count for. */
function setDirections(blocks: DocumentFragment): void {
  for (const block of blocks.children as HTMLCollectionOf<HTMLElement>) {
    if (block.localName !== "li") block.dir = "auto";
  }
}

/** The tokens of each block. */
function blocksOf(tokens: Token[]): Token[][] {
  const blocks: Token[][] = [];
  for (const token of tokens) {
    if (!blocks.length || (token.level === 0 && token.nesting >= 0 && token.map)) blocks.push([]);
    blocks.at(-1)!.push(token);
  }
  return blocks;
}

function offsetOfLine(text: string, token: Token): number {
  let offset = 0;
  for (let line = token.map?.[0] ?? 0; line > 0; line--) offset = text.indexOf("\n", offset) + 1;
  return offset;
}
