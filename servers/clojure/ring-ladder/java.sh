# Java with this folder's class path: what Maven brought goes before what is Debian's. That brings a
# logging library that tools.logging would prefer to Log4j.
debian=/usr/share/java
exec java -Dclojure.tools.logging.factory=clojure.tools.logging.impl/log4j2-factory \
    -cp "classes:.:lib/*:$debian/ring-jetty-adapter.jar:$debian/cheshire.jar:$debian/bidi.jar" "$@"
