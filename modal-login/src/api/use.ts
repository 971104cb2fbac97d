/** Hooks around requests and time. */
import { useCallback, useEffect, useRef, useState } from "react";

export interface Loaded<T> {
  readonly value: T | null;
  readonly error: unknown;
  readonly loading: boolean;
  readonly reload: () => void;
}

/** What `load` gives, anew whenever `load` is another function; keep it with useCallback. The last value stays during reload. */
export function useLoaded<T>(load: () => Promise<T>): Loaded<T> {
  const [state, setState] = useState<{ value: T | null; error: unknown; loading: boolean }>({ value: null, error: null, loading: true });
  const latest = useRef(0);
  const reload = useCallback(() => {
    const mine = ++latest.current;
    const still = () => mine === latest.current;
    setState((before) => ({ ...before, loading: true }));
    load().then(
      (value) => still() && setState({ value, error: null, loading: false }),
      (error: unknown) => still() && setState((before) => ({ ...before, error, loading: false })),
    );
  }, [load]);
  useEffect(() => {
    setState({ value: null, error: null, loading: true });
    reload();
    return () => void ++latest.current;
  }, [reload]);
  return { ...state, reload };
}

/** Seconds since 1970, once a second. */
export function useNow(): number {
  const [now, setNow] = useState(() => Date.now() / 1000);
  useEffect(() => {
    const timer = window.setInterval(() => setNow(Date.now() / 1000), 1000);
    return () => window.clearInterval(timer);
  }, []);
  return now;
}

export function useEvery(milliseconds: number, what: () => void): void {
  useEffect(() => {
    const timer = window.setInterval(() => document.hidden || what(), milliseconds);
    return () => window.clearInterval(timer);
  }, [milliseconds, what]);
}
