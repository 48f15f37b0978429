#!/bin/bash
# Make this machine ready to build vkattn and run it: Go, a Vulkan driver, and a C compiler where cgo is on. `make bench` and `make test` call it.
#
#   tools/setup.sh            set up, and say what was found
#   tools/setup.sh --exec     the same in silence, then print the prefix that programs need (empty where the system's driver serves)
#   tools/setup.sh --browser  a Chromium, for the test that opens a report's page: installed with apt-get where this is root or may
#                             use sudo without a password; fails, and changes nothing, where there is none to be had
#   tools/setup.sh --window   headers and libraries that a program with a window is built with (make view), likewise
#   tools/setup.sh --display  those, and Xvfb, xdotool and twm, for the tests of windows, likewise
#   tools/setup.sh --mpi      Open MPI's headers and mpirun, for ranks that are processes, likewise
#   tools/setup.sh --numpy    a Python with NumPy, for the test of the library from Python, likewise
#
# A GPU with a Vulkan driver is used as it is. Without one, programs run on Mesa's CPU driver, lavapipe:
#   Debian   a recent one (it has cooperative matrices, which Debian 12's lacks) with the validation layers is unpacked into
#            ~/.cache/vkattn/lavapipe, 335 MB; the system stays as it is, and no root is needed
#   Ubuntu   apt-get installs the distribution's, when this is root or may use sudo without a password
#   others   it says what to install
#
# VKATTN_CACHE    where to unpack, instead of ~/.cache/vkattn
# VKATTN_DRIVER   cpu: run on lavapipe even where there is a GPU; swiftshader: on SwiftShader, another CPU driver, which has fp32 alone and
#                 subgroups of 4 (49 MB in ~/.cache/vkattn/swiftshader; Debian of amd64 and arm64 only, where Chromium's package has it)
# VKATTN_EXEC     if set (even to nothing), the prefix to use; no driver is looked for
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
cache=${VKATTN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vkattn}
system=$(uname -s)

mode=${1:-}
case $mode in
'' | --exec | --browser | --window | --display | --mpi | --numpy) ;;
*) sed -n '2,23s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

say() { printf 'setup: %s\n' "$*" >&2; }
note() { [ "$mode" = --exec ] || say "$*"; } # what went well
die() { say "$*"; exit 1; }

# apt_install PACKAGE…: fails where there is no apt-get, or where becoming root takes a password.
apt_install() {
  local as_root=()
  command -v apt-get >/dev/null || return 1
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || return 1
    as_root=(sudo)
  fi
  say "installing $* with apt-get"
  # A machine that has just started may be updating itself: both of apt's locks are waited for, the first one here.
  local said tries=30
  until said=$("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq update 2>&1); do
    printf '%s\n' "$said" >&2
    [[ $said == *lists/lock* ]] && [ $((tries--)) -gt 0 ] || return 1
    sleep 10
  done
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@" >&2
}

need_go() {
  local want have
  want=$(awk '$1 == "go" { print $2; exit }' go.mod)
  command -v go >/dev/null || die "Go is not installed. Install Go $want or newer from https://go.dev/dl/"
  # A Go from 1.21 on fetches the version that go.mod asks for, or fails here and says why.
  have=$(go env GOVERSION) || die "this Go cannot build a module that asks for Go $want. Install it from https://go.dev/dl/"
  have=${have#go}
  awk -v have="${have%%[!0-9.]*}" -v want="$want" 'BEGIN {
    split(have, h, "."); split(want, w, ".")
    for (i = 1; i <= 3; i++) if (h[i] + 0 != w[i] + 0) exit h[i] + 0 < w[i] + 0
  }' || die "Go $have is too old. Install Go $want or newer from https://go.dev/dl/"
  note "Go $have"
}

# need_cc looks for a C compiler where one is needed: for windows and MPI, and where cgo is on, which Go turns off by itself where it finds
# no compiler. Without one everything else builds and runs all the same.
need_cc() {
  local cc
  cc=$(go env CC)
  case $mode in
  --window | --display | --mpi)
    [ "$(go env CGO_ENABLED)" = 1 ] || [ -z "${CGO_ENABLED:-}" ] || die "CGO_ENABLED is $CGO_ENABLED, must be 1 for windows and MPI" ;;
  *)
    if [ "$(go env CGO_ENABLED)" != 1 ]; then
      note "cgo is off: no windows, no MPI, no race detector"
      return
    fi ;;
  esac
  works() { printf '#include <stdlib.h>\n' | ${cc} -E - >/dev/null 2>&1; }
  if ! works; then
    apt_install gcc libc6-dev || case $system in
    Darwin) die "no C compiler ($cc). Run: xcode-select --install, or set CGO_ENABLED=0" ;;
    *) die "no C compiler with headers ($cc). On Debian or Ubuntu run: apt-get install gcc libc6-dev, or set CGO_ENABLED=0" ;;
    esac
    works || die "$cc still does not work"
  fi
  note "C compiler $cc"
}

# gpu_nodes prints the device nodes of GPUs, whether or not a driver serves them.
gpu_nodes() {
  local node
  for node in /dev/nvidia[0-9]* /dev/dri/renderD* /dev/dxg; do
    [ -e "$node" ] && printf '%s ' "$node"
  done
  return 0
}

# system_devices prints the kind (discrete, integrated, virtual, cpu, other) of each device of the system's own Vulkan drivers.
system_devices() {
  go build -o bin/vkattn ./cmd/vkattn >&2 || die "cmd/vkattn does not build"
  bin/vkattn info --json 2>/dev/null | sed -n 's/.*"kind": *"\([a-z]*\)".*/\1/p' || true
}
is_gpu() { grep -qxE 'discrete|integrated|virtual'; }

# lavapipe prints the prefix under which programs run on lavapipe.
lavapipe() {
  local id
  id=$([ -r /etc/os-release ] && . /etc/os-release && echo "${ID:-}" || true)
  if [ "$id" = debian ]; then
    if tools/unpack-debs.sh "$cache/lavapipe" "trixie trixie-backports" mesa-vulkan-drivers libvulkan1 vulkan-validationlayers; then
      note "lavapipe (Mesa's CPU driver) in $cache/lavapipe"
      unpacked "$cache/lavapipe"
      return
    fi
    say "could not unpack a recent Mesa: trying the system's"
  fi
  if system_devices | grep -qx cpu; then
    note "the system's lavapipe (Mesa's CPU driver)"
    return
  fi
  if apt_install mesa-vulkan-drivers libvulkan1 vulkan-validationlayers && system_devices | grep -qx cpu; then
    note "the system's lavapipe (Mesa's CPU driver), just installed"
    return
  fi
  say "no Vulkan device. Install the Vulkan loader and Mesa's drivers (lavapipe, its CPU driver, among them):"
  say "  Debian, Ubuntu   sudo apt-get install libvulkan1 mesa-vulkan-drivers vulkan-validationlayers"
  say "  Fedora           sudo dnf install vulkan-loader mesa-vulkan-drivers vulkan-validation-layers"
  say "  Arch             sudo pacman -S vulkan-icd-loader vulkan-swrast vulkan-validation-layers"
  say "  Alpine           apk add vulkan-loader mesa-vulkan-swrast vulkan-validation-layers"
  exit 1
}

# unpacked prints the prefix under which programs run on the driver of a folder.
unpacked() {
  case $root$1 in
  *[[:space:]]*) die "go test -exec takes no path with a space in it: move $root, or set VKATTN_CACHE instead of $cache" ;;
  esac
  echo "$root/tools/run-unpacked.sh $1"
}

# swiftshader prints the prefix under which programs run on SwiftShader.
swiftshader() {
  tools/unpack-debs.sh "$cache/swiftshader" trixie libvulkan1 vulkan-validationlayers 'chromium-common//*swiftshader*' ||
    die "SwiftShader could not be unpacked: it comes from Debian's Chromium"
  note "SwiftShader (a CPU driver) in $cache/swiftshader"
  unpacked "$cache/swiftshader"
}

# prefix prints the prefix under which programs find a driver, and makes sure that there is one.
prefix() {
  local nodes
  if [ -n "${VKATTN_EXEC+set}" ]; then
    note "VKATTN_EXEC is set: programs run under '$VKATTN_EXEC'"
    echo "$VKATTN_EXEC"
    return
  fi
  case ${VKATTN_DRIVER:-} in
  swiftshader) swiftshader; return ;;
  '' | cpu) ;;
  *) die "VKATTN_DRIVER is '$VKATTN_DRIVER': it must be cpu or swiftshader" ;;
  esac
  if [ "$system" != Linux ]; then
    if [ -z "$(system_devices)" ]; then
      case $system in
      Darwin) die "no Vulkan device. Run: brew install vulkan-loader molten-vk" ;;
      *) die "no Vulkan device. The Vulkan loader comes with the GPU's driver: install or update that" ;;
      esac
    fi
    note "the system's Vulkan driver"
    return
  fi
  nodes=$(gpu_nodes)
  if [ -n "$nodes" ] && [ "${VKATTN_DRIVER:-}" != cpu ]; then
    if system_devices | is_gpu; then
      note "a GPU with a Vulkan driver"
      return
    fi
    if [ -z "$(ldconfig -p 2>/dev/null | grep libvulkan.so.1)" ] && apt_install libvulkan1 && system_devices | is_gpu; then
      note "a GPU with a Vulkan driver; the loader was just installed"
      return
    fi
    say "there is GPU hardware (${nodes% }) but no Vulkan driver for it, so this runs on the CPU. To use the GPU:"
    say "  NVIDIA       install the driver with its Vulkan part (libnvidia-gl-… on Debian and Ubuntu);"
    say "               a container needs NVIDIA_DRIVER_CAPABILITIES=all (or graphics) when it is started"
    say "  AMD, Intel   install mesa-vulkan-drivers, and join the group render if /dev/dri/renderD128 is not readable"
  fi
  lavapipe
}

# browser makes sure of a Chromium. Ubuntu's package is a snap, which starts in no container: there it must be there already.
browser() {
  local name
  have() { for name in "${VKATTN_BROWSER:-}" chromium chromium-browser google-chrome google-chrome-stable; do [ -n "$name" ] && command -v "$name" && return; done; return 1; }
  if ! have >/dev/null; then
    apt_install chromium fonts-liberation || { say "no Chromium, and none could be installed: the page's test will skip"; return 1; }
    have >/dev/null || { say "no Chromium, although its package is installed"; return 1; }
  fi
  note "browser $(have)"
}

# window makes sure of what GLFW is built with. Wayland's windows are reached through Xwayland.
window() {
  local cc
  [ "$system" = Linux ] || { note "this system's own compiler has what windows need"; return 0; }
  cc=$(go env CC)
  have() {
    printf '#include <X11/%s.h>\n' Xlib Xcursor/Xcursor extensions/Xrandr extensions/Xinerama extensions/XInput2 extensions/xf86vmode |
      { cat; echo 'int main(void) { return 0; }'; } | ${cc} -x c - -o /dev/null -lX11 -lXcursor -lXrandr -lXinerama -lXi -lXxf86vm -lGL >/dev/null 2>&1
  }
  if ! have; then
    apt_install libgl-dev libx11-dev libxcursor-dev libxrandr-dev libxinerama-dev libxi-dev libxxf86vm-dev && have || {
      say "no headers of the window system. Install them:"
      say "  Debian, Ubuntu   sudo apt-get install libgl-dev libx11-dev libxcursor-dev libxrandr-dev libxinerama-dev libxi-dev libxxf86vm-dev"
      say "  Fedora           sudo dnf install mesa-libGL-devel libX11-devel libXcursor-devel libXrandr-devel libXinerama-devel libXi-devel libXxf86vm-devel"
      say "  Arch             sudo pacman -S libglvnd libx11 libxcursor libxrandr libxinerama libxi libxxf86vm"
      say "  Alpine           apk add mesa-dev libx11-dev libxcursor-dev libxrandr-dev libxinerama-dev libxi-dev libxxf86vm-dev"
      return 1
    }
  fi
  note "headers of the window system"
}

# display makes sure of a display for tests.
display() {
  have() { command -v Xvfb && command -v xdotool && command -v twm; } >/dev/null
  have || apt_install xvfb xdotool twm && have ||
    { say "no Xvfb, xdotool and twm, and they could not be installed: tests of windows will skip"; return 1; }
  note "display $(command -v Xvfb)"
}

# mpi makes sure of what flash/ring/mpi is built with, and of what starts its ranks.
mpi() {
  have() { command -v mpirun >/dev/null && command -v pkg-config >/dev/null && pkg-config --exists ompi-c; }
  if ! have; then
    apt_install libopenmpi-dev openmpi-bin pkg-config && have || {
      say "no Open MPI. Install it, with pkg-config:"
      say "  Debian, Ubuntu   sudo apt-get install libopenmpi-dev openmpi-bin pkg-config"
      say "  Fedora           sudo dnf install openmpi-devel pkgconf-pkg-config, then: module load mpi/openmpi-x86_64"
      say "  Arch             sudo pacman -S openmpi pkgconf"
      say "  Alpine           apk add openmpi-dev pkgconf"
      return 1
    }
  fi
  note "$(mpirun --version | head -n 1)"
}

# numpy makes sure of a Python with NumPy: the user's, or the system's.
numpy() {
  local python
  have() { for python in python3 /usr/bin/python3; do "$python" -c 'import numpy' 2>/dev/null && command -v "$python" && return; done; return 1; }
  have >/dev/null || apt_install python3 python3-numpy && have >/dev/null ||
    { say "no NumPy, and it could not be installed: the test of the library from Python will skip"; return 1; }
  note "NumPy of $(have)"
}

case $mode in
--browser) browser; exit ;;
--window) need_go; need_cc; window; exit ;;
--display) need_go; need_cc; window && display; exit ;;
--mpi) need_go; need_cc; mpi; exit ;;
--numpy) numpy; exit ;;
esac

need_go
need_cc
wrapper=$(prefix)
if [ "$mode" = --exec ]; then
  echo "$wrapper"
else
  note "ready. Programs run as: ${wrapper:+$wrapper }PROGRAM"
fi
