# Starts Java with this folder's class path, in which the jars from Maven come before Debian's.
# Debian's jars include a logging library that tools.logging would prefer to Log4j.
debian=/usr/share/java
exec java -Dclojure.tools.logging.factory=clojure.tools.logging.impl/log4j2-factory \
    -cp "classes:.:lib/*:$debian/ring-jetty-adapter.jar:$debian/cheshire.jar:$debian/bidi.jar" "$@"
