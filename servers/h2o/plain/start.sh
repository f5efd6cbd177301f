# H2O takes no port from its environment, so it gets a configuration of its own for each.
if [ -n "$TLS_CERT" ]; then
  tls="s|{TLS_CERT}|$TLS_CERT|; s|{TLS_KEY}|$TLS_KEY|"
else
  tls="/ssl:/d"
fi
sed "s/{HOST}/${HOST:-127.0.0.1}/; s/{PORT}/$PORT/; s/{CPUS}/$CPUS/; $tls" h2o.conf > "h2o.$PORT.conf" || exit
# Started by root it would become nobody, who may not be allowed to read this folder.
[ "$(id -u)" != 0 ] || echo "user: root" >> "h2o.$PORT.conf"
exec h2o -m worker -c "h2o.$PORT.conf"
