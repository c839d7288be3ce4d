// Files that go with a question that is being written.

import { useEffect, useRef, useState } from "preact/hooks";
import { library } from "../chat/chat";
import { readFile } from "../chat/files";
import { type Attachment, isMedium, isPicture, type Medium } from "../chat/turn";
import { modalities } from "../server/modalities";
import { Icon, IconButton } from "./icon";
import { useMediumUrl } from "./medium_url";
import { notify } from "./notice";

export interface Attached {
  files: Attachment[];
  /** So many are being read. */
  reading: number;
  attach: (given: Iterable<File>) => Promise<void>;
  onPaste: (event: ClipboardEvent) => void;
  remove: (index: number) => void;
  /** They were sent. */
  clear: () => void;
}

/** `first` are there from the start. */
export function useAttached(first: Attachment[] = []): Attached {
  const [files, setFiles] = useState(first);
  const [reading, setReading] = useState(0);
  /** Those that were attached here and not sent: no turn names them. */
  const unsent = useRef(new Set<Attachment>()).current;
  const closed = useRef(false);
  const close = () => {
    closed.current = true;
    library.release([...unsent]);
  };
  useEffect(() => close, []);
  const attach = async (given: Iterable<File>) => {
    const list = [...given];
    const troubles: string[] = [];
    setReading((count) => count + list.length);
    for (const file of list) {
      try {
        const read = await readFile(file, modalities.value);
        if (closed.current) return; // nothing would release it
        if ("bytes" in read) library.hold(read.file, read.bytes);
        unsent.add(read.file);
        setFiles((others) => [...others, read.file]);
      } catch (error) {
        troubles.push((error as Error).message);
      }
      setReading((count) => count - 1);
    }
    if (troubles.length) notify(troubles.join(" "));
  };
  const onPaste = (event: ClipboardEvent) => {
    const pasted = pastedFiles(event);
    if (!pasted.length) return;
    event.preventDefault();
    void attach(pasted);
  };
  const remove = (index: number) => {
    const file = files[index]!;
    if (unsent.delete(file)) library.release([file]);
    setFiles(files.filter((other) => other !== file));
  };
  const clear = () => {
    unsent.clear();
    setFiles([]);
  };
  return { files, reading, attach, onPaste, remove, clear };
}

/** The files of the clipboard. Office programs also put a picture of copied text there: then it is the text. */
function pastedFiles({ clipboardData }: ClipboardEvent): File[] {
  const types = clipboardData?.types ?? [];
  const isText = types.includes("text/plain") && types.includes("text/html");
  return isText ? [] : [...(clipboardData?.files ?? [])];
}

/** `conversation` is null as long as the files belong to none. */
export function AttachedList({ attached, conversation }: { attached: Attached; conversation: string | null }) {
  const { files, reading, remove } = attached;
  if (!files.length && !reading) return null;
  return (
    <ul class="chips" aria-label="Attached files">
      {files.map((file, index) => (
        <li key={isMedium(file) ? file.id : index} class={isMedium(file) && isPicture(file) ? "thumbnail" : ""}>
          {isMedium(file) && isPicture(file) ? (
            <Thumbnail picture={file} conversation={conversation} />
          ) : (
            <><Icon name={isMedium(file) ? "sound" : "file"} />{file.name}</>
          )}
          <IconButton icon="close" label={`Remove ${file.name}`} onClick={() => remove(index)} />
        </li>
      ))}
      {Array.from({ length: reading }, (_, index) => (
        <li key={`reading ${index}`} class="thumbnail reading" aria-label="being read" />
      ))}
    </ul>
  );
}

function Thumbnail({ picture, conversation }: { picture: Medium; conversation: string | null }) {
  return <img src={useMediumUrl(conversation, picture) ?? undefined} alt={picture.name} title={picture.name} />;
}
