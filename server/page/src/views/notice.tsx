// A notice at the page's lower edge, with something to do about it. It stays while somebody points at it or is in it.

import { Cell, useCell } from "../cell";
import { focusMessage } from "./focus";

interface Notice {
  text: string;
  action?: { label: string; run: () => void };
}

const SHOWN_MS = 8000;
/** With something to do: its button is the last one that the Tab key reaches. */
const TO_DO_MS = 20_000;
const IN_USE_MS = 1000;
const notice = new Cell<Notice | null>(null);
let timer = 0;

export function notify(text: string, action?: Notice["action"]): void {
  notice.value = { text, action };
  hideAfter(action ? TO_DO_MS : SHOWN_MS);
}

function hideAfter(milliseconds: number): void {
  clearTimeout(timer);
  timer = window.setTimeout(() => {
    if (document.querySelector(".notice:is(:hover, :focus-within)")) hideAfter(IN_USE_MS);
    else notice.value = null;
  }, milliseconds);
}

export function NoticeView() {
  const shown = useCell(notice);
  const act = () => {
    shown?.action?.run();
    notice.value = null;
    focusMessage();
  };
  return (
    <div class="notice-place" role="status">
      {shown && (
        <div class="notice">
          <span>{shown.text}</span>
          {shown.action && <button type="button" onClick={act}>{shown.action.label}</button>}
        </div>
      )}
    </div>
  );
}
