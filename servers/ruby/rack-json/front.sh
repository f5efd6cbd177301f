#!/bin/sh
# Starts nginx in front of Passenger's builtin engine, connected by a Unix socket.
set -eu

sed "s/@HOST@/$HOST/g; s/@PORT@/$PORT/g; s/@CPUS@/$CPUS/g" nginx.conf.in > "nginx.$PORT.conf"
rm -f "passenger.$PORT.sock"

passenger start --engine builtin --socket "$PWD/passenger.$PORT.sock" --environment production \
  --max-pool-size "$CPUS" --min-instances "$CPUS" --max-request-queue-size 0 \
  --log-file "passenger.$PORT.log" --pid-file "passenger.$PORT.pid" \
  --disable-security-update-check --disable-anonymous-telemetry &
passenger=$!

# Until Passenger's socket exists, nginx would respond with 502.
while [ ! -S "passenger.$PORT.sock" ]; do
  kill -0 "$passenger" || exit 1
  sleep 0.1
done

# If root starts nginx, its workers run as another user, who may be unable to read this folder.
user=
[ "$(id -u)" -ne 0 ] || user="user root;"
nginx -p "$PWD" -e stderr -c "nginx.$PORT.conf" -g "$user" &
nginx=$!

trap 'kill "$nginx" "$passenger" 2> /dev/null; wait; exit 0' TERM INT
wait "$nginx"
kill "$passenger"
wait
exit 1
