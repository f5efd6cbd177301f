#!/bin/sh
# Runs a Ruby program on JRuby, which reaches into these two packages of the JDK.
# Without its extension, nio4r is told to do in Ruby.
export RUBYLIB=gems:jvm/ruby NIO4R_PURE=true
exec java "-XX:ActiveProcessorCount=${CPUS:-1}" -cp "jvm/jars/*" \
  --add-opens java.base/sun.nio.ch=ALL-UNNAMED --add-opens java.base/java.io=ALL-UNNAMED \
  org.jruby.Main "$@"
