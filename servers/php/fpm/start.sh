#!/bin/sh
# Runs nginx and FPM in the foreground, both below this shell. FPM has as many processes as the pool
# has connections, because each process keeps one.
set -eu
PATH=$PATH:/usr/sbin
folder=$(mktemp -d)
pids=
trap 'kill $pids 2>/dev/null || :; wait; rm -rf "$folder"' EXIT
trap 'exit 0' TERM
cat >"$folder/fpm.conf" <<CONF
[global]
error_log = /dev/stderr
daemonize = no
[www]
listen = $folder/fpm.sock
listen.mode = 0600
user = $(id -un)
group = $(id -gn)
pm = static
pm.max_children = ${POOL_SIZE:-16}
clear_env = no
catch_workers_output = yes
CONF
cat >"$folder/nginx.conf" <<CONF
worker_processes ${CPUS:-1};
pid $folder/nginx.pid;
daemon off;
error_log /dev/stderr warn;
events { worker_connections 4096; }
http {
    access_log off;
    server_tokens off;
    keepalive_timeout 65;
    keepalive_requests 1000000;
    client_max_body_size 16m;
    client_body_temp_path $folder;
    fastcgi_temp_path $folder;
    proxy_temp_path $folder;
    uwsgi_temp_path $folder;
    scgi_temp_path $folder;
    server {
        listen ${HOST:-127.0.0.1}:$PORT;
        location / {
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $PWD/index.php;
            fastcgi_pass unix:$folder/fpm.sock;
        }
    }
}
CONF
root=
if [ "$(id -u)" = 0 ]; then
  root=--allow-to-run-as-root
  # nginx reaches the socket of FPM, which only its owner may use.
  echo "user root;" >>"$folder/nginx.conf"
fi
"php-fpm$(php -r 'echo PHP_MAJOR_VERSION, ".", PHP_MINOR_VERSION;')" \
  $root --nodaemonize --fpm-config "$folder/fpm.conf" &
pids=$!
nginx -c "$folder/nginx.conf" &
pids="$pids $!"
wait
