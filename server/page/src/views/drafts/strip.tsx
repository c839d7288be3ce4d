// A bar for each pass: what it brought, of what it could have brought, and how many nodes that cost.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { useCell } from "../../cell";
import type { Pass } from "../../drafts/pass";
import type { Passes } from "../../drafts/passes";
import { reasonOf } from "../../drafts/reasons";
import { BAR_WIDTH, StripCanvas } from "../../drafts/strip_canvas";
import { plural } from "../../drafts/words";
import { theme } from "../../settings/settings";

interface Props {
  passes: Passes;
  count: number;
  onOpen: (pass: number) => void;
}

/** How far from its end it still follows. */
const NEAR_PX = 24;

export function Strip({ passes, count, onOpen }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const drawing = useRef<StripCanvas | null>(null);
  const [at, setAt] = useState<number | null>(null);
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
    };
  }, [passes]);
  useLayoutEffect(() => drawing.current!.recolour(), [scheme]);
  useLayoutEffect(() => {
    const element = box.current!;
    const isAtEnd = element.scrollWidth - element.scrollLeft - element.clientWidth < NEAR_PX;
    drawing.current!.grow(count, at);
    if (isAtEnd && at === null) element.scrollLeft = element.scrollWidth;
  }, [passes, count, at]);

  const shown = at ?? count - 1;
  const go = (index: number) => {
    const next = Math.max(0, Math.min(count - 1, index));
    setAt(next);
    const element = box.current!;
    const left = next * BAR_WIDTH;
    if (left < element.scrollLeft) element.scrollLeft = left - 2 * BAR_WIDTH;
    else if (left > element.scrollLeft + element.clientWidth - BAR_WIDTH) element.scrollLeft = left - element.clientWidth + 3 * BAR_WIDTH;
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 20, PageDown: -20 };
    if (event.key === "Enter") onOpen(shown);
    else if (event.key === "Home") go(0);
    else if (event.key === "End") go(count - 1);
    else if (event.key in steps) go(shown + steps[event.key]!);
    else return;
    event.preventDefault();
  };
  const indexAt = (event: MouseEvent) => {
    const index = Math.floor((event.clientX - box.current!.getBoundingClientRect().left + box.current!.scrollLeft) / BAR_WIDTH);
    return index < count ? index : null;
  };
  const pass = passes.list[shown];
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
        onScroll={() => drawing.current!.draw()}
        onPointerMove={(event) => setAt(indexAt(event))}
        onPointerLeave={() => setAt(null)}
        onBlur={() => setAt(null)}
        onKeyDown={onKeyDown}
        onClick={(event) => {
          const index = indexAt(event);
          if (index !== null) onOpen(index);
        }}
      >
        <canvas ref={canvas} />
      </div>
      <p class="strip-told">{pass && toldOf(pass)}</p>
    </div>
  );
}

export function toldOf(pass: Pass): string {
  const tokens = plural(pass.texts.length, "token");
  if (pass.number === 0) return `pass 0, the prompt's last: ${tokens}`;
  const cost = pass.nodes > 1 ? ` from ${plural(pass.nodes, "node")}` : "";
  return `pass ${pass.number}: ${tokens}${cost}; ${pass.reason}`;
}

/** What the colours mean, for the reasons that there were. */
export function ReasonLegend({ passes }: { passes: Passes }) {
  return (
    <ul class="legend" aria-label="Why so many nodes">
      {[...passes.reasons].map(([name, count]) => (
        <li key={name} title={reasonOf(name).meaning}>
          <span class={`swatch ${reasonOf(name).colour}`} />
          {name} <small>{count.toLocaleString("en")}</small>
        </li>
      ))}
    </ul>
  );
}
