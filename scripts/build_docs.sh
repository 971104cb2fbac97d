#!/usr/bin/env bash
# Build the site of docs/ into site/, strictly: a broken link ends it. Safe to repeat; needs no network once the dev tools are
# installed. The tables of docs/settings.md are written anew before.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/install.sh dev
.venv/bin/python scripts/settings_page.py
exec .venv/bin/zensical build --strict --clean --config-file mkdocs.yml
