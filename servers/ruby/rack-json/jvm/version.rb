# Prints what really runs, on one line. Most of it comes from files, because a JVM starts slowly.
def first(pattern, path) = File.read(path)[pattern, 1]

server =
  if File.exist?("gems/puma")
    "puma #{first(/PUMA_VERSION = VERSION = "([\d.]+)"/, "gems/puma/const.rb")}"
  else
    "webrick #{first(/VERSION *= "([\d.]+)"/, "gems/webrick/version.rb")}"
  end
rack = first(/RELEASE *= "([\d.]+)"/, "gems/rack/version.rb")
ruby = Dir["jvm/jars/{jruby-complete,ruby-language}-*.jar"].first

if ruby.include?("jruby")
  engine = "jruby"
  java = `java -version 2>&1`[/"(.*)"/, 1]
else
  compiles = File.read("jdk/release").include?("jdk.internal.vm.ci")
  engine = compiles ? "truffleruby" : "truffleruby (interpreted)"
  java = `jdk/bin/java -version 2>&1`[/"(.*)"/, 1]
end

puts "#{server}, rack #{rack}, #{engine} #{ruby[/-([\d.]+)\.jar/, 1]}, java #{java}"
