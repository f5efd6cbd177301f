#!/usr/bin/env bash
# Counts user and kernel instructions per request, on a machine without hardware counters:
#
#     emulated.sh [MODE [OPTION...]]      a mode and options of the bench, "instructions" by default
#
# The script runs the bench in an emulated machine with one processor, whose clock counts its
# instructions: 1 ns is 1 instruction (QEMU, -icount shift=0). So the CPU time that the emulated
# kernel reports is a number of instructions, which does not depend on other load on the host.
#
# The script needs the Debian packages qemu-system-x86, busybox-static and cpio. It also needs a
# kernel, which is unpacked but not installed:
#
#     apt-get download linux-image-6.1.0-56-amd64 && dpkg -x linux-image-*.deb kernel
#     KERNEL=kernel/boot/vmlinuz-* crates/hotlap-load/benches/floor/emulated.sh
#
# KERNEL        the kernel (default: the newest in /boot)
# APPEND        further kernel parameters, such as mitigations=off
# MEMORY        the size of the machine's memory (default: 2G)
# RUN           a line for the machine's shell, instead of the bench
# TAKE          further programs to copy, besides wrk, gcannon, h2load, oha and perf. QEMU lacks
#               AVX-512, so build programs without -march=native.
set -euo pipefail
cd "$(dirname "$0")/../../../.."
[ $# -gt 0 ] || set -- instructions

kernel=${KERNEL:-$(find /boot -name 'vmlinuz-*' | sort -V | tail -1)}
for needed in qemu-system-x86_64 busybox cpio; do
    command -v $needed >/dev/null || { echo "$needed is missing: see the head of $0" >&2; exit 1; }
done
[ -r "$kernel" ] || { echo "no kernel: set KERNEL, see the head of $0" >&2; exit 1; }
bench=$(cargo bench -p hotlap-load --bench floor --no-run 2>&1 |
    sed -n 's/.*Executable.*(\(.*\)).*/\1/p')
[ -n "$bench" ] || { echo "the bench does not build: see cargo bench --no-run" >&2; exit 1; }

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,proc,sys,tmp,dev}
cp "$(command -v busybox)" "$root/bin/busybox"

# Copies a program, and copies its libraries to the places where the program looks for them.
take() {
    cp -L "$1" "$root/bin/"
    { ldd "$1" 2>/dev/null || true; } | sed -n 's|^[^/]*\(/[^ ]*\) (.*|\1|p' |
        while read -r library; do
            mkdir -p "$root/$(dirname "$library")"
            cp -nL "$library" "$root/$library"
        done
}
take "$bench"
take "$(command -v timeout)"
for program in wrk gcannon h2load oha perf ${TAKE:-}; do
    if path=$(command -v "$program"); then take "$path"; fi
done

cat > "$root/init" <<END
#!/bin/busybox sh
/bin/busybox --install -s /bin 2>/dev/null
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tracefs trace /sys/kernel/tracing 2>/dev/null
ifconfig lo up
ulimit -n 1048576
export PATH=/bin HOME=/tmp
uname -sr
${RUN:-$(basename "$bench") $*}
echo "[the end]"
poweroff -f
END
chmod +x "$root/init"
(cd "$root" && find . | cpio --quiet -o -H newc) | gzip -1 > "$root.cpio.gz"
trap 'rm -rf "$root" "$root.cpio.gz"' EXIT

# A string instruction (rep movsb) counts once on a processor but once per step here. Without erms the
# kernel copies in steps of 8 bytes.
qemu-system-x86_64 -machine pc -cpu max,-erms,-fsrm -smp 1 -m "${MEMORY:-2G}" \
    -accel tcg -icount shift=0,sleep=off -nodefaults -nographic -serial stdio -monitor none \
    -no-reboot -kernel "$kernel" -initrd "$root.cpio.gz" -append "console=ttyS0 quiet panic=-1 \
    nokaslr tsc=reliable tsc_early_khz=1000000 ${APPEND:-}" < /dev/null
