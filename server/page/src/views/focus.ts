// Where the focus goes when what had it is gone: without this, to the page's beginning.

import type { Turn } from "../chat/turn";
import { isTouch } from "../shortcuts";

/** Focus what will be there when the page is drawn again, unless something else has got the focus. */
export function focusSoon(find: () => HTMLElement | null | undefined): void {
  requestAnimationFrame(() => document.activeElement === document.body && find()?.focus());
}

/** The message, unless a keyboard would open over the page. */
export function focusMessage(): void {
  if (!isTouch()) focusSoon(() => document.getElementById("message"));
}

/** The row behind a row that goes, or the one before it. A mouse needs none. */
export function focusNextRow(): void {
  const row = document.activeElement?.matches(":focus-visible") ? document.activeElement.closest("li") : null;
  if (!row) return;
  const next = (row.nextElementSibling ?? row.previousElementSibling)?.querySelector("button");
  focusSoon(() => next ?? document.getElementById("message"));
}

/** Of its element. */
export function idOf(turn: Turn): string {
  return `turn-${turn.id}`;
}

/** The first of these buttons of a turn that can be used. */
export function buttonOf(turn: Turn, ...labels: string[]): HTMLButtonElement | null | undefined {
  const buttons = document.getElementById(idOf(turn))?.querySelectorAll<HTMLButtonElement>("button:enabled") ?? [];
  return labels.map((label) => [...buttons].find((one) => one.ariaLabel === label)).find(Boolean);
}
