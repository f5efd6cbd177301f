# nginx takes no port from its environment, so it gets a configuration of its own for each.
PATH=$PATH:/usr/sbin
sed "s/{HOST}/${HOST:-127.0.0.1}/; s/{PORT}/$PORT/; s/{CPUS}/$CPUS/" nginx.conf > "nginx.$PORT.conf" || exit
exec nginx -p "$PWD" -e stderr -c "nginx.$PORT.conf"
