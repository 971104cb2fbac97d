#!/usr/bin/env bash
# What run_swarm.sh does, without the install: arguments go to codezero, settings alone to `codezero run`.
# A node in a container has two ways in that one beside it needs not: its ports are those that the engine publishes.
# What the arguments say themselves stays as they say it.
set -euo pipefail
if [[ $# -eq 0 || $1 == *=* ]]; then set -- run "$@"; fi

page=() p2p=()
case "$1 ${2:-}" in
  "run "* | "propose "* | "swarm create" | "swarm join") page=(login.publish=true "login.port=$PAGE_PORT") p2p=(swarm.host=0.0.0.0 "swarm.port=$P2P_PORT") ;;
  "swarm bootnode") p2p=(swarm.host=0.0.0.0 "swarm.port=$P2P_PORT") ;;
  "swarm up" | "dashboard "* | "login "*) page=(login.publish=true "login.port=$PAGE_PORT") ;;
esac

added=()
for setting in "${page[@]}" "${p2p[@]}"; do
  said=
  for word in "$@"; do
    case "$word" in
      --help | -h | "${setting%%=*}="*) said=yes ;;
      --login-port*) [[ $setting == login.port=* ]] && said=yes ;;
      --p2p-port*) [[ $setting == swarm.port=* ]] && said=yes ;;
    esac
  done
  [[ -n $said ]] || added+=("$setting")
done
exec codezero "$@" "${added[@]}"
