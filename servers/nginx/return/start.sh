# nginx does not read a port from its environment, so each port gets its own configuration.
PATH=$PATH:/usr/sbin
if [ -n "$TLS_CERT" ]; then
  PROTOCOL="ssl http2"
  tls="s|{TLS_CERT}|$TLS_CERT|; s|{TLS_KEY}|$TLS_KEY|"
else
  tls="/ssl_/d"
fi
sed "s/{HOST}/${HOST:-127.0.0.1}/; s/{PORT}/$PORT/; s/{CPUS}/$CPUS/; s/{PROTOCOL}/$PROTOCOL/; $tls" nginx.conf \
  > "nginx.$PORT.conf" || exit
exec nginx -p "$PWD" -e stderr -c "nginx.$PORT.conf"
