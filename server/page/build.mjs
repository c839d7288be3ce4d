// Builds the page into dist/: `npm run build`, or `make page` in the repository's root.

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const ROOT = dirname(fileURLToPath(import.meta.url));
const OUT = join(ROOT, "dist");

// KaTeX ships each font in three formats; every current browser reads the first.
const oneFontFormat = {
  name: "one-font-format",
  setup(builder) {
    builder.onLoad({ filter: /katex(\.min)?\.css$/ }, ({ path }) => ({
      contents: readFileSync(path, "utf8").replace(/,url\([^)]*\.(?:woff|ttf)\) format\("[^"]*"\)/g, ""),
      loader: "css",
    }));
  },
};

const COMMON = { absWorkingDir: ROOT, bundle: true, minify: true, charset: "utf8", legalComments: "none", outdir: "dist" };
const TARGET = ["chrome123", "firefox120", "safari17.5"];
const INDEX = "index.html";
const WORKER = "sw.js";

rmSync(OUT, { recursive: true, force: true });
mkdirSync(OUT);
const { metafile } = await build({
  ...COMMON,
  entryPoints: { page: "src/main.tsx" },
  format: "esm",
  splitting: true,
  target: TARGET,
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".woff2": "file" },
  // A name stands for its content, so browsers may keep such a file for good (server/page_file.py).
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  metafile: true,
  plugins: [oneFontFormat],
});
for (const name of readdirSync(join(ROOT, "app"))) writeFileSync(join(OUT, name), readFileSync(join(ROOT, "app", name)));
writeFileSync(join(OUT, "licenses.txt"), licenses(Object.keys(metafile.inputs)));
const BUILD = nameOfBuild();
writeFileSync(join(OUT, INDEX), index());
await buildWorker();
writeFileSync(join(OUT, "build.json"), `${JSON.stringify({ sources: hashOf(sources()), files: hashesOf(OUT) }, null, 1)}\n`);

/** The same only for the same files. */
function nameOfBuild() {
  const hash = createHash("sha256").update(readFileSync(join(ROOT, INDEX)));
  for (const [name, digest] of Object.entries(hashesOf(OUT))) hash.update(`${name} ${digest} `);
  return hash.digest("hex").slice(0, 16);
}

/** The page with the names of this build's files. */
function index() {
  const [script, entry] = Object.entries(metafile.outputs).find(([, output]) => output.entryPoint === "src/main.tsx");
  const imported = entry.imports.filter(({ kind }) => kind === "import-statement").map(({ path }) => basename(path));
  const links = imported.map((name) => `<link rel="modulepreload" href="page/${name}">\n`).join("");
  return readFileSync(join(ROOT, INDEX), "utf8")
    .replace("BUILD", BUILD)
    .replace("page.css", basename(entry.cssBundle))
    .replace("page.js", basename(script))
    .replace("</head>", `${links}</head>`);
}

/** What the service worker keeps from the start: scripts and styles; and what it keeps once it is used: fonts. */
async function buildWorker() {
  const built = Object.keys(metafile.outputs).map((path) => basename(path)).sort();
  const isFont = (name) => name.endsWith(".woff2");
  const lists = { NEEDED: built.filter((name) => !isFont(name)), OPTIONAL: built.filter(isFont), BUILD };
  const define = Object.fromEntries(Object.entries(lists).map(([name, value]) => [name, JSON.stringify(value)]));
  const entryPoints = { [basename(WORKER, ".js")]: "worker/service_worker.ts" };
  await build({ ...COMMON, entryPoints, format: "iife", target: TARGET, define });
}

/** The bundle's sources, except node_modules, which the lock file pins. tests/page/test_build.py has the same list. */
function sources() {
  const kept = (name) => !["dist", "node_modules"].includes(name.split(sep)[0]);
  return readdirSync(ROOT, { recursive: true })
    .filter((name) => kept(name) && statSync(join(ROOT, name)).isFile())
    .map((name) => name.split(sep).join("/"))
    .sort();
}

function hashOf(names) {
  const hash = createHash("sha256");
  for (const name of names) hash.update(`${name}\0`).update(readFileSync(join(ROOT, name))).update("\0");
  return hash.digest("hex");
}

function hashesOf(folder) {
  const names = readdirSync(folder).sort();
  return Object.fromEntries(
    names.map((name) => [name, createHash("sha256").update(readFileSync(join(folder, name))).digest("hex")]),
  );
}

/** The licence of every package that is in the bundle. */
function licenses(inputs) {
  const folders = inputs.map((path) => path.match(/^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//)?.[1]).filter(Boolean);
  return [...new Set(folders)].sort().map(licenseOf).join(`\n${"-".repeat(80)}\n\n`);
}

function licenseOf(folder) {
  const { name, version, license } = JSON.parse(readFileSync(join(ROOT, folder, "package.json"), "utf8"));
  const file = readdirSync(join(ROOT, folder)).find((entry) => /^licen[cs]e/i.test(entry));
  if (!file || !existsSync(join(ROOT, folder, file))) throw new Error(`${relative(ROOT, folder)} has no licence file`);
  return `${name} ${version} (${license})\n\n${readFileSync(join(ROOT, folder, file), "utf8").trim()}\n`;
}
