// The service worker: lets the page open while the server is away. It keeps the files of one build, and only those:
// questions, answers and keys pass it by, on their way to the server.

export {};

declare const self: ServiceWorkerGlobalScope;

/** Filled in by build.mjs: the build's name, the files that the page needs, and those that it may need later. */
declare const BUILD: string;
declare const NEEDED: string[];
declare const OPTIONAL: string[];

const { scope } = self.registration;
/** Servers behind one name, at different paths, share their caches. */
const OWN = `dflash-local ${scope} `;
const CACHE = OWN + BUILD;
const FOLDER = `${scope}page/`;
const FILES = new Set([...NEEDED, ...OPTIONAL].map((name) => FOLDER + name));

/** So long a server may take for the page before it counts as away. */
const PATIENCE_MS = 4000;
/** Of a proxy whose server is away. */
const AWAY = [502, 503, 504];

self.addEventListener("install", (event) => event.waitUntil(fill()));
self.addEventListener("activate", (event) => event.waitUntil(drop((name) => name !== CACHE)));
self.addEventListener("fetch", (event) => {
  const { method, mode, url } = event.request;
  const address = url.replace(/[?#].*/, "");
  if (method !== "GET") return;
  if (mode === "navigate" && address === scope) event.respondWith(page(event));
  else if (FILES.has(address)) event.respondWith(file(event.request));
});

/** All or nothing: a build of which a file is missing is not installed. */
async function fill(): Promise<void> {
  const addresses = [scope, ...NEEDED.map((name) => FOLDER + name)];
  const cache = await caches.open(CACHE);
  await cache.addAll(addresses.map((address) => new Request(address, { cache: "no-cache", redirect: "error" })));
  await self.skipWaiting();
}

/** Remove those of our caches that are meant. */
async function drop(isMeant: (name: string) => boolean): Promise<void> {
  const names = (await caches.keys()).filter((name) => name.startsWith(OWN) && isMeant(name));
  await Promise.all(names.map((name) => caches.delete(name)));
}

/** The server's page; the kept one only if the server is away. */
async function page(event: FetchEvent): Promise<Response> {
  const asked = fetch(event.request);
  const answer = await Promise.race([asked.catch(() => null), pause(PATIENCE_MS)]);
  if (answer && !AWAY.includes(answer.status)) {
    event.waitUntil(leaveUnlessServed(answer.clone()));
    return answer;
  }
  return (await keptAnswer(scope)) ?? answer ?? asked;
}

function pause(milliseconds: number): Promise<null> {
  return new Promise((resolve) => setTimeout(() => resolve(null), milliseconds));
}

/** Names of these files stand for their content, so a kept one is never old. */
async function file(request: Request): Promise<Response> {
  const kept = await keptAnswer(request.url);
  if (kept) return kept;
  const answer = await fetch(request);
  if (answer.status === 200) await keep(request.url, answer.clone());
  return answer;
}

/** undefined if there is none, or if the browser cannot read it any more. */
async function keptAnswer(address: string): Promise<Response | undefined> {
  return caches.match(address, { cacheName: CACHE, ignoreVary: true }).catch(() => undefined);
}

/** The browser may have no room. */
async function keep(address: string, answer: Response): Promise<void> {
  await caches.open(CACHE).then((cache) => cache.put(address, answer)).catch(() => undefined);
}

/** Go if something else lives at this address by now: another program, or a server without a page. */
async function leaveUnlessServed(answer: Response): Promise<void> {
  if (answer.status !== 404 && !answer.ok) return;
  if (answer.ok && (await answer.text()).includes('name="application-name" content="dflash-local"')) return;
  await self.registration.unregister();
  await drop(() => true);
}
