#!/usr/bin/env bash
# Takes the pictures of the page that README shows, from a report of a real run:
#   hotlap report --export-html page.html && docs/pictures.sh page.html
# Needs chromium and pngquant (apt-get install chromium pngquant).
set -euo pipefail
page=$(realpath "$1")
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

shot() { # OUT WIDTH,HEIGHT ADDRESS [FLAG]...
    local out=$1 size=$2 address=$3
    shift 3
    chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
        --disable-background-networking --disable-component-update --disable-sync \
        --allow-file-access-from-files --user-data-dir="$work/profile" --hide-scrollbars \
        --window-size="$size" --screenshot="$work/shot.png" "$@" "$address" 2>/dev/null
    pngquant --force --output "$out" 64 "$work/shot.png"
}

shot page-light.png 1280,1500 "file://$page" --blink-settings=preferredColorScheme=1
# No window is as narrow as a phone: a frame is, and is shown at twice its size.
printf '<body style="margin:0;zoom:2"><iframe src="file://%s" style="%s"></iframe>' \
    "$page" "width:390px;height:1100px;border:0" >"$work/phone.html"
shot page-phone-dark.png 780,2200 "file://$work/phone.html" --blink-settings=preferredColorScheme=0
