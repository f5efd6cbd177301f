# nginx does not read a port from its environment, so each port gets its own configuration.
PATH=$PATH:/usr/sbin
sed "s/{HOST}/${HOST:-127.0.0.1}/; s/{PORT}/$PORT/; s/{CPUS}/$CPUS/; s|{FILES}|$FILES|" nginx.conf \
  > "nginx.$PORT.conf" || exit
# nginx's processes read files that belong to the user who starts nginx.
[ "$(id -u)" != 0 ] || echo "user root;" >> "nginx.$PORT.conf"
exec nginx -p "$PWD" -e stderr -c "nginx.$PORT.conf"
