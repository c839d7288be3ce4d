// The composer: where questions are written.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { useCell } from "../cell";
import { library, running, runningIn, send } from "../chat/chat";
import { readTextFile } from "../chat/files";
import type { TextFile } from "../chat/turn";
import { facts } from "../server/facts";
import { DraftSwitches } from "./drafts/switches";
import { Icon, IconButton } from "./icon";
import { notify } from "./notice";

export function Composer() {
  const conversation = useCell(library.shown);
  useCell(conversation?.changes);
  useCell(running);
  const isReady = useCell(facts).state === "ready";
  const [text, setText] = useState("");
  const [files, setFiles] = useState<TextFile[]>([]);
  const area = useRef<HTMLTextAreaElement>(null);
  const answer = runningIn(conversation);

  const attach = async (given: Iterable<File>) => {
    for (const file of given) {
      try {
        const read = await readTextFile(file);
        setFiles((others) => [...others, read]);
      } catch (error) {
        notify((error as Error).message);
      }
    }
  };
  useDroppedFiles(attach);
  useLayoutEffect(() => grow(area.current!), [text]);
  useLayoutEffect(() => area.current!.focus(), [conversation]);

  const submit = (event: Event) => {
    event.preventDefault();
    // During an answer Enter does nothing: the text stays.
    if (answer || !isReady || (!text.trim() && !files.length)) return;
    void send(text.trim(), files);
    setText("");
    setFiles([]);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  };
  const onPaste = (event: ClipboardEvent) => {
    const pasted = [...(event.clipboardData?.files ?? [])];
    if (!pasted.length) return;
    event.preventDefault();
    void attach(pasted);
  };
  const drop = (index: number) => setFiles(files.filter((_, other) => other !== index));

  return (
    <form class="composer" aria-label="Your message" onSubmit={submit}>
      {files.length > 0 && <Files files={files} onRemove={drop} />}
      <div class="composer-row">
        <FileButton onFiles={attach} />
        <textarea
          id="message"
          ref={area}
          rows={1}
          aria-label="Message"
          placeholder="Message"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={onKeyDown}
          onPaste={onPaste}
        />
        {answer ? (
          <IconButton icon="stop" label="Stop" class="send" onClick={() => answer.stop()} />
        ) : (
          <IconButton icon="send" label="Send" type="submit" class="send" disabled={!isReady} />
        )}
      </div>
      <DraftSwitches />
    </form>
  );
}

function Files({ files, onRemove }: { files: TextFile[]; onRemove: (index: number) => void }) {
  return (
    <ul class="chips" aria-label="Attached files">
      {files.map((file, index) => (
        <li key={index}>
          <Icon name="file" />
          {file.name}
          <IconButton icon="close" label={`Remove ${file.name}`} onClick={() => onRemove(index)} />
        </li>
      ))}
    </ul>
  );
}

function FileButton({ onFiles }: { onFiles: (files: Iterable<File>) => void }) {
  const input = useRef<HTMLInputElement>(null);
  const onChange = () => {
    onFiles([...(input.current!.files ?? [])]);
    input.current!.value = "";
  };
  return (
    <>
      <input ref={input} type="file" multiple hidden aria-label="Text files" onChange={onChange} />
      <IconButton icon="attach" label="Attach text files" onClick={() => input.current!.click()} />
    </>
  );
}

/** Files may be dropped anywhere on the page. */
function useDroppedFiles(onFiles: (files: Iterable<File>) => void): void {
  const take = useRef(onFiles);
  take.current = onFiles;
  useLayoutEffect(() => {
    const over = (event: DragEvent) => event.preventDefault();
    const drop = (event: DragEvent) => {
      event.preventDefault();
      take.current([...(event.dataTransfer?.files ?? [])]);
    };
    addEventListener("dragover", over);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", over);
      removeEventListener("drop", drop);
    };
  }, []);
}

/** As high as its text; the style sheet bounds it. */
function grow(area: HTMLTextAreaElement): void {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight}px`;
}
