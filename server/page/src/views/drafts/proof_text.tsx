// One side of the proof: a text, token by token, that scrolls to its end.

import { useLayoutEffect, useRef } from "preact/hooks";
import type { Passes } from "../../drafts/passes";
import { TokenText } from "../../drafts/token_text";

export function ProofText({ passes, count, label }: { passes: Passes; count: number; label: string }) {
  const root = useRef<HTMLDivElement>(null);
  const text = useRef<TokenText | null>(null);
  const follows = useRef(true);
  useLayoutEffect(() => {
    const element = root.current!;
    text.current ??= new TokenText(element);
    text.current.grow(passes.list, count);
    if (follows.current) element.scrollTop = element.scrollHeight;
  }, [passes, count]);
  const look = () => {
    const { scrollHeight, scrollTop, clientHeight } = root.current!;
    follows.current = scrollHeight - scrollTop - clientHeight < 40;
  };
  return <div class="tokens proof-text" ref={root} tabIndex={0} role="group" aria-label={label} onScroll={look} />;
}
