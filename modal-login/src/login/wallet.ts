/** A wallet extension: it signs who it is (EIP-4361), and a fixed text whose signature opens the node's key. */
import { parseSiweMessage } from "viem/siwe";
import { getAddress, isAddress, stringToHex } from "viem/utils";

import { type Session, State, WalletOptions } from "../api/login_contract";
import { post } from "../api/http";
import { CeremonyError } from "./passkey";

/** EIP-1193. */
interface Provider {
  request(call: { method: string; params?: readonly unknown[] }): Promise<unknown>;
}

function provider(): Provider | null {
  const found = (window as { ethereum?: unknown }).ethereum;
  return typeof (found as Provider | undefined)?.request === "function" ? (found as Provider) : null;
}

export const hasWallet = (): boolean => provider() !== null;

export async function claimByWallet(code: string): Promise<Session> {
  const wallet = connected();
  const address = await accountOf(wallet);
  const { ticket, message, unlock } = await post("/api/claim/wallet/options", { code, address }, WalletOptions);
  refuseForeign(message, address);
  const signature = await signed(wallet, message, address);
  const unlocks = [await signed(wallet, unlock, address), await signed(wallet, unlock, address)];
  return post("/api/claim/wallet/verify", { ticket, signature, unlock: unlocks }, State);
}

export async function loginByWallet(): Promise<Session> {
  const wallet = connected();
  const chosen = await accountOf(wallet);
  const { ticket, message, unlock, address } = await post("/api/login/wallet/options", {}, WalletOptions);
  if (getAddress(address) !== chosen) throw new CeremonyError(`This node was claimed by ${getAddress(address)}; choose that account in the wallet.`);
  refuseForeign(message, chosen);
  const signature = await signed(wallet, message, chosen);
  return post("/api/login/wallet/verify", { ticket, signature, unlock: await signed(wallet, unlock, chosen) }, State);
}

function connected(): Provider {
  const wallet = provider();
  if (wallet === null) throw new CeremonyError("No wallet extension answers. Switch it on for this page, then reload.");
  return wallet;
}

async function accountOf(wallet: Provider): Promise<string> {
  const accounts = await asked(wallet, "eth_requestAccounts");
  const first: unknown = Array.isArray(accounts) ? accounts[0] : undefined;
  if (typeof first !== "string" || !isAddress(first, { strict: false })) throw new CeremonyError("The wallet shares no account with this page.");
  return getAddress(first);
}

/** Only a log-in to this very page is signed, whatever the server sends. */
function refuseForeign(message: string, address: string): void {
  const { address: named, domain, uri } = parseSiweMessage(message);
  const ours = domain === window.location.host && uri !== undefined && new URL(uri).origin === window.location.origin;
  if (!ours || named === undefined || getAddress(named) !== address) {
    throw new CeremonyError("The message to be signed is not a log-in to this page; nothing was signed.");
  }
}

async function signed(wallet: Provider, message: string, address: string): Promise<string> {
  const signature = await asked(wallet, "personal_sign", [stringToHex(message), address]);
  if (typeof signature !== "string") throw new CeremonyError("The wallet gave no signature.");
  return signature;
}

const REJECTED = 4001;
const BUSY = -32002;

async function asked(wallet: Provider, method: string, params: readonly unknown[] = []): Promise<unknown> {
  try {
    return await wallet.request({ method, params });
  } catch (error) {
    const { code, message } = (error ?? {}) as { code?: unknown; message?: unknown };
    if (code === REJECTED) throw new CeremonyError("It was declined in the wallet. Nothing was changed.");
    if (code === BUSY) throw new CeremonyError("The wallet already waits for an answer: open it, and finish there.");
    throw new CeremonyError(`The wallet says: ${String(message ?? error).slice(0, 200)}`);
  }
}
