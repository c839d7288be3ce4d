// Builds the page into dist/: `npm run build`, or `make page` in the repository's root.

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
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

rmSync(OUT, { recursive: true, force: true });
mkdirSync(OUT);
const { metafile } = await build({
  absWorkingDir: ROOT,
  entryPoints: { page: "src/main.tsx" },
  outdir: "dist",
  bundle: true,
  minify: true,
  charset: "utf8",
  format: "esm",
  target: ["chrome123", "firefox120", "safari17.5"],
  jsx: "automatic",
  jsxImportSource: "preact",
  loader: { ".woff2": "file" },
  assetNames: "[name]",
  legalComments: "none",
  metafile: true,
  plugins: [oneFontFormat],
});
for (const name of ["index.html", "icon.svg"]) writeFileSync(join(OUT, name), readFileSync(join(ROOT, name)));
writeFileSync(join(OUT, "licenses.txt"), licenses(Object.keys(metafile.inputs)));
writeFileSync(join(OUT, "build.json"), `${JSON.stringify({ sources: hashOf(sources()), files: hashesOf(OUT) }, null, 1)}\n`);

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
