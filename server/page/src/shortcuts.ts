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

/** What the help dialog lists. */
export const SHORTCUTS: Shortcut[] = [
  { keys: "Enter", what: "send the message" },
  { keys: "Shift Enter", what: "a new line" },
  { keys: "Escape", what: "stop the answer" },
  { keys: "↑", what: "edit the last question, from an empty message" },
  { keys: "Alt N", what: "a new chat" },
  { keys: "Alt M", what: "this machine" },
  { keys: "Ctrl K", what: "search the conversations" },
  { keys: "Ctrl ,", what: "settings" },
  { keys: "Ctrl /", what: "this list" },
];

/** Do what a key press asks for. */
export function onKeyDown(event: KeyboardEvent, deeds: Deeds): void {
  if (event.isComposing || document.querySelector("dialog[open]")) return;
  const control = event.ctrlKey || event.metaKey;
  if (event.altKey && event.code === "KeyN") deeds.newChat();
  else if (event.altKey && event.code === "KeyM") deeds.machine();
  else if (control && event.key === "k") deeds.search();
  else if (control && event.key === ",") deeds.settings();
  else if (control && event.key === "/") deeds.help();
  else if (event.key === "Escape") {
    if (!deeds.stop()) return;
  } else if (event.key === "ArrowUp" && isEmptyMessage(event.target)) deeds.editLast();
  else return;
  event.preventDefault();
}

function isEmptyMessage(target: EventTarget | null): boolean {
  return target instanceof HTMLTextAreaElement && target.id === "message" && !target.value;
}
