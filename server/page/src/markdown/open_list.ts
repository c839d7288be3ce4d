// OpenList: a list at the end of a text that grows. Its complete items are drawn once, as complete blocks are.

import type Token from "markdown-it/lib/token.mjs";

export class OpenList {
  readonly element: HTMLElement;
  /** Behind it stand the open item, and an undecided one. */
  #border = document.createComment("");

  /** `start`: where it begins in the text. */
  constructor(
    private readonly list: Token,
    readonly isLoose: boolean,
    readonly start: number,
  ) {
    this.element = document.createElement(list.tag);
    const first = list.attrGet("start");
    if (first !== null) this.element.setAttribute("start", first);
    this.element.dir = "auto";
    this.element.append(this.#border);
  }

  /** Whether it continues this list, which was parsed from one of its items on. */
  goesOnWith(list: Token | undefined): boolean {
    return list?.type === this.list.type && list.markup === this.list.markup;
  }

  /** Draw items for good, in place of what is open. */
  close(items: Node): void {
    this.clear();
    this.#border.before(items);
  }

  /** Redraw what is open. */
  open(items: Node): void {
    this.clear();
    this.element.append(items);
  }

  private clear(): void {
    while (this.#border.nextSibling) this.#border.nextSibling.remove();
  }
}

export function isList(token: Token | undefined): token is Token {
  return token?.type === "bullet_list_open" || token?.type === "ordered_list_open";
}

/** The tokens of each item of a list. */
export function itemsOf(list: Token[]): Token[][] {
  const items: Token[][] = [];
  for (const token of list.slice(1, -1)) {
    if (token.level === 1 && token.type === "list_item_open") items.push([]);
    items.at(-1)!.push(token);
  }
  return items;
}

/** Whether an empty line separates items, which makes their texts paragraphs. */
export function isLoose(list: Token[]): boolean {
  return paragraphsOf(list).some((token) => !token.hidden);
}

export function makeLoose(list: Token[]): void {
  for (const token of paragraphsOf(list)) token.hidden = false;
}

function paragraphsOf(list: Token[]): Token[] {
  return list.filter((token) => token.level === 2 && /^paragraph_/.test(token.type));
}
