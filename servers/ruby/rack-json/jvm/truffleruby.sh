#!/bin/sh
# Runs a Ruby program on TruffleRuby: compiled where the JDK lets a compiler plug in (JVMCI), else
# interpreted; the receipt says which.
set -eu

# Without its extension, nio4r is told to do in Ruby.
export RUBYLIB=gems:jvm/ruby NIO4R_PURE=true
jars=jvm/jars
set -- -cp "$jars/*:jvm/classes" "-XX:ActiveProcessorCount=${CPUS:-1}" \
  --enable-native-access=ALL-UNNAMED --sun-misc-unsafe-memory-access=allow \
  "-Dpolyglot.engine.userResourceCache=$PWD/jvm/resources" TruffleRuby "$@"

if grep -q jdk.internal.vm.ci jdk/release; then
  # The compiler and what it needs of the jars, on the path of modules that the JDK boots with.
  modules=$(echo "$jars"/compiler-* "$jars"/truffle-compiler-* "$jars"/collections-* \
    "$jars"/nativeimage-* "$jars"/word-* | tr ' ' ':')
  set -- -XX:+UnlockExperimentalVMOptions -XX:+EnableJVMCI "--upgrade-module-path=$modules" "$@"
  # It is made for 25.0.0 and refuses 25.0.1 and later unless told so.
  export JVMCI_VERSION_CHECK=ignore
fi

exec jdk/bin/java "$@"
