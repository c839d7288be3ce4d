// Asks for the API key after the server has refused a request.

import { useRef } from "preact/hooks";
import { useCell } from "../cell";
import { asking, key } from "../server/keys";
import { Dialog } from "./dialog";

export function KeyDialog() {
  const answer = useCell(asking);
  const input = useRef<HTMLInputElement>(null);
  if (!answer) return null;
  const submit = (event: Event) => {
    event.preventDefault();
    answer(input.current!.value.trim());
  };
  return (
    <Dialog title="API key" class="small" onClose={() => answer(null)}>
      <form onSubmit={submit}>
        <p>
          {key() ? "The server does not accept the key that it was shown." : "This server asks for a key."} It stays in
          this browser.
        </p>
        <input ref={input} type="password" aria-label="API key" autocomplete="off" autofocus required />
        <div class="buttons">
          <button type="submit" class="main">Use this key</button>
        </div>
      </form>
    </Dialog>
  );
}
