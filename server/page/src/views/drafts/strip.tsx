// A bar for each pass: the tokens that it brought, how many it could have brought, and how many nodes that cost.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { useCell } from "../../cell";
import type { Passes } from "../../drafts/passes";
import { BAR_WIDTH, StripCanvas } from "../../drafts/strip_canvas";
import { toldOf } from "../../drafts/words";
import { theme } from "../../settings/settings";

interface Props {
  passes: Passes;
  count: number;
  onOpen: (pass: number) => void;
}

/** How far from its end it still follows new passes. */
const NEAR_PX = 24;
const STEPS: Record<string, number> = {
  ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 20, PageDown: -20, Home: -Infinity, End: Infinity,
};

export function Strip({ passes, count, onOpen }: Props) {
  const [marked, setMarked] = useState<number | null>(null);
  const [box, canvas, draw] = useStripCanvas(passes, count, marked);
  const shown = marked ?? count - 1;
  const pass = passes.list[shown];

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter") onOpen(shown);
    else if (event.key in STEPS) {
      const next = Math.max(0, Math.min(count - 1, shown + STEPS[event.key]!));
      setMarked(next);
      bringIntoSight(box.current!, next);
    } else return;
    event.preventDefault();
  };
  const indexAt = (event: MouseEvent) => {
    const { left } = box.current!.getBoundingClientRect();
    const index = Math.floor((event.clientX - left + box.current!.scrollLeft) / BAR_WIDTH);
    return index < count ? index : null;
  };
  const onClick = (event: MouseEvent) => {
    const index = indexAt(event);
    if (index !== null) onOpen(index);
  };
  return (
    <div class="strip-place">
      <div
        class="strip"
        ref={box}
        tabIndex={0}
        role="slider"
        aria-label="Passes"
        aria-valuemin={0}
        aria-valuemax={Math.max(0, count - 1)}
        aria-valuenow={Math.max(0, shown)}
        aria-valuetext={pass ? toldOf(pass) : "none yet"}
        onScroll={draw}
        onPointerMove={(event) => setMarked(indexAt(event))}
        onPointerLeave={() => setMarked(null)}
        onBlur={() => setMarked(null)}
        onKeyDown={onKeyDown}
        onClick={onClick}
      >
        <canvas ref={canvas} />
      </div>
      <p class="strip-told">{pass && toldOf(pass)}</p>
    </div>
  );
}

/** The scrolled box, its canvas, and a function that draws what is in sight. */
function useStripCanvas(passes: Passes, count: number, marked: number | null) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const drawing = useRef<StripCanvas | null>(null);
  const scheme = useCell(theme);
  useLayoutEffect(() => {
    const view = new StripCanvas(box.current!, canvas.current!, passes);
    drawing.current = view;
    const observer = new ResizeObserver(() => view.draw());
    observer.observe(box.current!);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const recolour = () => view.recolour();
    dark.addEventListener("change", recolour);
    return () => {
      observer.disconnect();
      dark.removeEventListener("change", recolour);
      view.close();
    };
  }, [passes]);
  useLayoutEffect(() => drawing.current!.recolour(), [scheme]);
  useLayoutEffect(() => {
    const element = box.current!;
    const isAtEnd = element.scrollWidth - element.scrollLeft - element.clientWidth < NEAR_PX;
    drawing.current!.grow(count, marked);
    if (isAtEnd && marked === null) element.scrollLeft = element.scrollWidth;
  }, [passes, count, marked]);
  return [box, canvas, () => drawing.current!.draw()] as const;
}

function bringIntoSight(box: HTMLElement, index: number): void {
  const left = index * BAR_WIDTH;
  const last = box.scrollLeft + box.clientWidth - BAR_WIDTH;
  if (left < box.scrollLeft) box.scrollLeft = left - 2 * BAR_WIDTH;
  else if (left > last) box.scrollLeft += left - last + 2 * BAR_WIDTH;
}
