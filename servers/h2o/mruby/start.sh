# H2O takes no port from its environment, so it gets a configuration of its own for each.
sed "s/{HOST}/${HOST:-127.0.0.1}/; s/{PORT}/$PORT/; s/{CPUS}/$CPUS/" h2o.conf > "h2o.$PORT.conf" || exit
# Started by root it would become nobody, who may not be allowed to read this folder.
[ "$(id -u)" != 0 ] || echo "user: root" >> "h2o.$PORT.conf"
exec h2o -m worker -c "h2o.$PORT.conf"
