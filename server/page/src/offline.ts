// What lets the page open while the server is away: a service worker (../worker/).

const WORKER = "page/sw.js";

/** Browsers allow one on this machine and over HTTPS; elsewhere the page works without. */
export function keepForLater(): void {
  // Trusted Types: the policy knows this one address.
  const rules = { createScriptURL: (address: string) => (address === WORKER ? address : "") };
  const policy = window.trustedTypes?.createPolicy("worker", rules);
  const address = (policy?.createScriptURL(WORKER) ?? WORKER) as string;
  navigator.serviceWorker?.register(address, { scope: "./", updateViaCache: "none" }).catch(() => undefined);
}

/** Whether the server's page is this one: a kept page may be older. */
export async function isServersPage(): Promise<boolean> {
  const own = document.querySelector<HTMLMetaElement>('meta[name="build"]')!.content;
  const index = await fetch("./", { cache: "no-cache" }).then((response) => response.text());
  return index.includes(`name="build" content="${own}"`);
}
