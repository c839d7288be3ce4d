// A value that changes often, slowed down so that it can be followed.

import { useEffect, useRef, useState } from "preact/hooks";

/** The newest value, at most once in this many milliseconds. */
export function useNowAndThen<T>(value: T, ms: number): T {
  const [shown, setShown] = useState(value);
  const newest = useRef(value);
  const timer = useRef(0);
  newest.current = value;
  useEffect(() => {
    timer.current ||= window.setTimeout(() => {
      timer.current = 0;
      setShown(newest.current);
    }, ms);
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return shown;
}
