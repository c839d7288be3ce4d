// Small things that the browser remembers; what its storage refuses, only as long as the page is open.

const PREFIX = "dflash-local.";

class Memory {
  readonly #refused = new Map<string, string>();

  /** `storage` throws in a private window, say. */
  constructor(private readonly storage: () => Storage) {}

  recall(name: string): string | null {
    try {
      return this.#refused.get(name) ?? this.storage().getItem(PREFIX + name);
    } catch {
      return this.#refused.get(name) ?? null;
    }
  }

  /** null forgets it. */
  remember(name: string, value: string | null): void {
    this.#refused.delete(name);
    try {
      this.storage().removeItem(PREFIX + name); // first: what is full must not keep an older value
      if (value !== null) this.storage().setItem(PREFIX + name, value);
    } catch {
      if (value !== null) this.#refused.set(name, value);
    }
  }
}

/** For all tabs, for good. */
export const browserMemory = new Memory(() => localStorage);

/** For this tab, over reloads. */
export const tabMemory = new Memory(() => sessionStorage);
