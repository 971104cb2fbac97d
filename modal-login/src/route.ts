/** Where one is, as the part of the address behind #. Pure; links to a run or a rollout can be kept and shared. */
import { useSyncExternalStore } from "react";

import { queryOf, type RolloutFilter } from "./api/routes";

/** What is shown of a run, page by page. */
export const PLAIN = ["overview", "system", "settings", "log", "checkpoints", "leaderboard", "market"] as const;
export type Plain = (typeof PLAIN)[number];

export type Route =
  | { readonly page: Plain; readonly run: string | null }
  | ({ readonly page: "rollouts"; readonly run: string | null } & RolloutFilter)
  | { readonly page: "rollout"; readonly run: string; readonly id: number }
  | { readonly page: "game"; readonly run: string; readonly id: string }
  /** chosen: the run in each place of the comparison, "" where it is free; a run keeps its place, and so its colour. */
  | { readonly page: "runs"; readonly chosen: readonly string[] }
  | { readonly page: "swarm"; readonly fleet: string }
  | { readonly page: "account" };

export const EVERY: RolloutFilter = { peer: null, mine: null, level: null, status: null };
export const MOST_CHOSEN = 8;
const RUN = /^[A-Za-z0-9._~-]{1,200}$/;
/** Stands for the newest run, whichever that is. */
const NEWEST = "-";

/** What is no address of ours leads to the overview. */
export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#?\/?/, "").split("?", 2);
  const [first, key = "", page, id] = path.split("/");
  const parameters = new URLSearchParams(query);
  if (first === "account") return { page: "account" };
  if (first === "runs") return { page: "runs", chosen: chosenIn(parameters.get("with") ?? "") };
  if (first === "swarm" && RUN.test(key)) return { page: "swarm", fleet: key };
  const run = first === "run" && key !== NEWEST && RUN.test(key) ? key : null;
  if (page === "game" && run !== null && /^[0-9a-f]{4,64}$/.test(id ?? "")) return { page, run, id: String(id) };
  if (page === "rollout" && run !== null && /^\d{1,15}$/.test(id ?? "")) return { page, run, id: Number(id) };
  if (page === "rollouts") {
    const mine = parameters.get("mine");
    const level = Number(parameters.get("level"));
    return {
      page,
      run,
      peer: parameters.get("peer"),
      mine: mine === null ? null : mine === "true",
      level: [1, 2, 3, 4, 5].includes(level) ? level : null,
      status: parameters.get("status"),
    };
  }
  return { page: PLAIN.find((name) => name === page) ?? "overview", run };
}

function chosenIn(words: string): readonly string[] {
  return words.split(",").slice(0, MOST_CHOSEN).map((word) => (RUN.test(word) ? word : ""));
}

/** With `run` in the first free place, or with its place free. */
export function toggled(chosen: readonly string[], run: string): readonly string[] {
  if (chosen.includes(run)) return chosen.map((other) => (other === run ? "" : other));
  const free = chosen.indexOf("");
  if (free >= 0) return chosen.with(free, run);
  return chosen.length < MOST_CHOSEN ? [...chosen, run] : chosen;
}

export function formatRoute(route: Route): string {
  if (route.page === "account") return "#/account";
  if (route.page === "swarm") return `#/swarm/${route.fleet}`;
  if (route.page === "runs") return route.chosen.some((run) => run !== "") ? `#/runs?with=${route.chosen.join(",").replace(/,+$/, "")}` : "#/runs";
  const run = `#/run/${route.run ?? NEWEST}`;
  if (route.page === "overview") return route.run === null ? "#/" : run;
  if (route.page === "rollout" || route.page === "game") return `${run}/${route.page}/${route.id}`;
  if (route.page !== "rollouts") return `${run}/${route.page}`;
  const { peer, mine, level, status } = route;
  return `${run}/rollouts${queryOf({ peer, mine, level, status })}`;
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
