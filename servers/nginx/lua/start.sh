# nginx does not read a port from its environment, so each port gets its own configuration.
PATH=$PATH:/usr/sbin
sed "s/{HOST}/${HOST:-127.0.0.1}/; s/{PORT}/$PORT/; s/{CPUS}/$CPUS/" nginx.conf > "nginx.$PORT.conf" || exit
exec nginx -p "$PWD" -e stderr -c "nginx.$PORT.conf"
