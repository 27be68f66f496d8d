# Sourced by the scripts of this folder; not a program. Sets `root` (the source tree) and changes into it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

say() { printf '\n== %s\n' "$*"; }
die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}
# The comment block at the top of the calling script is its help text.
show_help() { awk 'NR == 1 { next } /^#/ { sub(/^# ?/, ""); print; next } { exit }' "$root/scripts/$(basename "$0")"; }
unknown_argument() {
  printf '%s: unknown argument %s; see %s --help\n' "$(basename "$0")" "$1" "$0" >&2
  exit 2
}

# How many compilers run at once: one per processor, less where memory is short (1 GiB each).
build_jobs() {
  local processors memory
  processors=$(nproc)
  memory=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  echo $((processors < memory ? processors : memory))
}

# configure PRESET OPTION…: in the preset's own build directory. A tree that was moved or copied with its build directory has
# a cache that names the old place; CMake refuses such a cache, so it is configured afresh.
configure() {
  local preset=$1 directory
  shift
  directory=$(build_directory "$preset")
  if [ -f "$directory/CMakeCache.txt" ] &&
    ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$directory/CMakeCache.txt"; then
    rm -rf "$directory/CMakeCache.txt" "$directory/CMakeFiles"
  fi
  cmake --preset "$preset" "$@"
}
# These are called where errexit does not hold (in a condition), so each step says that it failed.
configure_and_build() { # configure_and_build PRESET TARGET…: or everything
  local preset=$1
  shift
  configure "$preset" -DBUILD_TESTING=ON -DHYPERLOOP_FIRST_BUILD=OFF || return
  cmake --build "$(build_directory "$preset")" -j "$(build_jobs)" ${1:+--target "$@"}
}
# build_programs TARGET…: of the release, in the shortest time: without tests. With precompiled headers g++ 12 warns where
# nothing is wrong. A directory that is configured already stays as it is.
build_programs() {
  local directory
  local quickly=(-DBUILD_TESTING=OFF -DHYPERLOOP_FIRST_BUILD=ON -DHYPERLOOP_WERROR=OFF)
  directory=$(build_directory release)
  if [ -f "$directory/CMakeCache.txt" ]; then quickly=(); fi
  configure release "${quickly[@]}" || return
  cmake --build "$directory" -j "$(build_jobs)" --target "$@"
}
build_directory() {
  case $1 in
    release) echo "$root/build" ;;
    asan-ubsan) echo "$root/build-asan" ;;
    *) echo "$root/build-$1" ;;
  esac
}
