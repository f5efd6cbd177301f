#!/bin/sh
# Runs a Ruby program on JRuby, which needs access to these two packages of the JDK. nio4r has no
# extension here, so NIO4R_PURE makes it use Ruby code.
export RUBYLIB=gems:jvm/ruby NIO4R_PURE=true
exec java "-XX:ActiveProcessorCount=${CPUS:-1}" -cp "jvm/jars/*" \
  --add-opens java.base/sun.nio.ch=ALL-UNNAMED --add-opens java.base/java.io=ALL-UNNAMED \
  org.jruby.Main "$@"
