// The address of a medium for the browser, as long as something shows it.

import { useEffect, useState } from "preact/hooks";
import { library } from "../chat/chat";
import type { Medium } from "../chat/turn";

/** A browser may just have begun to load it. */
const REVOKED_AFTER_MS = 1000;

/** null: not read yet; empty: its bytes are gone. `conversation` is null as long as it belongs to none. */
export function useMediumUrl(conversation: string | null, medium: Medium): string | null {
  const [url, setUrl] = useState<string | null>(null);
  useEffect(() => {
    let made = "";
    let isShown = true;
    const show = (bytes: ArrayBuffer) => {
      if (isShown) setUrl((made = URL.createObjectURL(new Blob([bytes], { type: medium.type }))));
    };
    library.bytesOf(conversation, medium).then(show, () => isShown && setUrl(""));
    return () => {
      isShown = false;
      if (made) setTimeout(() => URL.revokeObjectURL(made), REVOKED_AFTER_MS);
    };
  }, [conversation, medium.id]);
  return url;
}
