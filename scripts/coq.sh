#!/usr/bin/env bash
# Coq and the OCaml it brings, for the proofs: only tests need it. Installed where we may (root on Debian).
set -euo pipefail

has_coq() { command -v coqc >/dev/null && command -v ocamlfind >/dev/null && command -v ocamlopt >/dev/null; }
may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
apt() { apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }

has_coq && exit
if may_install; then
  echo "installing coq (once)"
  apt coq || true
fi
has_coq || { echo "The tests need Coq 8.16 with OCaml's ocamlfind: install it (Debian: apt-get install coq) and try again." >&2; exit 3; }
