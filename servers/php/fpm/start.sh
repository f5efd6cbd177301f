#!/bin/sh
# nginx and FPM in the foreground, both below this shell. FPM has as many processes as the pool has
# connections, because each process keeps one.
set -eu
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait; rm -rf "$folder"' EXIT
trap 'exit 0' TERM
cat >"$folder/fpm.conf" <<CONF
[global]
error_log = /dev/stderr
daemonize = no
[www]
listen = $folder/fpm.sock
listen.mode = 0666
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
    upstream php { server unix:$folder/fpm.sock; keepalive ${POOL_SIZE:-16}; }
    server {
        listen ${HOST:-127.0.0.1}:$PORT;
        location / {
            include /etc/nginx/fastcgi_params;
            fastcgi_param SCRIPT_FILENAME $PWD/index.php;
            fastcgi_keep_conn on;
            fastcgi_pass php;
        }
    }
}
CONF
fpm=$(ls /usr/sbin/php-fpm* | head -n 1)
root=
[ "$(id -u)" != 0 ] || root=--allow-to-run-as-root
"$fpm" $root --nodaemonize --fpm-config "$folder/fpm.conf" &
nginx -c "$folder/nginx.conf" &
wait
