// The thread: the shown conversation. It follows a growing answer while its end is in sight.

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { useCell } from "../cell";
import { library, running } from "../chat/chat";
import { Announcement } from "./announcement";
import { IconButton } from "./icon";
import { TurnView } from "./turn_view";
import { Welcome } from "./welcome";

/** Within this distance the view counts as being at the end. */
const NEAR_PX = 80;

export function Thread() {
  const conversation = useCell(library.shown);
  useCell(conversation?.changes);
  const [box, isAtEnd, toEnd] = useEnd(conversation?.record.leaf ?? null);
  const path = conversation?.path() ?? [];
  const isLoaded = useCell(library.isLoaded);
  return (
    <main class="thread" ref={box} tabIndex={-1}>
      <div class="column">
        {conversation && path.length ? (
          path.map((turn, index) => (
            <TurnView key={turn.id} conversation={conversation} turn={turn} isLast={index === path.length - 1} />
          ))
        ) : (
          isLoaded && <Welcome />
        )}
      </div>
      <Announcement leaf={path.at(-1)} />
      {!isAtEnd && <IconButton icon="down" label="To the end" class="to-end" onClick={toEnd} />}
    </main>
  );
}

/** The scrolled box, whether its end is in sight, and a function that goes there. */
function useEnd(leaf: string | null) {
  const box = useRef<HTMLElement>(null);
  const follows = useRef(true);
  const [isAtEnd, setAtEnd] = useState(true);
  const toEnd = () => {
    follows.current = true;
    box.current!.scrollTop = box.current!.scrollHeight;
  };
  useLayoutEffect(() => {
    const element = box.current!;
    let top = 0;
    const look = () => {
      const isNear = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_PX;
      // The text may have grown since the page itself scrolled: only scrolling up leaves the end.
      if (isNear) follows.current = true;
      else if (element.scrollTop < top) follows.current = false;
      top = element.scrollTop;
      setAtEnd(isNear || follows.current);
    };
    element.addEventListener("scroll", look, { passive: true });
    const observer = new ResizeObserver(() => (follows.current ? toEnd() : look()));
    observer.observe(element.firstElementChild!);
    observer.observe(element);
    return () => {
      element.removeEventListener("scroll", look);
      observer.disconnect();
    };
  }, []);
  useLayoutEffect(() => {
    if (leaf === null || running.value.has(leaf) || follows.current) toEnd();
  }, [leaf]);
  return [box, isAtEnd, toEnd] as const;
}
