// The width of an element, as it changes: plots are drawn in real pixels, so that their text can be read on a phone.

import type { RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

export function useWidth<T extends HTMLElement>(): [RefObject<T>, number] {
  const element = useRef<T>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry!.contentRect.width)));
    observer.observe(element.current!);
    setWidth(Math.floor(element.current!.getBoundingClientRect().width));
    return () => observer.disconnect();
  }, []);
  return [element, width];
}
