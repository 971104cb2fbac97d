// Compiles the contracts and writes their artifacts; with --check compares with the committed ones instead.
// The same source gives the same bytes on every machine: everything that could vary is fixed in `settings`.
import crypto from "node:crypto";
import fs from "node:fs";

const NAMES = ["SwarmCoordinator"];
const settings = {
  evmVersion: "cancun",
  optimizer: { enabled: true, runs: 200 },
  metadata: { bytecodeHash: "none" },
};

function fail(message) {
  console.error(message);
  process.exit(1);
}

async function compile(name, content) {
  const { default: solc } = await import("solc");
  const outputSelection = { "*": { [name]: ["abi", "evm.bytecode.object", "evm.deployedBytecode.object"] } };
  const input = {
    language: "Solidity",
    sources: { [`${name}.sol`]: { content } },
    settings: { ...settings, outputSelection },
  };
  const output = JSON.parse(solc.compile(JSON.stringify(input)));
  const complaints = (output.errors ?? []).map((error) => error.formattedMessage); // a warning fails too
  if (complaints.length) fail(complaints.join("\n"));
  return { version: solc.version(), ...output.contracts[`${name}.sol`][name] };
}

async function artifact(name, content, sourceSha256) {
  const { version, abi, evm } = await compile(name, content);
  const made = {
    contractName: name,
    compiler: version,
    settings,
    sourceSha256,
    abi,
    bytecode: `0x${evm.bytecode.object}`,
    deployedBytecode: `0x${evm.deployedBytecode.object}`,
  };
  return `${JSON.stringify(made, null, 1)}\n`;
}

const check = process.argv[2] === "--check";
if (process.argv.length > (check ? 3 : 2)) fail("usage: node compile.mjs [--check]");
const sources = NAMES.map((name) => {
  const file = new URL(`../codezero/chain/artifacts/${name}.json`, import.meta.url);
  const content = fs.readFileSync(new URL(`./${name}.sol`, import.meta.url), "utf8");
  const sourceSha256 = crypto.createHash("sha256").update(content).digest("hex");
  const committed = fs.existsSync(file) ? fs.readFileSync(file, "utf8") : "";
  const stale = `${name}.json is not what ${name}.sol compiles to: run \`npm run compile\` in contracts/`;
  if (check && !committed.includes(sourceSha256)) fail(stale); // spares the seconds that the compiler takes
  return { name, file, content, sourceSha256, committed, stale };
});
for (const { name, file, content, sourceSha256, committed, stale } of sources) {
  const made = await artifact(name, content, sourceSha256);
  if (check && committed !== made) fail(stale);
  if (check) continue;
  fs.mkdirSync(new URL(".", file), { recursive: true });
  fs.writeFileSync(file, made);
}
