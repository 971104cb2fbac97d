/** Where one is, as the part of the address behind #. Pure; links to a run or a rollout can be kept and shared. */
import { useSyncExternalStore } from "react";

export type Route =
  | { readonly page: "overview"; readonly run: string | null }
  | { readonly page: "rollouts"; readonly run: string | null; readonly peer: string | null; readonly mine: boolean | null }
  | { readonly page: "rollout"; readonly run: string; readonly id: number }
  | { readonly page: "leaderboard"; readonly run: string | null }
  | { readonly page: "market"; readonly run: string | null }
  | { readonly page: "game"; readonly run: string; readonly id: string }
  | { readonly page: "account" };

const RUN = /^[A-Za-z0-9._~-]{1,200}$/;
/** Stands for the newest run, whichever that is. */
const NEWEST = "-";

/** What is no address of ours leads to the overview. */
export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#?\/?/, "").split("?", 2);
  const [first, key = "", page, id] = path.split("/");
  if (first === "account") return { page: "account" };
  const run = first === "run" && key !== NEWEST && RUN.test(key) ? key : null;
  if (page === "leaderboard" || page === "market") return { page, run };
  if (page === "game" && run !== null && /^[0-9a-f]{4,64}$/.test(id ?? "")) return { page, run, id: String(id) };
  if (page === "rollouts") {
    const parameters = new URLSearchParams(query);
    const mine = parameters.get("mine");
    return { page, run, peer: parameters.get("peer"), mine: mine === null ? null : mine === "true" };
  }
  if (page === "rollout" && run !== null && /^\d{1,15}$/.test(id ?? "")) return { page, run, id: Number(id) };
  return { page: "overview", run };
}

export function formatRoute(route: Route): string {
  if (route.page === "account") return "#/account";
  const run = `#/run/${route.run ?? NEWEST}`;
  if (route.page === "overview") return route.run === null ? "#/" : run;
  if (route.page === "rollout" || route.page === "game") return `${run}/${route.page}/${route.id}`;
  if (route.page === "leaderboard" || route.page === "market") return `${run}/${route.page}`;
  const query = new URLSearchParams();
  if (route.peer !== null) query.set("peer", route.peer);
  if (route.mine !== null) query.set("mine", String(route.mine));
  return `${run}/rollouts${query.size ? `?${query}` : ""}`;
}

export function useRoute(): Route {
  const hash = useSyncExternalStore(
    (changed) => {
      window.addEventListener("hashchange", changed);
      return () => window.removeEventListener("hashchange", changed);
    },
    () => window.location.hash,
  );
  return parseRoute(hash);
}
