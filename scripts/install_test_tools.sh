#!/usr/bin/env bash
# What some tests need beside Python: the built page, Chromium, bubblewrap, strace, ip, and Anvil as a chain of others.
# Where one of them cannot be had, those tests are skipped and say why. Safe to repeat.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

missing=()
command -v chromium >/dev/null || missing+=(chromium)
command -v bwrap >/dev/null || missing+=(bubblewrap)
command -v strace >/dev/null || missing+=(strace)
command -v ip >/dev/null || missing+=(iproute2)
if ((${#missing[@]})); then
  if ((EUID == 0)) && command -v apt-get >/dev/null; then
    echo "codezero: installing ${missing[*]} for the tests"
    { apt-get update --quiet && apt-get install --quiet --yes --no-install-recommends "${missing[@]}"; } >/dev/null 2>&1 ||
      echo "codezero: ${missing[*]} could not be installed; the tests that need them are skipped" >&2
  else
    echo "codezero: ${missing[*]} not found; the tests that need them are skipped" >&2
  fi
fi
anvil=1.7.1
if [[ "$(.anvil/node_modules/.bin/anvil --version 2>/dev/null)" != *" $anvil"* ]]; then
  npm install --prefix .anvil --save-exact --ignore-scripts --no-audit --no-fund --silent "@foundry-rs/anvil@$anvil" ||
    echo "codezero: Anvil could not be installed; the tests that need it are skipped" >&2
fi
scripts/build_page.sh dev || true
