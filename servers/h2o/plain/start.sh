# H2O does not read a port from its environment, so each port gets its own configuration.
if [ -n "$TLS_CERT" ]; then
  tls="s|{TLS_CERT}|$TLS_CERT|; s|{TLS_KEY}|$TLS_KEY|"
else
  tls="/ssl:/d"
fi
sed "s/{HOST}/${HOST:-127.0.0.1}/; s/{PORT}/$PORT/; s/{CPUS}/$CPUS/; $tls" h2o.conf > "h2o.$PORT.conf" || exit
# Started by root, H2O would run as nobody, who may be unable to read this folder.
[ "$(id -u)" != 0 ] || echo "user: root" >> "h2o.$PORT.conf"
exec h2o -m worker -c "h2o.$PORT.conf"
