#!/usr/bin/env bash
# Prepares the virtual environment given as the only argument: the locked packages and this checkout.
# What is missing on the machine is said in one sentence, or installed where we may (root on Debian).
set -euo pipefail
venv=$1

may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
apt() { apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null; }

find_python() {
  for candidate in python3.13 python3.12 python3.11 python3; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"; return
    fi
  done
  return 1
}
has_java() { "${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])'; }

if ! python=$(find_python); then
  may_install && apt python3 python3-venv || true
  python=$(find_python) || { echo "Truecut needs Python 3.11 or newer with venv: install it (Debian: apt-get install python3 python3-venv) and try again." >&2; exit 3; }
fi
if ! has_java; then
  may_install && apt openjdk-17-jre-headless || true
  has_java || { echo "Truecut needs Java 17 or newer: install it (Debian: apt-get install openjdk-17-jre-headless) and try again." >&2; exit 3; }
fi

echo "setting up $venv (once)"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
# uv first, by its own line of the lock: it installs the rest several times faster than pip.
uv_lock=$(mktemp)
trap 'rm -f "$uv_lock"' EXIT
sed -n '/^uv==/,/[^\\]$/p' requirements.lock >"$uv_lock"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$uv_lock"
uv() { VIRTUAL_ENV=$(cd "$venv" && pwd) "$venv/bin/uv" --quiet "$@"; }
uv pip install --require-hashes -r requirements.lock
uv pip install --no-deps --no-build-isolation --editable .
uv pip install --no-deps --no-build-isolation --editable src/truecut_verify
# Spark's classes, loaded once: every later start costs half. Where that cannot be done, it costs what it did.
"$venv/bin/python" -m truecut.spark.archive >/dev/null 2>&1 || true
