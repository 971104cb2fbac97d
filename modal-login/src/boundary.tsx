/** A fault of the page itself is said in words; the rest of it stays. */
import { Component, type ReactNode } from "react";

interface State {
  readonly error: Error | null;
}

export class Boundary extends Component<{ children: ReactNode }, State> {
  override state: State = { error: null };

  static getDerivedStateFromError(error: unknown): State {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  override render(): ReactNode {
    if (this.state.error === null) return this.props.children;
    return (
      <div className="notice alarm" role="alert">
        <strong>This part of the page failed: {this.state.error.message.slice(0, 300)}</strong> The node is not affected. Reload the page; if it
        fails again, <code>codezero status</code> says the same in the terminal.{" "}
        <button type="button" className="quiet" onClick={() => window.location.reload()}>
          Reload
        </button>
      </div>
    );
  }
}
