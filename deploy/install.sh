#!/bin/sh
# Installs the third party's program on Debian, as root. The Containerfile runs these steps, and so do hosts with
# systemd; tests/deploy runs them in a clean root.
#
#   install.sh system               what Debian has to provide, and the user that the service runs as
#   install.sh build SOURCE WHEELS  build the wheel of a checkout into a folder, with the pinned versions beside it
#   install.sh program WHEELS       install from that folder into /usr/local/lib/fairpremium
set -eu
umask 022  # others run what is installed here

user=fairpremium
id=10001
home=/var/lib/fairpremium
program=/usr/local/lib/fairpremium

install_system() {
    apt-get -qq update
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
        ca-certificates python3 python3-venv passwd >/dev/null
    apt-get clean
    rm -rf /var/lib/apt/lists/*
    if ! getent passwd "$user" >/dev/null; then
        groupadd --system --gid "$id" "$user"
        useradd --system --uid "$id" --gid "$id" --home-dir "$home" --no-create-home --shell /usr/sbin/nologin "$user"
    fi
    install -d -m 0700 -o "$user" -g "$user" "$home" /var/backups/fairpremium
    install -d -m 0755 /etc/fairpremium
}

build() {
    source=$1 wheels=$2
    tools=$(mktemp -d)
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --no-cache-dir -c "$source/constraints.txt" hatchling
    rm -f "$wheels"/fairpremium-*.whl  # of an earlier version
    "$tools/bin/pip" wheel --quiet --no-cache-dir --no-deps --no-build-isolation -w "$wheels" "$source"
    cp "$source/constraints.txt" "$wheels"
    rm -rf "$tools"
}

install_program() {
    wheels=$1
    set -- "$wheels"/fairpremium-*.whl
    [ -f "$1" ] && [ $# = 1 ] || { echo "Got $# wheels in $wheels, but expected one." >&2; exit 2; }
    python3 -m venv --clear "$program"
    "$program/bin/pip" install --quiet --no-cache-dir -c "$wheels/constraints.txt" "$1[cli,service,report]"
    "$program/bin/pip" uninstall --quiet --yes setuptools pip  # nothing is installed into it later
    "$program/bin/fairpremium" --version
}

case "${1:-} $#" in
    "system 1") install_system ;;
    "build 3") build "$2" "$3" ;;
    "program 2") install_program "$2" ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
