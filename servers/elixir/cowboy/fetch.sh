#!/bin/sh
# Unpacks Cowboy and its two libraries, already compiled, from Debian's RabbitMQ package into deps/.
# Their usual source is hex, and no other registry has them. No broker is installed.
set -eu

apt-get download rabbitmq-server
dpkg -x rabbitmq-server_*.deb unpacked
mkdir -p deps
for app in cowboy-2.8.0 cowlib-2.9.1 ranch-2.1.0; do
  mv unpacked/usr/lib/rabbitmq/lib/rabbitmq_server-*/plugins/"$app" "deps/${app%-*}"
done
rm -r unpacked rabbitmq-server_*.deb
