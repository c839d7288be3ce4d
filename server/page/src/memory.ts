// Small things that the browser remembers; without storage (a private window, say) only as long as the page is open.

const PREFIX = "dflash-local.";
const fallback = new Map<string, string>();

export function recall(name: string): string | null {
  try {
    return localStorage.getItem(PREFIX + name) ?? fallback.get(name) ?? null;
  } catch {
    return fallback.get(name) ?? null;
  }
}

/** null forgets it. */
export function remember(name: string, value: string | null): void {
  if (value === null) fallback.delete(name);
  else fallback.set(name, value);
  try {
    if (value === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, value);
  } catch {
    // it stays in `fallback`
  }
}
