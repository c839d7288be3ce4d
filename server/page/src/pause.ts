// A pause that ends early where waiting makes no sense any more: the network is back, or somebody looks at the page.

export function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => {
    const over = new AbortController();
    const end = () => {
      clearTimeout(timer);
      over.abort();
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    addEventListener("online", end, { signal: over.signal });
    document.addEventListener("visibilitychange", () => document.hidden || end(), { signal: over.signal });
  });
}
