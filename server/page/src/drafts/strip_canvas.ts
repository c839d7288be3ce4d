// StripCanvas: draws the visible bars of the strip. The canvas stays in place; what scrolls is as wide as all passes.

import type { Pass } from "./pass";
import type { Passes } from "./passes";
import { reasonOf } from "./reasons";

export const BAR_WIDTH = 8;
const GAP = 2;
/** Above the line: tokens. Below it: nodes. */
const ABOVE = 46, BELOW = 14, LINE = 2;
export const STRIP_HEIGHT = ABOVE + LINE + BELOW;

export class StripCanvas {
  #colours = new Map<string, string>();
  #count = 0;
  #marked: number | null = null;
  #ruler = document.createElement("div");

  constructor(
    private readonly box: HTMLElement,
    private readonly canvas: HTMLCanvasElement,
    private readonly passes: Passes,
  ) {
    this.#ruler.className = "ruler";
    box.append(this.#ruler);
  }

  close(): void {
    this.#ruler.remove();
  }

  /** Show this many passes, one of them marked. */
  grow(count: number, marked: number | null): void {
    if (count !== this.#count) this.#ruler.style.width = `${count * BAR_WIDTH}px`;
    this.#count = count;
    this.#marked = marked;
    this.draw();
  }

  /** Colours have changed. */
  recolour(): void {
    this.#colours.clear();
    this.draw();
  }

  draw(): void {
    const { canvas, box } = this;
    const width = box.clientWidth;
    const scale = devicePixelRatio;
    if (canvas.width !== Math.round(width * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(STRIP_HEIGHT * scale);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${STRIP_HEIGHT}px`;
    }
    const context = canvas.getContext("2d")!;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, STRIP_HEIGHT);
    const left = box.scrollLeft;
    const end = Math.min(this.#count, Math.ceil((left + width) / BAR_WIDTH));
    for (let index = Math.floor(left / BAR_WIDTH); index < end; index++) {
      this.#drawBar(context, this.passes.list[index]!, index * BAR_WIDTH - left, index === this.#marked);
    }
    context.fillStyle = this.#colour("--line");
    context.fillRect(0, ABOVE, width, 1);
  }

  #drawBar(context: CanvasRenderingContext2D, pass: Pass, x: number, isMarked: boolean): void {
    const { mostTokens, mostNodes } = this.passes;
    const width = BAR_WIDTH - GAP;
    if (isMarked) {
      context.fillStyle = this.#colour("--soft");
      context.fillRect(x - GAP / 2, 0, BAR_WIDTH, STRIP_HEIGHT);
    }
    const unit = Math.min(10, (ABOVE - 2) / mostTokens);
    const colour = this.#colour(pass.number === 0 ? "--line" : `--${reasonOf(pass.reason).colour}`);
    const full = Math.min(pass.texts.length, mostTokens) * unit;
    context.fillStyle = colour;
    context.fillRect(x, ABOVE - full, width, full);
    if (pass.depth > 0) {
      context.strokeStyle = colour;
      const most = (pass.depth + 1) * unit;
      context.strokeRect(x + 0.5, ABOVE - most + 0.5, width - 1, most - 1);
    }
    if (pass.nodes > 1) {
      context.fillStyle = this.#colour("--edge");
      context.fillRect(x + 1, ABOVE + LINE, width - 2, Math.max(1, (BELOW * pass.nodes) / mostNodes));
    }
  }

  /** A canvas knows no CSS variables: the browser is asked once for their values. */
  #colour(name: string): string {
    const known = this.#colours.get(name);
    if (known) return known;
    this.#ruler.style.color = `var(${name})`;
    const colour = getComputedStyle(this.#ruler).color;
    this.#colours.set(name, colour);
    return colour;
  }
}
