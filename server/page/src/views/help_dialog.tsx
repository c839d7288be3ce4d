// The keys of the page.

import { SHORTCUTS } from "../shortcuts";
import { Dialog } from "./dialog";

export function HelpDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keyboard" class="small" onClose={onClose}>
      <dl class="shortcuts">
        {SHORTCUTS.map(({ keys, what }) => (
          <div key={keys}>
            <dt><kbd>{keys}</kbd></dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
