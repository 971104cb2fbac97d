// Compiles the contract and writes the artifact; with --check compares with the committed one instead.
// The same source gives the same bytes on every machine: everything that could vary is fixed in `settings`.
import crypto from "node:crypto";
import fs from "node:fs";

const NAME = "SwarmCoordinator";
const SOURCE = new URL(`./${NAME}.sol`, import.meta.url);
const ARTIFACT = new URL(`../codezero/chain/artifacts/${NAME}.json`, import.meta.url);
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
  const made = {
    contractName: NAME,
    compiler: version,
    settings,
    sourceSha256,
    abi,
    bytecode: `0x${evm.bytecode.object}`,
    deployedBytecode: `0x${evm.deployedBytecode.object}`,
  };
  return `${JSON.stringify(made, null, 1)}\n`;
}

const content = fs.readFileSync(SOURCE, "utf8");
const sourceSha256 = crypto.createHash("sha256").update(content).digest("hex");
if (process.argv[2] === "--check") {
  const stale = `${NAME}.json is not what ${NAME}.sol compiles to: run \`npm run compile\` in contracts/`;
  const committed = fs.existsSync(ARTIFACT) ? fs.readFileSync(ARTIFACT, "utf8") : "";
  if (!committed.includes(sourceSha256)) fail(stale); // spares the seconds that the compiler takes
  if (committed !== (await artifact(content, sourceSha256))) fail(stale);
} else if (process.argv.length > 2) {
  fail("usage: node compile.mjs [--check]");
} else {
  fs.mkdirSync(new URL(".", ARTIFACT), { recursive: true });
  fs.writeFileSync(ARTIFACT, await artifact(content, sourceSha256));
}
