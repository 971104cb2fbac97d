// Compiles the contract and writes its artifact; with --check compares with the committed one instead.
// The same source gives the same bytes on every machine: everything that could vary is fixed in `settings`.
import crypto from "node:crypto";
import fs from "node:fs";

const NAME = "SwarmCoordinator";
const settings = {
  evmVersion: "cancun",
  optimizer: { enabled: true, runs: 200 },
  metadata: { bytecodeHash: "none" },
};

function fail(message) {
  console.error(message);
  process.exit(1);
}

async function compile(content) {
  const { default: solc } = await import("solc");
  const outputSelection = { "*": { [NAME]: ["abi", "evm.bytecode.object", "evm.deployedBytecode.object"] } };
  const input = {
    language: "Solidity",
    sources: { [`${NAME}.sol`]: { content } },
    settings: { ...settings, outputSelection },
  };
  const output = JSON.parse(solc.compile(JSON.stringify(input)));
  const complaints = (output.errors ?? []).map((error) => error.formattedMessage); // a warning fails too
  if (complaints.length) fail(complaints.join("\n"));
  return { version: solc.version(), ...output.contracts[`${NAME}.sol`][NAME] };
}

async function artifact(content, sourceSha256) {
  const { version, abi, evm } = await compile(content);
  const fields = {
    contractName: NAME,
    compiler: version,
    settings,
    sourceSha256,
    abi,
    bytecode: `0x${evm.bytecode.object}`,
    deployedBytecode: `0x${evm.deployedBytecode.object}`,
  };
  return `${JSON.stringify(fields, null, 1)}\n`;
}

const check = process.argv[2] === "--check";
if (process.argv.length > (check ? 3 : 2)) fail("usage: node compile.mjs [--check]");
const file = new URL(`../codezero/chain/artifacts/${NAME}.json`, import.meta.url);
const content = fs.readFileSync(new URL(`./${NAME}.sol`, import.meta.url), "utf8");
const sourceSha256 = crypto.createHash("sha256").update(content).digest("hex");
const committed = fs.existsSync(file) ? fs.readFileSync(file, "utf8") : "";
const stale = `${NAME}.json is not what ${NAME}.sol compiles to: run \`npm run compile\` in contracts/`;
if (check && !committed.includes(sourceSha256)) fail(stale); // spares the seconds that the compiler takes
const compiled = await artifact(content, sourceSha256);
if (check && committed !== compiled) fail(stale);
if (!check) {
  fs.mkdirSync(new URL(".", file), { recursive: true });
  fs.writeFileSync(file, compiled);
}
