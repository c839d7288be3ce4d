// What comes later: the parts of the page that its first paint does not wait for. They are fetched right after it, so
// that they are there when they are needed, and of the same build.

import { Cell } from "./cell";

/** null: not here yet; "failed": they could not be fetched. */
export const rest = new Cell<typeof import("./rest") | "failed" | null>(null);

export async function fetchRest(): Promise<void> {
  rest.value = await import("./rest").catch(() => "failed" as const);
}

/** Until then nothing else may take the browser's time. A hidden page does not paint, and nobody waits for it. */
const LATEST_MS = 1000;

/** The browser has painted something, or will not soon. */
export function firstPaint(): Promise<void> {
  return new Promise((resolve) => {
    setTimeout(resolve, document.hidden ? 0 : LATEST_MS);
    const observer = new PerformanceObserver((list) => {
      if (list.getEntriesByName("first-contentful-paint").length) resolve();
    });
    observer.observe({ type: "paint", buffered: true });
  });
}
