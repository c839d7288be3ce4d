// Files may be dropped anywhere on the page, which says so while they are above it.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { useCell } from "../cell";
import { namesOf } from "../chat/files";
import { modalities } from "../server/modalities";
import { show } from "../shown_view";

type OnFiles = (files: Iterable<File>) => void;

export function DropPlace({ onFiles }: { onFiles: OnFiles }) {
  const taken = useCell(modalities);
  if (!useDroppedFiles(onFiles)) return null;
  return <div class="drop-place"><p>Drop {namesOf(taken)} here</p></div>;
}

/** Whether files are above the page now. */
function useDroppedFiles(onFiles: OnFiles): boolean {
  const [isOver, setOver] = useState(false);
  const take = useRef(onFiles);
  take.current = onFiles;
  useLayoutEffect(() => {
    const over = (event: DragEvent) => {
      if (isTextForField(event)) return;
      event.preventDefault();
      setOver(!!event.dataTransfer?.types.includes("Files"));
    };
    const leave = (event: DragEvent) => !event.relatedTarget && setOver(false);
    const drop = (event: DragEvent) => {
      if (isTextForField(event)) return;
      event.preventDefault();
      setOver(false);
      show("chat");
      take.current([...(event.dataTransfer?.files ?? [])]);
    };
    const listeners = new AbortController();
    const { signal } = listeners;
    addEventListener("dragover", over, { signal });
    addEventListener("dragleave", leave, { signal });
    addEventListener("drop", drop, { signal });
    return () => listeners.abort();
  }, []);
  return isOver;
}

function isTextForField({ dataTransfer, target }: DragEvent): boolean {
  return !dataTransfer?.types.includes("Files") && (target as Element).matches?.("textarea, input");
}
