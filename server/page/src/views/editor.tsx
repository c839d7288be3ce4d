// A question that is being changed, in its place.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { edit } from "../chat/chat";
import type { Conversation } from "../chat/conversation";
import type { Turn } from "../chat/turn";
import { isConverting, isSend } from "../shortcuts";
import { AttachedList, useAttached } from "./attached";
import { focusMessage } from "./focus";

interface Props {
  conversation: Conversation;
  turn: Turn;
  onClose: () => void;
}

export function Editor({ conversation, turn, onClose }: Props) {
  const [text, setText] = useState(turn.content);
  const attached = useAttached(turn.files);
  const { files, reading } = attached;
  const area = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => area.current!.focus(), []);
  const submit = (event?: Event) => {
    event?.preventDefault();
    if (reading || (!text.trim() && !files.length)) return;
    attached.clear();
    onClose();
    focusMessage();
    void edit(conversation, turn, text.trim(), files);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (isConverting(event)) return;
    if (event.key === "Escape") onClose();
    else if (isSend(event)) submit(event);
    else return;
    event.stopPropagation();
  };
  return (
    <form class="turn editor" onSubmit={submit}>
      <AttachedList attached={attached} conversation={turn.conversation} />
      <textarea
        aria-label="Edited question"
        dir="auto"
        value={text}
        ref={area}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKeyDown}
        onPaste={attached.onPaste}
      />
      <div class="buttons">
        <button type="button" onClick={onClose}>Cancel</button>
        <button type="submit" class="main" disabled={reading > 0}>Ask again</button>
      </div>
    </form>
  );
}
