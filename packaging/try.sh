#!/bin/sh
# Builds the wheel and the Debian package, and tries each in a clean environment: in an empty folder,
# with an empty home and without a checkout, it prints its version, lists its catalogue, and measures
# its own ceiling.
#
#   packaging/try.sh           both
#   packaging/try.sh wheel     only the wheel (needs python3 with venv; fetches maturin from PyPI)
#   packaging/try.sh deb       only the package (cargo-deb where there is one, else dpkg-deb)
#
# MATURIN names another maturin. What is built stays in target/packages.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
out=$target/packages
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)

# Tries an installed hotlap in an empty folder with an empty home.
try() {
    mkdir -p "$work/empty" "$work/home"
    said=$(cd "$work/empty" && env -i HOME="$work/home" PATH=/usr/bin:/bin "$1" --version)
    [ "$said" = "hotlap $version" ] || { echo "$1 says it is $said" >&2; exit 1; }
    list=$(cd "$work/empty" && env -i HOME="$work/home" PATH=/usr/bin:/bin "$1" list)
    echo "$list" | grep -q go/net-http || { echo "$1 lists no go/net-http" >&2; exit 1; }
    # Exit code 4: measured, but on too busy a machine.
    (cd "$work/empty" && env -i HOME="$work/home" PATH=/usr/bin:/bin "$1" run "$1 __ceiling" \
        --duration 2s --no-config --export-html page.html > run.txt) || [ $? = 4 ]
    grep -q '__ceiling' "$work/empty/page.html"
    echo "$2: $said, $(echo "$list" | grep -c /) lines of catalogue"
}

wheel() {
    python3 -m venv "$work/venv"
    maturin=${MATURIN:-$work/venv/bin/maturin}
    [ -n "${MATURIN:-}" ] || "$work/venv/bin/pip" -q install 'maturin>=1.7,<2'
    rm -f "$out"/*.whl
    (cd "$root" && "$maturin" build --release --locked --out "$out")
    "$work/venv/bin/pip" -q install --no-index "$out"/hotlap-*.whl
    try "$work/venv/bin/hotlap" wheel
}

deb() {
    rm -f "$out"/*.deb
    if cargo deb --version > /dev/null 2>&1; then
        (cd "$root" && cargo deb -p hotlap --locked --output "$out/")
    else
        (cd "$root" && cargo build --release --locked -p hotlap)
        by_hand
    fi
    dpkg-deb -x "$out"/hotlap_*.deb "$work/root"
    try "$work/root/usr/bin/hotlap" deb
    [ -f "$work/root/usr/share/man/man1/hotlap.1.gz" ]
    dpkg-deb --field "$out"/hotlap_*.deb Package Version Architecture
}

# The same package without cargo-deb.
by_hand() {
    tree=$work/tree
    arch=$(dpkg --print-architecture)
    install -D -s -m 755 "$target/release/hotlap" "$tree/usr/bin/hotlap"
    install -D -m 644 "$root/LICENSE-MIT" "$tree/usr/share/doc/hotlap/copyright"
    install -D -m 644 "$root/README.md" "$tree/usr/share/doc/hotlap/README.md"
    mkdir -p "$tree/usr/share/man/man1" "$tree/usr/share/bash-completion/completions" "$tree/DEBIAN"
    gzip -9n < "$root/docs/hotlap.1" > "$tree/usr/share/man/man1/hotlap.1.gz"
    "$tree/usr/bin/hotlap" completions bash > "$tree/usr/share/bash-completion/completions/hotlap"
    cat > "$tree/DEBIAN/control" <<CONTROL
Package: hotlap
Version: $version
Architecture: $arch
Maintainer: hotlap
Section: web
Priority: optional
Depends: libc6
Description: hyperfine for HTTP servers
 Builds servers, starts them, checks that they answer correctly, experiments them lap
 against lap, and tells which is faster, by how much, and how sure that is.
CONTROL
    [ -s "$tree/usr/share/bash-completion/completions/hotlap" ]
    dpkg-deb --root-owner-group --build "$tree" "$out/hotlap_${version}_$arch.deb" > /dev/null
}

case ${1:-both} in
    wheel) wheel ;;
    deb) deb ;;
    both) wheel; deb ;;
    *) echo "usage: packaging/try.sh [wheel|deb]" >&2; exit 2 ;;
esac
