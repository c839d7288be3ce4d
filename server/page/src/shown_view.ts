// Which view is shown, the chat or the machine. It is in the address, so that it can be linked and left with Back.

import { Cell } from "./cell";

export type View = "chat" | "machine";

const MACHINE = "#machine";

export const shownView = new Cell<View>(fromAddress());

export function show(view: View): void {
  if (view === fromAddress()) return;
  if (view === "machine") location.hash = MACHINE;
  else history.pushState(null, "", location.pathname + location.search);
  shownView.value = view;
}

function fromAddress(): View {
  return location.hash === MACHINE ? "machine" : "chat";
}

for (const event of ["hashchange", "popstate"]) {
  addEventListener(event, () => {
    if (shownView.value !== fromAddress()) shownView.value = fromAddress();
  });
}
