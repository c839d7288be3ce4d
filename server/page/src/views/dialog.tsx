// A dialog: the browser's own, which keeps the focus inside and closes with Escape.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { IconButton } from "./icon";

interface Props {
  title: string;
  class?: string;
  onClose: () => void;
  onKeyDown?: (event: KeyboardEvent) => void;
  children: ComponentChildren;
}

export function Dialog({ title, onClose, onKeyDown, children, ...rest }: Props) {
  const element = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    if (!element.current!.open) element.current!.showModal();
  }, []);
  const closeOutside = (event: MouseEvent) => event.target === element.current && onClose();
  return (
    <dialog
      ref={element}
      class={rest.class}
      aria-label={title}
      onClose={onClose}
      onMouseDown={closeOutside}
      onKeyDown={onKeyDown}
    >
      <header>
        <h2>{title}</h2>
        <IconButton icon="close" label="Close" onClick={onClose} />
      </header>
      {children}
    </dialog>
  );
}
