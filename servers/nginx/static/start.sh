# nginx takes no port from its environment, so it gets a configuration of its own for each.
PATH=$PATH:/usr/sbin
sed "s/{HOST}/${HOST:-127.0.0.1}/; s/{PORT}/$PORT/; s/{CPUS}/$CPUS/; s|{FILES}|$FILES|" nginx.conf \
  > "nginx.$PORT.conf" || exit
# Its processes read files that belong to whoever starts it.
[ "$(id -u)" != 0 ] || echo "user root;" >> "nginx.$PORT.conf"
exec nginx -p "$PWD" -e stderr -c "nginx.$PORT.conf"
