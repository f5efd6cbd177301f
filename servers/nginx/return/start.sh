# nginx takes no port from its environment, so it gets a configuration of its own for each.
PATH=$PATH:/usr/sbin
sed "s/{PORT}/$PORT/; s/{CPUS}/$CPUS/; s/{HTTP2}/$HTTP2/" nginx.conf > "nginx.$PORT.conf" || exit
exec nginx -p "$PWD" -e stderr -c "nginx.$PORT.conf"
