#!/bin/sh
# Runs a Ruby program on TruffleRuby. Ruby code is compiled if the JDK lets a compiler plug in
# (JVMCI), and is otherwise interpreted. The version says which.
set -eu

# nio4r has no extension here, so NIO4R_PURE makes it use Ruby code.
export RUBYLIB=gems:jvm/ruby NIO4R_PURE=true
jars=jvm/jars
set -- -cp "$jars/*:jvm/classes" "-XX:ActiveProcessorCount=${CPUS:-1}" \
  --enable-native-access=ALL-UNNAMED --sun-misc-unsafe-memory-access=allow \
  "-Dpolyglot.engine.userResourceCache=$PWD/jvm/resources" TruffleRuby "$@"

if grep -q jdk.internal.vm.ci jdk/release; then
  # Puts the compiler and the jars that it needs on the upgrade module path.
  modules=$(echo "$jars"/compiler-* "$jars"/truffle-compiler-* "$jars"/collections-* \
    "$jars"/nativeimage-* "$jars"/word-* | tr ' ' ':')
  set -- -XX:+UnlockExperimentalVMOptions -XX:+EnableJVMCI "--upgrade-module-path=$modules" "$@"
  # The compiler is made for 25.0.0 and would refuse 25.0.1 and later.
  export JVMCI_VERSION_CHECK=ignore
fi

exec jdk/bin/java "$@"
