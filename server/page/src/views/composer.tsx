// The composer: where questions are written.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { useCell } from "../cell";
import { isAnswering, library, running, send, stopShown } from "../chat/chat";
import { tabMemory } from "../memory";
import { facts } from "../server/facts";
import { isSend } from "../shortcuts";
import { AttachedList, useAttached } from "./attached";
import { DraftSwitches } from "./drafts/switches";
import { DropPlace } from "./drop_place";
import { FileButtons } from "./file_buttons";
import { IconButton } from "./icon";

const WRITTEN = "written";

export function Composer() {
  const conversation = useCell(library.shown);
  useCell(conversation?.changes);
  useCell(running);
  const isReady = useCell(facts).state === "ready";
  const [text, setText] = useWritten();
  const attached = useAttached();
  const { files, reading } = attached;
  const area = useRef<HTMLTextAreaElement>(null);
  const isRunning = isAnswering(conversation);
  const canSend = isReady && !reading && !isRunning;

  useLayoutEffect(() => grow(area.current!), [text]);
  useLayoutEffect(() => area.current!.focus(), [conversation]);

  const submit = (event: Event) => {
    event.preventDefault();
    // During an answer Enter does nothing: the text stays.
    if (!canSend || (!text.trim() && !files.length)) return;
    void send(text.trim(), files);
    setText("");
    attached.clear();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (isSend(event)) submit(event);
  };

  return (
    <form class="composer" aria-label="Your message" onSubmit={submit}>
      <AttachedList attached={attached} conversation={null} />
      <div class="composer-row">
        <FileButtons onFiles={attached.attach} />
        <textarea
          id="message"
          ref={area}
          rows={1}
          aria-label="Message"
          dir="auto"
          placeholder="Message"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={onKeyDown}
          onPaste={attached.onPaste}
        />
        {/* Two buttons, by their keys: a click on Stop must not become one on Send. */}
        {isRunning ? (
          <IconButton key="stop" icon="stop" label="Stop" class="send" onClick={stopShown} />
        ) : (
          <IconButton key="send" icon="send" label="Send" type="submit" class="send" disabled={!canSend} />
        )}
      </div>
      <DraftSwitches />
      <DropPlace onFiles={attached.attach} />
    </form>
  );
}

/** What is written and not sent yet. It outlives a reload. */
function useWritten(): [string, (text: string) => void] {
  const [text, setText] = useState(() => tabMemory.recall(WRITTEN) ?? "");
  const write = (written: string) => {
    setText(written);
    tabMemory.remember(WRITTEN, written || null);
  };
  return [text, write];
}

/** As high as its text; the style sheet bounds it. */
function grow(area: HTMLTextAreaElement): void {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight}px`;
}
