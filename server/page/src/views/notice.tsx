// A notice at the page's lower edge, with something to do about it.

import { Cell, useCell } from "../cell";

interface Notice {
  text: string;
  action?: { label: string; run: () => void };
}

const SHOWN_MS = 8000;
const notice = new Cell<Notice | null>(null);
let timer = 0;

export function notify(text: string, action?: Notice["action"]): void {
  clearTimeout(timer);
  notice.value = { text, action };
  timer = window.setTimeout(() => (notice.value = null), SHOWN_MS);
}

export function NoticeView() {
  const shown = useCell(notice);
  const act = () => {
    shown?.action?.run();
    notice.value = null;
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
