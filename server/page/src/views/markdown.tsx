// A text as Markdown.

import { useLayoutEffect, useRef } from "preact/hooks";
import { useCell } from "../cell";
import { rest } from "../later";
import type { MarkdownView } from "../markdown/markdown_view";

export function Markdown({ text, isDone }: { text: string; isDone: boolean }) {
  const root = useRef<HTMLDivElement>(null);
  const view = useRef<MarkdownView | null>(null);
  const parts = useCell(rest);
  useLayoutEffect(() => {
    if (!parts || parts === "failed") return;
    view.current ??= new parts.MarkdownView(root.current!);
    view.current.set(text, isDone);
  }, [parts, text, isDone]);
  useLayoutEffect(() => () => view.current?.close(), []);
  if (parts === "failed") return <div class="markdown raw" dir="auto">{text}</div>;
  return <div class="markdown" ref={root} />;
}
