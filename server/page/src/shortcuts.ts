// Keyboard shortcuts.

export interface Deeds {
  newChat: () => void;
  search: () => void;
  settings: () => void;
  help: () => void;
  machine: () => void;
  stop: () => boolean;
  editLast: () => void;
}

interface Shortcut {
  keys: string;
  what: string;
}

const isMac = /Mac|iP/.test(navigator.platform);
const ALT = isMac ? "Ctrl ⌥" : "Alt";

/** What the help dialog lists. */
export const SHORTCUTS: Shortcut[] = [
  { keys: "Enter", what: "send the message" },
  { keys: "Shift Enter", what: "a new line" },
  { keys: "Escape", what: "stop the answer" },
  { keys: "↑", what: "edit the last question, from an empty message" },
  { keys: `${ALT} N`, what: "a new chat" },
  { keys: `${ALT} M`, what: "this machine" },
  { keys: "Ctrl K", what: "search the conversations" },
  { keys: "Ctrl ,", what: "settings" },
  { keys: "Ctrl /", what: "this list" },
];

/** Do what a key press asks for. */
export function onKeyDown(event: KeyboardEvent, deeds: Deeds): void {
  if (isConverting(event) || document.querySelector("dialog[open]")) return;
  const control = event.ctrlKey || event.metaKey;
  // On a Mac Option alone types letters (ñ); elsewhere Ctrl Alt is AltGr, and does.
  const alt = event.altKey && event.ctrlKey === isMac;
  if (alt && event.code === "KeyN") deeds.newChat();
  else if (alt && event.code === "KeyM") deeds.machine();
  else if (control && event.key === "k") deeds.search();
  else if (control && event.key === ",") deeds.settings();
  else if (control && event.key === "/") deeds.help();
  else if (event.key === "Escape") {
    if (!deeds.stop()) return;
  } else if (event.key === "ArrowUp" && isEmptyMessage(event.target)) deeds.editLast();
  else return;
  event.preventDefault();
}

const touch = matchMedia("(hover: none) and (pointer: coarse)");

/** Whether fingers type here, on a keyboard that covers the page and has no Shift Enter. */
export function isTouch(): boolean {
  return touch.matches;
}

/** Whether a key sends what is written. */
export function isSend(event: KeyboardEvent): boolean {
  if (event.key !== "Enter" || isConverting(event)) return false;
  return event.ctrlKey || event.metaKey || !(event.shiftKey || touch.matches);
}

/** Whether a key belongs to an input method (Japanese, say). Safari ends a conversion with a key of code 229. */
export function isConverting(event: KeyboardEvent): boolean {
  return event.isComposing || event.keyCode === 229;
}

function isEmptyMessage(target: EventTarget | null): boolean {
  return target instanceof HTMLTextAreaElement && target.id === "message" && !target.value;
}
