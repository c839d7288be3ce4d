// A text as Markdown.

import { useLayoutEffect, useRef } from "preact/hooks";
import { MarkdownView } from "../markdown/markdown_view";

export function Markdown({ text, isDone }: { text: string; isDone: boolean }) {
  const root = useRef<HTMLDivElement>(null);
  const view = useRef<MarkdownView | null>(null);
  useLayoutEffect(() => {
    view.current ??= new MarkdownView(root.current!);
    view.current.set(text, isDone);
  }, [text, isDone]);
  useLayoutEffect(() => () => view.current?.close(), []);
  return <div class="markdown" ref={root} />;
}
