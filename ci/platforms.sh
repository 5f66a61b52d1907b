#!/usr/bin/env bash
# Runs the tests for other processors, and a small program on other systems:
#
#   i686       the processor itself: pointers of 32 bits
#   aarch64    under qemu
#   s390x      under qemu: big-endian
#   armhf      under qemu: 32 bits, and not x86
#   wasm32     the program of benches/small runs on wasm32-wasip1 under node; on
#              wasm32-unknown-unknown, which has no clock, a cache is refused with a sentence
#   windows    the program of benches/small runs under wine
#
#   ci/platforms.sh                       the quick set: all but armhf; of aarch64 and s390x the
#                                         library tests only. A quarter of an hour on two cores
#   ci/platforms.sh armhf                 only these
#   TESTS=--lib ci/platforms.sh i686      other arguments of `cargo test`
#   FILTER=wheel:: ci/platforms.sh i686   only the tests with this in their names
#
# The compiler is rustup's, which adds the standard library of a target to its toolchain where it is
# missing. The C libraries of each processor, qemu, wine and the Windows libraries are packages of
# Debian. They are unpacked in a folder of their own (target/platforms/debian); nothing is
# installed. The linker is the one that comes with Rust. Programs are static, so they need no loader
# of their processor. What cannot be had is skipped, with a message.
set -euo pipefail
cd "$(dirname "$0")/.."

base=$(realpath -m "${CARGO_TARGET_DIR:-target}/platforms")
root=$base/debian
platforms=("$@")
is_quick=false
if [ $# -eq 0 ]; then
    is_quick=true
    platforms=(i686 aarch64 s390x wasm32 windows)
fi
manifest=benches/small/Cargo.toml
read -ra tests <<<"${TESTS:---lib --test cache --test loading --test concurrency --test snapshots}"
sysroot=$(rustc --print sysroot)
lld=$sysroot/lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld
export CARGO_INCREMENTAL=0
# A panic says its line all the same, and the programs link faster.
export CARGO_PROFILE_TEST_DEBUG=false
export CARGO_PROFILE_DEV_DEBUG=false
# What qemu plays is optimized a little, since qemu translates each instruction: the tests take a
# fifth of the time. Assertions and checks of overflow stay, as in every build of a test. Optimizing
# across the units of a crate would only make the build longer.
optimized=(CARGO_PROFILE_TEST_OPT_LEVEL=1 CARGO_PROFILE_TEST_LTO=off)
# A test program that runs longer than this hangs.
limit="timeout --kill-after=10 ${PLATFORM_LIMIT:-900}"

# What stays out where qemu plays the processor; TESTING.md says why.
left_out=(
    --skip time::true_time::in_eight_processes
    --skip time::true_time::a_hit_with_a_deadline_runs_under_valgrind
)

passed=()
failed=()
skipped=()
skip() {
    echo "skipped: $1"
    skipped+=("$platform")
}

# Unpacks packages that are not there yet.
unpack() {
    local wanted=() name
    for name in "$@"; do
        [ -e "$base/has/$name" ] || wanted+=("$name")
    done
    [ "${#wanted[@]}" -gt 0 ] || return 0
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    rm -rf "$base/packed"
    mkdir -p "$base/packed" "$base/has" "$root"
    (cd "$base/packed" && apt-get download -qq "${wanted[@]}") || return 1
    for name in "$base"/packed/*.deb; do
        dpkg-deb -x "$name" "$root"
    done
    for name in "${wanted[@]}"; do
        : >"$base/has/$name"
    done
    rm -rf "$base/packed"
}

# The newest libgcc of an architecture that this Debian has.
libgcc() {
    apt-cache pkgnames libgcc- | grep -E "^libgcc-[0-9]+-dev-$1-cross$" | sort -V | tail -n 1
}

# A linker for static programs: Rust's own, with what a C compiler would add.
make_linker() {
    local libraries=$root/usr/$gnu/lib own
    own=$(echo "$root/usr/lib/gcc-cross/$gnu/"*)
    mkdir -p "$base/bin"
    cat >"$base/bin/ld-$platform" <<END
#!/bin/sh
[ "\$1" != -flavor ] || shift 2
exec "$lld" -flavor gnu -static "$libraries/crt1.o" "$libraries/crti.o" "$own/crtbeginT.o" "\$@" \\
    -L"$own" -L"$libraries" --start-group -lgcc -lgcc_eh -lc --end-group \\
    "$own/crtend.o" "$libraries/crtn.o"
END
    chmod +x "$base/bin/ld-$platform"
}

# The tests of one processor of Linux.
run_tests() {
    local target=$1 debian=$2 gnu=$3 player=$4 name package
    package=$(libgcc "$debian")
    if ! rustup target add "$target" || [ -z "$package" ] ||
        ! unpack "libc6-dev-$debian-cross" "$package"; then
        skip "the libraries of $platform cannot be had"
        return
    fi
    local short=() profile=()
    name=${target^^}
    name=${name//-/_}
    if [ -n "$player" ]; then
        unpack qemu-user-static || {
            skip "qemu cannot be had"
            return
        }
        player=$root/usr/bin/$player
        short=("${left_out[@]}")
        profile=("${optimized[@]}")
    fi
    local chosen=("${tests[@]}")
    if $is_quick && [ -n "$player" ] && [ -z "${TESTS:-}" ]; then
        chosen=(--lib)
    fi
    export "CARGO_TARGET_${name}_RUNNER=$limit $player"
    make_linker
    export "CARGO_TARGET_${name}_RUSTFLAGS=-Ctarget-feature=+crt-static -Crelocation-model=static -Clinker-flavor=ld.lld -Clinker=$base/bin/ld-$platform"
    if env "${profile[@]}" cargo test --target "$target" --no-fail-fast "${chosen[@]}" -- ${FILTER:+"$FILTER"} "${short[@]}"; then
        passed+=("$platform")
    else
        failed+=("$platform")
    fi
}

# The small program on wasm32-wasip1, a system without threads.
run_wasm() {
    rustup target add wasm32-unknown-unknown wasm32-wasip1 || {
        skip "the targets of wasm32 cannot be had"
        return
    }
    if ! cargo build --bin no_clock --manifest-path "$manifest" --target wasm32-unknown-unknown ||
        ! cargo build --bin wheelhouse-small --manifest-path "$manifest" --target wasm32-wasip1; then
        failed+=("$platform")
        return
    fi
    if ! command -v node >/dev/null; then
        echo "node is not installed: the programs were built, and did not run"
        passed+=("$platform (built)")
        return
    fi
    cat >"$base/run.mjs" <<'END'
import { readFile } from "node:fs/promises";
import { WASI } from "node:wasi";
const wasi = new WASI({ version: "preview1", args: ["small"] });
const program = await WebAssembly.compile(await readFile(process.argv[2]));
wasi.start(await WebAssembly.instantiate(program, wasi.getImportObject()));
const clockless = await WebAssembly.instantiate(await readFile(process.argv[3]));
clockless.instance.exports.main(0, 0);
console.log("right: without a clock, a cache is refused");
END
    if timeout 120 node --no-warnings "$base/run.mjs" \
        "$CARGO_TARGET_DIR/wasm32-wasip1/debug/wheelhouse-small.wasm" \
        "$CARGO_TARGET_DIR/wasm32-unknown-unknown/debug/no_clock.wasm"; then
        passed+=("$platform")
    else
        failed+=("$platform")
    fi
}

# The small program under wine. Its linker is Debian's: the libraries of Windows are made for it.
run_windows() {
    local target=x86_64-pc-windows-gnu
    if ! rustup target add "$target" ||
        ! unpack gcc-mingw-w64-x86-64-win32 gcc-mingw-w64-x86-64-win32-runtime \
            binutils-mingw-w64-x86-64 mingw-w64-x86-64-dev; then
        skip "the libraries of Windows cannot be had"
        return
    fi
    if ! CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER=$root/usr/bin/x86_64-w64-mingw32-gcc-win32 \
        PATH=$root/usr/bin:$PATH \
        cargo build --bin wheelhouse-small --manifest-path "$manifest" --target "$target"; then
        failed+=("$platform")
        return
    fi
    if ! unpack wine64 libwine libunwind8 libz-mingw-w64; then
        echo "wine cannot be had: the program was built, and did not run"
        passed+=("$platform (built)")
        return
    fi
    local wine=$root/usr/lib/wine
    # Debian's script of this name looks where wine would be installed.
    cp --remove-destination "$wine/wineserver64" "$wine/wineserver"
    export WINEPREFIX=$base/wine WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml="
    # A library that wine's own are linked to, and one that wine has since version 9 only: Rust's
    # standard library takes its random numbers from it.
    local libraries=$WINEPREFIX/drive_c/windows/system32
    mkdir -p "$libraries"
    cp "$root/usr/x86_64-w64-mingw32/lib/zlib1.dll" "$libraries"
    cat >"$base/random.c" <<'END'
__declspec(dllimport) unsigned char SystemFunction036(void *, unsigned long);
__declspec(dllexport) int ProcessPrng(void *to, unsigned long long bytes) {
    return SystemFunction036(to, (unsigned long)bytes);
}
END
    if [ ! -e "$root/usr/lib/x86_64-linux-gnu/wine/x86_64-windows/bcryptprimitives.dll" ]; then
        PATH=$root/usr/bin:$PATH x86_64-w64-mingw32-gcc-win32 -shared "$base/random.c" -ladvapi32 \
            -o "$libraries/bcryptprimitives.dll"
    fi
    # The first run sets up a folder of Windows, which takes most of the time.
    if timeout 600 "$wine/wine64" "$CARGO_TARGET_DIR/$target/debug/wheelhouse-small.exe"; then
        passed+=("$platform")
    else
        failed+=("$platform")
    fi
}

for platform in "${platforms[@]}"; do
    printf '\n-- %s\n' "$platform"
    export CARGO_TARGET_DIR=$base/$platform
    case $platform in
        i686) run_tests i686-unknown-linux-gnu i386 i686-linux-gnu "" ;;
        aarch64) run_tests aarch64-unknown-linux-gnu arm64 aarch64-linux-gnu qemu-aarch64-static ;;
        s390x) run_tests s390x-unknown-linux-gnu s390x s390x-linux-gnu qemu-s390x-static ;;
        armhf) run_tests armv7-unknown-linux-gnueabihf armhf arm-linux-gnueabihf qemu-arm-static ;;
        wasm32) run_wasm ;;
        windows) run_windows ;;
        *)
            echo "unknown: $platform" >&2
            exit 2
            ;;
    esac
done
printf '\npassed: %s\nskipped: %s\nfailed: %s\n' "${passed[*]-}" "${skipped[*]-}" "${failed[*]-}"
[ "${#failed[@]}" -eq 0 ]
