// Cell: a value that views listen to.

import { useLayoutEffect, useReducer } from "preact/hooks";

export class Cell<T> {
  #value: T;
  #listeners = new Set<() => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set value(value: T) {
    this.#value = value;
    for (const listener of [...this.#listeners]) listener();
  }

  /** Listen until the returned function is called. */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
}

/** The cell's value; the calling component is redrawn when it changes. */
export function useCell<T>(cell: Cell<T>): T;
export function useCell<T>(cell: Cell<T> | undefined): T | undefined;
export function useCell<T>(cell: Cell<T> | undefined): T | undefined {
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  useLayoutEffect(() => cell?.subscribe(() => redraw(undefined as never)), [cell]);
  return cell?.value;
}
