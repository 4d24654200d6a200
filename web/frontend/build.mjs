// Bundles the page: `node build.mjs TARGET` fills the folder TARGET with what the server hands out.
//
// Every file but index.html carries a hash of its content in its name, so that browsers may keep it
// for ever; beside each lies the same file packed with gzip. `manifest.json` maps the logical names
// to the file names. `notices.HASH.txt` holds the licences of the packages that ended up in a file.

import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));

async function bundle(target) {
  const { metafile } = await build({
    absWorkingDir: here,
    entryPoints: { main: "src/main.tsx", theme: "src/theme_early.ts", style: "src/style.css" },
    outdir: target,
    entryNames: "[name].[hash]",
    chunkNames: "[name].[hash]",
    bundle: true,
    splitting: true,
    minify: true,
    format: "esm",
    target: ["es2022"],
    legalComments: "none",
    metafile: true,
    logLevel: "warning",
  });
  return metafile;
}

/** Logical names of what esbuild wrote: `main.js` for `main.3F2A….js`. */
function outputs(metafile) {
  return Object.keys(metafile.outputs)
    .map((path) => basename(path))
    .map((file) => [file.replace(/\.[A-Z0-9]{8}\./, "."), file])
    .sort();
}

/** The packages of which a part is in the bundle, each with its licence as it came. */
function notices(metafile) {
  const packages = new Set();
  for (const input of Object.keys(metafile.inputs)) {
    const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (found) packages.add(found[1]);
  }
  const texts = [...packages].sort().map((name) => {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
    const text = file ? readFileSync(join(folder, file), "utf8").trim() : "";
    return `${name} ${version}, ${license}\n\n${text}\n`;
  });
  return `The page contains parts of these packages.\n\n${texts.join(`\n${"-".repeat(72)}\n\n`)}`;
}

function hashed(target, name, content) {
  const hash = createHash("sha256").update(content).digest("hex").slice(0, 8).toUpperCase();
  const file = name.replace(/(\.[a-z]+)$/, `.${hash}$1`);
  writeFileSync(join(target, file), content);
  return [name, file];
}

const target = resolve(process.argv[2] ?? join(here, "dist"));
mkdirSync(target, { recursive: true });
const metafile = await bundle(target);
const names = Object.fromEntries([
  ...outputs(metafile),
  hashed(target, "icon.svg", readFileSync(join(here, "src/icon.svg"))),
  hashed(target, "notices.txt", notices(metafile)),
]);
const page = readFileSync(join(here, "src/index.html"), "utf8");
writeFileSync(
  join(target, "index.html"),
  page.replace(/\{([a-z.]+)\}/g, (_, name) => `/assets/${names[name]}`),
);
writeFileSync(
  join(target, "manifest.json"),
  `${JSON.stringify({ "index.html": "index.html", ...names }, null, 1)}\n`,
);
for (const file of readdirSync(target)) {
  if (file === "manifest.json" || file.endsWith(".gz")) continue;
  writeFileSync(join(target, `${file}.gz`), gzipSync(readFileSync(join(target, file)), { level: 9 }));
}
