#!/bin/sh
# Installs the real agents that tests run against a stub model, at pinned versions, into .test-agents/, which git ignores.
#
# Needs npm and Node.js 20 or later, and the npm registry. What is there already is left alone, so a second run is quick.
# The agents are other people's programs with licences of their own: they are installed, never kept here. Then:
#   SCROLLBACK_TEST_AGENTS=1 sh scripts/test.sh real_agents
set -eu

cd "$(dirname "$0")/.."
to="$PWD/.test-agents"

say() { printf '%s\n' "install-test-agents.sh: $*"; }

if ! command -v npm >/dev/null 2>&1; then
    say "npm is not installed: install Node.js 20 or later" >&2
    exit 1
fi

# install NAME PACKAGE@VERSION PROGRAM: PROGRAM is what has to be there afterwards.
install() {
    if [ -e "$to/$1/node_modules/$3" ]; then
        say "$1: $2 is there"
        return
    fi
    say "$1: installing $2"
    rm -rf "${to:?}/$1"
    mkdir -p "$to/$1"
    (cd "$to/$1" && npm init -y >/dev/null && npm install --save-exact --no-audit --no-fund --loglevel=error "$2")
    if [ ! -e "$to/$1/node_modules/$3" ]; then
        say "$1: $2 did not bring $3" >&2
        exit 1
    fi
}

case "$(uname -m)" in
    x86_64) arch=x64 ;;
    aarch64 | arm64) arch=arm64 ;;
    *) say "no agents for $(uname -m)" >&2; exit 1 ;;
esac

install sdk @agentclientprotocol/sdk@1.9.0 @agentclientprotocol/sdk/dist/examples/agent.js
install codex @zed-industries/codex-acp@0.16.0 "@zed-industries/codex-acp-linux-$arch/bin/codex-acp"
install claude-acp @agentclientprotocol/claude-agent-acp@0.49.0 @agentclientprotocol/claude-agent-acp/dist/index.js
install qwen @qwen-code/qwen-code@0.15.10 .bin/qwen
install opencode opencode-ai@1.18.33 "opencode-linux-$arch/bin/opencode"
install claude "@anthropic-ai/claude-code-linux-$arch@2.1.332" "@anthropic-ai/claude-code-linux-$arch/claude"
say "done: $to"
