# H2O does not read a port from its environment, so each port gets its own configuration.
sed "s/{HOST}/${HOST:-127.0.0.1}/; s/{PORT}/$PORT/; s/{CPUS}/$CPUS/" h2o.conf > "h2o.$PORT.conf" || exit
# Started by root, H2O would run as nobody, who may be unable to read this folder.
[ "$(id -u)" != 0 ] || echo "user: root" >> "h2o.$PORT.conf"
exec h2o -m worker -c "h2o.$PORT.conf"
